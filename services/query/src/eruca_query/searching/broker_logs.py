"""Read from brokers the data that the read model lacks: the tails of their logs, records, keys.

A broker that does not answer is not an error here but a *fault* in the result: the answer is given
without that broker, and says so.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Final

from eruca.contract.errors import (
    ErucaError,
    MessageDamagedError,
    RecordNotFoundError,
    TopicNotFoundError,
    TransportError,
)
from eruca.contract.limits import KEY_QUERY_COUNT_MAX
from eruca.contract.messages import LogRecordView
from eruca.contract.queries import IncompleteReason
from eruca.contract.wire import (
    DAMAGED_OFFSETS_HEADER,
    LOG_MEDIA_TYPE,
    MAX_OFFSET_HEADER,
    NEXT_OFFSET_HEADER,
)
from eruca.core.messages.log_begin import log_begin
from eruca.core.messages.log_block import LogBlock, sound_records
from eruca.services.cluster import BrokerApi
from eruca.services.http import problem_error, target_of
from eruca_query.core.found_messages import FoundMessage
from eruca_query.core.log_tails import LogTail
from eruca_query.core.pulled_messages import found_of
from eruca_query.searching.broker_directory import BrokerDirectory, KnownBrokers

if TYPE_CHECKING:
    from eruca import AsyncClient

TOPICS_ASKED_MAX: Final = 64  # of one broker, for an id whose topic is unknown
PARALLEL_MAX: Final = 16  # requests to one broker at a time
_HEADERS: Final = (("accept", LOG_MEDIA_TYPE),)
NOT_REGISTERED: Final = "no name server knows it: it is stopped, or cannot reach them"


@dataclass(frozen=True, slots=True)
class Fault:
    """The reason why data of a broker is missing."""

    reason: IncompleteReason
    detail: str


@dataclass(frozen=True, slots=True)
class TailAnswer:
    """The part of one broker's log behind the read model, or the reason why it is unknown."""

    end_offset: int | None  # where the log ends; None: unknown
    tail: LogTail | None
    fault: Fault | None

    @property
    def is_behind(self) -> bool:
        """True if a part of the log was not searched: it is too long, or the whole log is new."""
        return self.fault is not None and self.fault.reason in ("model_behind", "log_gap")


@dataclass(frozen=True, slots=True)
class KeyAnswer:
    """The result of a broker's own index, newest first."""

    messages: list[FoundMessage]
    is_complete: bool  # false: it has more messages than one answer holds


