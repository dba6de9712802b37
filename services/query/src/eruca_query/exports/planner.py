"""Plans: the messages of a topic to export, fixed at one moment.

Each broker reports the ends of all its queues in one answer. So a message that was acknowledged
before the request is in the plan, on whichever broker it is. Store times never decrease within a
queue, so a span of time is a range of offsets in each queue.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple, Protocol

from eruca.contract.errors import (
    DatabaseUnavailableError,
    QueueNotFoundError,
    RangeDeletedError,
    ValidationError,
)
from eruca.contract.exports import (
    EXPORT_SCHEMA_VERSION,
    ExportBroker,
    ExportPlan,
    ExportQueue,
    ExportStart,
    MissingRows,
)
from eruca.contract.limits import (
    EXPORT_PARTITION_COUNT_MAX,
    EXPORT_PARTITION_ROWS_DEFAULT,
    EXPORT_QUEUE_COUNT_MAX,
)
from eruca.contract.queries import Missing
from eruca.contract.topics import QueueOffsets, TopicQueues
from eruca_chassis.counts import counted
from eruca_query.exports.packing import QueueWish, partitions_of
from eruca_query.exports.positions import Resumed, another_topic, resumed
from eruca_query.exports.topic_brokers import TopicBrokers

_LOOKS_AT_ONCE: Final = 16  # concurrent requests for offsets by time
_MILLISECOND: Final = timedelta(milliseconds=1)
_QUEUES_NAMED_MAX: Final = 32  # in one error


class FindMissing(Protocol):
    """Finds brokers that have messages of a topic, besides the known ones."""

    async def __call__(
        self,
        topic: str,
        present: Collection[str],
        *,
        from_time: datetime | None,
        to_time: datetime | None,
    ) -> list[Missing]:
        """Return them, as far as known.

        Raises:
            DatabaseUnavailableError: Nobody knows them now.
        """
        ...


class QueueName(NamedTuple):
    """A queue of the topic."""

    broker_name: str
    queue_id: int

    def __str__(self) -> str:
        return f"{self.broker_name}/{self.queue_id}"


@dataclass(frozen=True, slots=True)
class PlanWish:
    """The options of a plan."""

    partition_rows: int = EXPORT_PARTITION_ROWS_DEFAULT
    start: Mapping[QueueName, ExportStart] = field(default_factory=dict)
    from_time: datetime | None = None
    to_time: datetime | None = None
    missing: MissingRows = "refuse"


async def plan_export(
    brokers: TopicBrokers, wish: PlanWish, find_missing: FindMissing
) -> ExportPlan:
    """Return the messages to read, and the unreachable brokers that have more of them.

    If nobody knows those brokers now, the plan says that it may lack some.

    Raises:
        BrokerUnreachableError: A broker with a part of the topic is away.
        DatabaseUnavailableError: No live broker has the topic, and nobody knows whether another
            one has it.
        TopicNotFoundError: No reachable broker has the topic.
        QueueNotFoundError: A start names a missing queue.
        RangeDeletedError: Retention has deleted messages after a start; or the queue does not hold
            the messages that were read before it.
        ValidationError: There are too many queues, or there would be too many partitions.
    """
    taken_at = datetime.now(UTC)
    names = brokers.names
    if not names:
        holders = await find_missing(brokers.topic, names, from_time=None, to_time=None)
        said = {missing.broker_name for missing in holders if missing.broker_name is not None}
        await brokers.check_held(said | {queue.broker_name for queue in wish.start})
    if wish.missing == "refuse":
        names = sorted({*names, *(queue.broker_name for queue in wish.start)})
    told = await brokers.queues(names)
    queues = {
        QueueName(broker_name, offsets.queue_id): _Told(topic, offsets)
        for broker_name, topic in told.items()
        for offsets in topic.queues
    }
    if len(queues) > EXPORT_QUEUE_COUNT_MAX:
        raise ValidationError(
            f"expected at most {EXPORT_QUEUE_COUNT_MAX} queues in one plan; topic {brokers.topic} "
            "has more"
        )
    gone = sorted(str(name) for name in wish.start if name not in queues)
    if gone and wish.missing == "refuse":
        raise QueueNotFoundError(
            f"start names queues that do not exist: {', '.join(gone)}",
            fix="omit them from start, or plan with missing=skip",
        )
    wishes = await _wishes(brokers, queues, wish)
    if wish.missing == "refuse":
        _refuse_missing(wishes)
    taken = [queue.taken() for queue in wishes]
    incomplete = await _incomplete(brokers, wish, find_missing)
    logs = [
        ExportBroker(broker_name=name, epoch=topic.epoch, log_offset=topic.log_offset)
        for name, topic in sorted(told.items())
    ]
    plan = _plan(brokers.topic, taken_at, taken, wish.partition_rows, incomplete)
    return plan.model_copy(update={"brokers": logs})


async def _incomplete(
    brokers: TopicBrokers, wish: PlanWish, find_missing: FindMissing
) -> list[Missing]:
    """Return what the plan may lack."""
    try:
        return await find_missing(
            brokers.topic, brokers.names, from_time=wish.from_time, to_time=wish.to_time
        )
    except DatabaseUnavailableError as error:
        detail = (
            f"brokers that are away may have messages of topic {brokers.topic}; nobody knows them "
            f"while the read model's database is unreachable: {error.detail}"
        )
        return [Missing(broker_name=None, reason="read_model_unreachable", detail=detail)]


def _plan(
    topic: str,
    taken_at: datetime,
    queues: list[ExportQueue],
    partition_rows: int,
    incomplete: list[Missing],
) -> ExportPlan:
    rows = sum(queue.rows for queue in queues)
    if rows > partition_rows * EXPORT_PARTITION_COUNT_MAX:
        raise ValidationError(
            f"{rows} rows in partitions of {partition_rows} are more than "
            f"{EXPORT_PARTITION_COUNT_MAX} partitions",
            errors=[
                {
                    "pointer": "/query/partition_rows",
                    "detail": f"expected at least {-(-rows // EXPORT_PARTITION_COUNT_MAX)}",
                }
            ],
        )
    return ExportPlan(
        topic=topic,
        schema_version=EXPORT_SCHEMA_VERSION,
        taken_at=taken_at,
        rows=rows,
        queues=queues,
        partitions=partitions_of(queues, partition_rows),
        incomplete=incomplete,
    )


class _Told(NamedTuple):
    """A broker's answer about a topic, and about one of its queues."""

    topic: TopicQueues
    queue: QueueOffsets


