"""Read ranges: step after step, in order, each begun when it is needed.

A broker that stops answering may be restarting. So it is retried for a short time, at its current
address; then the reading fails with an error that names it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from eruca.contract.errors import (
    ErucaError,
    MessageDamagedError,
    QueueNotFoundError,
    RangeDeletedError,
    UnavailableError,
    ValidationError,
)
from eruca.contract.exports import ExportRange
from eruca.contract.records import DamagedRecordError
from eruca.contract.topics import TopicQueues
from eruca.contract.wire import PullStatus
from eruca_query.exports.positions import another_topic
from eruca_query.exports.topic_brokers import TopicBrokers
from eruca_query.exports.workers.pool import ExportWorkers, RowsUnderWay
from eruca_query.exports.workers.steps import RowForm, Taken

T = TypeVar("T")

_PAUSE_SECONDS: Final = 0.25  # between two attempts
_FAULTS_MAX: Final = 32  # ranges that one error lists


@dataclass(frozen=True, slots=True)
class RangeRows:
    """The next rows of the ranges, which are being built."""

    count: int
    under_way: RowsUnderWay


class RangeReader:
    """Reads ranges of one topic.

    Args:
        topic: Its name.
        find: Returns the topic's brokers as they are now.
        workers: Do the steps.
        ranges: The ranges, in reading order.
        form: The columns and the encoding of the rows.
        patience_seconds: How long a broker may be away during the export.
    """

    def __init__(
        self,
        topic: str,
        find: Callable[[], Awaitable[TopicBrokers]],
        workers: ExportWorkers,
        ranges: Sequence[ExportRange],
        form: RowForm,
        *,
        patience_seconds: float,
    ) -> None:
        self._topic = topic
        self._find = find
        self._workers = workers
        self._ranges = ranges
        self._names = sorted({a_range.broker_name for a_range in ranges})
        self._form = form
        self._patience_seconds = patience_seconds
        self._brokers: TopicBrokers | None = None
        self._under_way: list[RowsUnderWay] = []
        self._needs_master = False  # whether a standby has lacked something

    async def check(self) -> None:
        """Ensure that all requested messages are there.

        Raises:
            TopicNotFoundError, QueueNotFoundError: The topic or a queue is missing.
            RangeDeletedError: Retention has deleted the beginning of a range.
            ValidationError: A range ends after its queue's end.
            BrokerUnreachableError: A broker is away.
        """
        brokers = await self._found()
        check_ranges(self._topic, self._ranges, await brokers.queues(self._names))

    async def rows(self) -> AsyncGenerator[RangeRows, None]:
        """Yield the rows of all messages of the ranges, in order, as soon as they are built.

        Raises:
            RangeDeletedError: Retention has deleted messages before they were read.
            MessageDamagedError: A message is damaged, and rows of damaged ones are not requested.
            UnavailableError: A broker was away for too long, or a worker died.
        """
        for a_range in self._ranges:
            offset = a_range.from_offset
            while offset < a_range.to_offset:
                rows = await self._begin(a_range, offset)
                offset += rows.count
                yield rows
        if any(a_range.topic_id is not None for a_range in self._ranges):
            # A topic that was created again meanwhile has other messages at these offsets.
            brokers = await self._patiently(lambda found: found.queues(self._names))
            check_topics(self._topic, self._ranges, brokers)

    def close(self) -> None:
        """Drop all rows that were not sent."""
        for rows in self._under_way:
            rows.forget()

    async def _begin(self, a_range: ExportRange, offset: int) -> RangeRows:
        return await self._patiently(lambda brokers: self._begin_once(brokers, a_range, offset))

    async def _patiently(self, asked: Callable[[TopicBrokers], Awaitable[T]]) -> T:
        """Return the brokers' answer; wait for an absent broker."""
        deadline = asyncio.get_running_loop().time() + self._patience_seconds
        while True:
            try:
                return await asked(await self._found())
            except UnavailableError as error:
                pause = max(error.retry_after_seconds or 0.0, _PAUSE_SECONDS)
                if asyncio.get_running_loop().time() + pause > deadline:
                    raise
                await asyncio.sleep(pause)
                self._brokers = None  # it may return at another address

    async def _found(self) -> TopicBrokers:
        if self._brokers is None:
            found = await self._find()
            await found.check_held(self._names)
            self._brokers = found
        return self._brokers

    async def _begin_once(
        self, brokers: TopicBrokers, a_range: ExportRange, offset: int
    ) -> RangeRows:
        at_standby = not self._needs_master and brokers.has_standby(a_range.broker_name)
        found = None
        if at_standby:
            found = await self._take_at_standby(brokers, a_range, offset)
            self._needs_master = found is None
        under_way, taken = found or await self._take(brokers, a_range, offset)
        if taken.status is PullStatus.OFFSET_TOO_SMALL:
            raise RangeDeletedError(_deleted(a_range, offset, taken.min_offset))
        if taken.damage is not None:
            raise self._damaged(a_range, offset, taken.damage)
        if not taken.count:
            raise ValidationError(_beyond_end(a_range, taken.max_offset))
        return RangeRows(taken.count, under_way)

    async def _take_at_standby(
        self, brokers: TopicBrokers, a_range: ExportRange, offset: int
    ) -> tuple[RowsUnderWay, Taken] | None:
        """Take messages from a standby; None if the master must be asked.

        A standby shows the newest messages a moment later than the master, and damage is its own.
        So only the master's refusals count.
        """
        try:
            under_way, taken = await self._take(brokers, a_range, offset, at_standby=True)
        except (ErucaError, DamagedRecordError):
            return None
        if taken.count and taken.status is not PullStatus.DAMAGED:
            return under_way, taken
        under_way.forget()
        return None

    async def _take(
        self,
        brokers: TopicBrokers,
        a_range: ExportRange,
        offset: int,
        *,
        at_standby: bool = False,
    ) -> tuple[RowsUnderWay, Taken]:
        step = brokers.step(
            a_range.broker_name,
            a_range.queue_id,
            offset,
            self._form,
            count_max=a_range.to_offset - offset,
            at_standby=at_standby,
        )
        under_way = await self._workers.begin(step)
        self._under_way = [*(rows for rows in self._under_way if not rows.has_ended), under_way]
        return under_way, await under_way.taken()

    def _damaged(self, a_range: ExportRange, offset: int, damage: str) -> MessageDamagedError:
        queue = f"{a_range.broker_name}/{a_range.queue_id}"
        detail = f"topic {self._topic}, queue {queue}: offset {offset} is damaged, {damage}"
        index = self._ranges.index(a_range)
        return MessageDamagedError(
            detail,
            errors=[{"pointer": f"/query/range/{index}", "detail": detail}],
            fix="to continue, repeat with damaged=mark: a row then marks such a message; or "
            "restore its log's file from a backup, and repeat",
        )