class BrokerLogs:
    """Asks brokers, each with a timeout.

    Args:
        client: Provides the connections.
        directory: Provides the brokers' URLs.
        timeout: Seconds for one answer.
        tail_bytes_max: Approximate bytes of a log that are searched.
    """

    def __init__(
        self,
        client: AsyncClient,
        directory: BrokerDirectory,
        *,
        timeout: float,
        tail_bytes_max: int,
    ) -> None:
        self._transport = client.context.hot_transport
        self._api = BrokerApi(self._transport, timeout)
        self._directory = directory
        self._timeout = timeout
        self._tail_bytes_max = tail_bytes_max

    async def brokers(self) -> KnownBrokers:
        """Return the living brokers."""
        return await self._directory.brokers()

    async def tails(self, positions: Mapping[str, int | None]) -> dict[str, TailAnswer]:
        """Read the log of each broker from its position on; None: from the log's beginning."""
        known = await self.brokers()
        answers = await asyncio.gather(
            *(self._tail(known, name, offset) for name, offset in positions.items())
        )
        return dict(zip(positions, answers, strict=True))

    async def record(self, broker_name: str, log_offset: int) -> LogRecordView | Fault | None:
        """Return a record; None if the log has no record there, or no longer.

        A damaged record is a fault. If the damage hides where it begins, the broker does not find
        it; the feed of its log tells whether one is there.
        """
        url = (await self.brokers()).urls.get(broker_name)
        if url is None:
            return Fault("broker_unreachable", NOT_REGISTERED)
        try:
            try:
                return await self._api.record(url, log_offset)
            except MessageDamagedError as error:
                return Fault("damaged", error.detail)
            except RecordNotFoundError as error:
                block = await self._read(url, broker_name, log_offset, size_max=1)
                return Fault("damaged", error.detail) if log_offset in block.damaged else None
        except RecordNotFoundError:
            return None
        except ErucaError as error:
            self._directory.forget()
            return Fault("broker_unreachable", str(error))

    async def lack(self, topic: str) -> bool:
        """Tell whether *topic* is known to be missing: every living broker says so."""
        known = await self.brokers()
        if known.fault is not None or not known.urls:  # there may be unknown brokers
            return False

        async def lacks(url: str) -> bool:
            try:
                await self._api.get_topic(url, topic)
            except TopicNotFoundError:
                return True
            except ErucaError:  # it may have the topic
                return False
            return False

        return all(await asyncio.gather(*map(lacks, known.urls.values())))

    async def by_key(
        self, broker_name: str, topic: str, key: str, *, since: datetime | None, limit: int
    ) -> KeyAnswer | Fault:
        """Return a topic's messages with a key or id from a broker's own index."""
        url = (await self.brokers()).urls.get(broker_name)
        if url is None:
            return Fault("broker_unreachable", NOT_REGISTERED)
        try:
            found = await self._api.messages_by_key(
                url, topic, key, since=since, until=None, limit=limit
            )
            messages = [found_of(broker_name, message) for message in found.messages]
            return KeyAnswer(messages, found.is_complete)
        except ValueError as error:
            return Fault("broker_unreachable", f"{url}: its search result is invalid: {error}")
        except ErucaError as error:
            if error.status == RecordNotFoundError.status:
                return KeyAnswer([], is_complete=True)  # the broker does not have this topic
            self._directory.forget()
            return Fault("broker_unreachable", str(error))

    async def by_unique_id(self, broker_name: str, unique_id: str) -> list[FoundMessage]:
        """Return messages with a unique id from a broker's own index; none if it does not answer.

        The index requires a topic: the topics of the broker are asked one by one, up to a maximum.
        """
        url = (await self.brokers()).urls.get(broker_name)
        if url is None:
            return []
        try:
            listed = await self._api.list_topics(
                url, cursor=None, limit=TOPICS_ASKED_MAX, include_system=False
            )
        except ErucaError:
            self._directory.forget()
            return []
        places = asyncio.Semaphore(PARALLEL_MAX)

        async def ask(topic: str) -> KeyAnswer | Fault:
            async with places:
                return await self.by_key(
                    broker_name, topic, unique_id, since=None, limit=KEY_QUERY_COUNT_MAX
                )

        answers = await asyncio.gather(*(ask(config.topic) for config in listed.topics))
        return [
            message
            for answer in answers
            if not isinstance(answer, Fault)
            for message in answer.messages
            if message.unique_id == unique_id
        ]

    async def _tail(
        self, known: KnownBrokers, broker_name: str, from_offset: int | None
    ) -> TailAnswer:
        url = known.urls.get(broker_name)
        if url is None:
            detail = known.fault or NOT_REGISTERED
            return TailAnswer(None, None, Fault("broker_unreachable", detail))
        try:
            if from_offset is None:
                from_offset = log_begin(await self._api.status(url))
            block = await self._read(url, broker_name, from_offset)
        except RecordNotFoundError as error:
            detail = f"its log cannot be read from {from_offset} on: {error.detail}"
            return TailAnswer(None, None, Fault("log_gap", detail))
        except ErucaError as error:
            self._directory.forget()
            return TailAnswer(None, None, Fault("broker_unreachable", str(error)))
        tail = LogTail(block)
        if tail.is_whole:
            return TailAnswer(block.end_offset, tail, None)
        behind = block.end_offset - from_offset
        fault = Fault(
            "model_behind",
            f"the read model is {behind} bytes behind its log, of which the last "
            f"{block.end_offset - block.next_offset} were not searched",
        )
        return TailAnswer(block.end_offset, tail, fault)

    async def _read(
        self, url: str, broker_name: str, from_offset: int, *, size_max: int | None = None
    ) -> LogBlock:
        target = target_of(
            "/v1/log", from_offset=from_offset, bytes_max=size_max or self._tail_bytes_max
        )
        answer = await self._transport.request(
            "GET", url, target, headers=_HEADERS, timeout=self._timeout
        )
        if answer.status != 200:
            raise problem_error(answer, f"GET {url}{target}")
        try:
            data, damaged = sound_records(
                answer.body, from_offset, answer.headers.get(DAMAGED_OFFSETS_HEADER, "")
            )
            return LogBlock(
                broker_name,
                from_offset=from_offset,
                next_offset=int(answer.headers[NEXT_OFFSET_HEADER]),
                end_offset=int(answer.headers[MAX_OFFSET_HEADER]),
                data=data,
                damaged=damaged,
            )
        except (KeyError, ValueError) as error:
            raise TransportError(f"{url}{target}: the answer is not a valid log block") from error