async def _wishes(
    brokers: TopicBrokers, queues: Mapping[QueueName, _Told], wish: PlanWish
) -> list[QueueWish]:
    looks = asyncio.Semaphore(_LOOKS_AT_ONCE)

    async def offset_at(
        name: QueueName, offsets: QueueOffsets, moment: datetime | None
    ) -> int | None:
        earliest, latest = offsets.earliest_stored_at, offsets.latest_stored_at
        if moment is None or earliest is None or latest is None:
            return None
        if moment <= earliest:
            return offsets.min_offset
        if moment > latest:
            return offsets.max_offset
        async with looks:
            return await brokers.offset_at(*name, moment)

    async def resumed_at(
        start: ExportStart, name: QueueName, topic: TopicQueues, offsets: QueueOffsets
    ) -> Resumed | None:
        known, read_to = start.topic_id, start.latest_stored_at
        return resumed(
            brokers.topic,
            start.offset,
            another=None if known is None else another_topic(topic.topic, known, topic.topic_id),
            min_offset=offsets.min_offset,
            max_offset=offsets.max_offset,
            # Store times are in whole milliseconds.
            later_offset=await offset_at(name, offsets, read_to and read_to + _MILLISECOND),
        )

    async def wish_of(name: QueueName, topic: TopicQueues, offsets: QueueOffsets) -> QueueWish:
        start = wish.start.get(name)
        instead = None if start is None else await resumed_at(start, name, topic, offsets)
        return QueueWish(
            *name,
            min_offset=offsets.min_offset,
            max_offset=offsets.max_offset,
            start=instead.offset if instead else start.offset if start else None,
            topic_id=topic.topic_id,
            broker_started_at=topic.broker_started_at,
            latest_stored_at=offsets.latest_stored_at,
            lost=instead and instead.reason,
            from_offset=await offset_at(name, offsets, wish.from_time),
            to_offset=await offset_at(name, offsets, wish.to_time),
        )

    names = sorted(queues)
    return await asyncio.gather(*(wish_of(name, *queues[name]) for name in names))


def _refuse_missing(wishes: list[QueueWish]) -> None:
    lost = [queue for queue in wishes if queue.lost is not None]
    if lost:
        first = lost[0]
        more = f" (and {len(lost) - 1} more queues)" if len(lost) > 1 else ""
        raise RangeDeletedError(
            f"{first.broker_name}/{first.queue_id}: {first.lost}{more}",
            errors=[
                {
                    "pointer": "/query/start",
                    "detail": f"{queue.broker_name}/{queue.queue_id}: {queue.lost}",
                }
                for queue in lost[:_QUEUES_NAMED_MAX]
            ],
            fix="to continue with the messages that exist now, plan with missing=skip",
        )
    behind = [queue for queue in wishes if queue.missing_rows]
    if behind:
        rows = sum(queue.missing_rows for queue in behind)
        raise RangeDeletedError(
            f"retention has deleted {counted(rows, 'message')} after the starts of "
            f"{counted(len(behind), 'queue')}",
            errors=[
                {
                    "pointer": "/query/start",
                    "detail": f"{queue.broker_name}/{queue.queue_id}: start is {queue.start}, but "
                    f"the queue begins at {queue.min_offset}",
                }
                for queue in behind[:_QUEUES_NAMED_MAX]
            ],
        )