def check_ranges(
    topic: str,
    ranges: Sequence[ExportRange],
    brokers: Mapping[str, TopicQueues],
) -> None:
    """Raise an error that lists all invalid *ranges*; *brokers* hold the queues' present state."""
    check_topics(topic, ranges, brokers)
    queues = {
        (name, queue.queue_id): queue for name, its in brokers.items() for queue in its.queues
    }
    unknown: list[dict[str, str]] = []
    deleted: list[dict[str, str]] = []
    beyond: list[dict[str, str]] = []
    for index, a_range in enumerate(ranges):
        pointer = f"/query/range/{index}"
        queue = queues.get((a_range.broker_name, a_range.queue_id))
        if queue is None:
            unknown.append({"pointer": pointer, "detail": f"{a_range.text}: no such queue"})
        elif a_range.rows and a_range.from_offset < queue.min_offset:
            detail = _deleted(a_range, a_range.from_offset, queue.min_offset)
            deleted.append({"pointer": pointer, "detail": detail})
        elif a_range.to_offset > queue.max_offset:
            beyond.append({"pointer": pointer, "detail": _beyond_end(a_range, queue.max_offset)})
    if unknown:
        raise QueueNotFoundError(
            f"topic {topic}: {_summary(unknown)}", errors=unknown[:_FAULTS_MAX]
        )
    if deleted:
        raise RangeDeletedError(_summary(deleted), errors=deleted[:_FAULTS_MAX])
    if beyond:
        raise ValidationError(
            _summary(beyond), errors=beyond[:_FAULTS_MAX], fix="use the ranges of a plan"
        )


def check_topics(
    topic: str, ranges: Sequence[ExportRange], brokers: Mapping[str, TopicQueues]
) -> None:
    """Raise RangeDeletedError if *ranges* are of an earlier topic of this name."""
    faults: list[dict[str, str]] = []
    for index, a_range in enumerate(ranges):
        known, now = a_range.topic_id, brokers.get(a_range.broker_name)
        if known is not None and now is not None:
            reason = another_topic(topic, known, now.topic_id)
            if reason is not None:
                detail = f"{a_range.broker_name}/{a_range.queue_id}: {reason}"
                faults.append({"pointer": f"/query/range/{index}", "detail": detail})
    if faults:
        raise RangeDeletedError(
            _summary(faults),
            errors=faults[:_FAULTS_MAX],
            fix="plan the export again; the earlier topic's messages are gone",
        )


def _summary(faults: list[dict[str, str]]) -> str:
    more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
    return faults[0]["detail"] + more


def _deleted(a_range: ExportRange, offset: int, min_offset: int) -> str:
    return f"{a_range.text}: offset {offset} has been deleted, the queue begins at {min_offset}"


def _beyond_end(a_range: ExportRange, max_offset: int) -> str:
    return f"{a_range.text}: the queue ends at {max_offset}"
