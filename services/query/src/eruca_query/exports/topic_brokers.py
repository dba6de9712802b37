"""The brokers that hold a topic: where they are, what its queues hold, and the records themselves.

What goes wrong with a broker is told as the service's own error, which names the broker: 503 where
it does not answer, so that the request may be repeated; what a broker refuses stays what it is.

The system's topics are in no route: each broker has its own, if it has one of that name at all.
They are asked for expressly, so that nobody reads them who does not mean to.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from typing import Final

from eruca import AsyncClient
from eruca.aio.transport import path_segment, problem_error, target_of
from eruca.contract.errors import (
    BrokerUnreachableError,
    ClientError,
    ErucaError,
    InternalError,
    TopicNotFoundError,
    UnavailableError,
)
from eruca.contract.models import QueueOffsets
from eruca.contract.names import is_system_topic
from eruca.contract.wire import RECORDS_MEDIA_TYPE, MalformedRecordsError
from eruca.core.route_table import DEFAULT_NETWORK, MASTER_ID
from eruca_query.exports.blocks import PulledBlock, decode_block

RETRY_AFTER_SECONDS: Final = 1.0
_HEADERS: Final = (("accept", RECORDS_MEDIA_TYPE),)


class TopicBrokers:
    """One topic, as its brokers hold it; made by :func:`topic_brokers`."""

    def __init__(self, client: AsyncClient, topic: str, urls: Mapping[str, str | None]) -> None:
        """Take the URLs by broker name, None where a broker has no master now."""
        self.topic = topic
        self._client = client
        self._urls = urls
        self._is_system = is_system_topic(topic)

    @property
    def names(self) -> list[str]:
        """The brokers that may have the topic, sorted."""
        return sorted(self._urls)

    async def queues(self, broker_names: list[str]) -> dict[str, list[QueueOffsets]]:
        """Return what each queue on each of *broker_names* holds, of each broker at one moment.

        Raises:
            BrokerUnreachableError: One does not answer, or nobody knows where it is.
            TopicNotFoundError: One does not have the topic; of a system topic: none has it.
        """
        outcomes = await asyncio.gather(*map(self._queues_of, broker_names), return_exceptions=True)
        found: dict[str, list[QueueOffsets]] = {}
        ignorance: BaseException | None = None
        for name, outcome in zip(broker_names, outcomes, strict=True):
            if not isinstance(outcome, BaseException):
                found[name] = outcome
            elif self._is_system and isinstance(outcome, TopicNotFoundError):
                ignorance = outcome
            else:
                raise outcome
        if ignorance is not None and not found:
            raise ignorance
        return found

    async def offset_at(self, broker_name: str, queue_id: int, moment: datetime) -> int:
        """Return the offset of the queue's first message stored at *moment* or later."""
        url = self._url(broker_name)
        with _naming(broker_name):
            found = await self._client.context.broker_api.offset_by_time(
                url, self.topic, queue_id, moment, include_system=self._is_system
            )
        return found.offset

    async def pull(
        self, broker_name: str, queue_id: int, offset: int, *, max_count: int, max_bytes: int
    ) -> PulledBlock:
        """Return the messages from *offset* on, one at least if there is one.

        Raises:
            BrokerUnreachableError: The broker does not answer.
        """
        url = self._url(broker_name)
        target = target_of(
            f"/v1/topics/{path_segment(self.topic)}/queues/{queue_id}/messages",
            offset=offset,
            max_count=max_count,
            max_bytes=max_bytes,
            include_system=self._is_system or None,
        )
        with _naming(broker_name):
            answer = await self._client.context.hot_transport.request(
                "GET",
                url,
                target,
                headers=_HEADERS,
                timeout=self._client.settings.timeout_seconds,
            )
            if answer.status != 200:
                raise problem_error(answer, f"GET {url}{target}")
        try:
            return decode_block(answer.body)
        except MalformedRecordsError as error:
            raise BrokerUnreachableError(
                f"what broker {broker_name} answers is no pull: {error}"
            ) from error

    async def _queues_of(self, broker_name: str) -> list[QueueOffsets]:
        url = self._url(broker_name)
        with _naming(broker_name):
            answer = await self._client.context.broker_api.topic_queues(
                url, self.topic, include_system=self._is_system
            )
        return answer.queues

    def _url(self, broker_name: str) -> str:
        url = self._urls.get(broker_name)
        if url is None:
            raise BrokerUnreachableError(
                f"broker {broker_name} is away: no name server knows where it is, with topic "
                f"{self.topic}",
                fix="wait until it is back; or plan anew without it: missing=skip",
                retry_after_seconds=RETRY_AFTER_SECONDS,
            )
        return url


async def topic_brokers(client: AsyncClient, topic: str) -> TopicBrokers:
    """Return the brokers of *topic*, as a name server knows them now.

    Raises:
        TopicNotFoundError: No live broker has it.
        UnavailableError: No name server answers.
    """
    try:
        if is_system_topic(topic):
            by_name = {
                group.broker_name: {broker.broker_id: broker.urls for broker in group.brokers}
                for group in await client.admin.brokers()
            }
        else:
            route = await client.admin.route(topic)
            by_name = {broker.broker_name: broker.urls for broker in route.brokers}
    except ClientError as error:
        raise UnavailableError(
            error.detail, fix=error.fix, retry_after_seconds=RETRY_AFTER_SECONDS
        ) from error
    if not by_name:
        raise TopicNotFoundError(f"no live broker has topic {topic}")
    network = client.settings.network
    urls = {name: _master_url(urls, network) for name, urls in by_name.items()}
    return TopicBrokers(client, topic, urls)


def _master_url(urls: Mapping[int, Mapping[str, str]], network: str) -> str | None:
    """Return where the master of a broker is, given its processes' URLs by id and network."""
    of_master = urls.get(MASTER_ID)
    if of_master is None:
        return None
    return of_master.get(network) or of_master.get(DEFAULT_NETWORK) or min(of_master.values())


@contextmanager
def _naming(broker_name: str) -> Iterator[None]:
    """Turn what goes wrong with a broker into an error of the service that names it."""
    try:
        yield
    except (ClientError, InternalError) as error:
        raise BrokerUnreachableError(
            f"broker {broker_name} does not answer: {error.detail}",
            retry_after_seconds=RETRY_AFTER_SECONDS,
        ) from error
    except ErucaError as error:
        raise type(error)(
            f"broker {broker_name}: {error.detail}",
            fix=error.fix,
            errors=error.errors,
            retry_after_seconds=error.retry_after_seconds,
        ) from error
