"""Decide which messages of each queue an export takes, and how they are split into partitions.

Pure: the queues' offsets and the options come in as arguments; the result is ranges.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime

from eruca.contract.exports import ExportPartition, ExportQueue, ExportRange
from eruca.contract.limits import EXPORT_RANGE_COUNT_MAX


@dataclass(frozen=True, slots=True)
class QueueWish:
    """A queue as it is, and the requested part of it."""

    broker_name: str
    queue_id: int
    min_offset: int  # of the first message present
    max_offset: int  # of the next message
    start: int | None = None  # None: from the first message present
    from_offset: int | None = None  # at which the requested time begins
    to_offset: int | None = None  # at which the requested time ends; None: the queue's end
    topic_id: str | None = None
    broker_started_at: datetime | None = None
    latest_stored_at: datetime | None = None
    lost: str | None = None  # why the queue cannot continue at the given start, but at ``start``

    @property
    def missing_rows(self) -> int:
        """The number of deleted messages from ``start`` on, unless the time excludes them."""
        if self.start is None or (self.from_offset or 0) > self.min_offset:
            return 0
        return max(self.min_offset - self.start, 0)

    def taken(self) -> ExportQueue:
        """Return the part of the queue that is taken."""
        first = max(self.min_offset, self.start or 0, self.from_offset or 0)
        last = self.max_offset if self.to_offset is None else min(self.max_offset, self.to_offset)
        return ExportQueue(
            broker_name=self.broker_name,
            queue_id=self.queue_id,
            from_offset=first,
            to_offset=max(first, last),
            min_offset=self.min_offset,
            max_offset=self.max_offset,
            missing_rows=self.missing_rows,
            topic_id=self.topic_id,
            broker_started_at=self.broker_started_at,
            latest_stored_at=self.latest_stored_at,
            lost=self.lost,
        )


def partitions_of(ranges: Iterable[ExportRange], partition_rows: int) -> list[ExportPartition]:
    """Return partitions of about the same size, of *partition_rows* at most, in order.

    Small ranges are packed together, large ones are split, empty ones are left out.
    """
    filled = [a_range for a_range in ranges if a_range.rows]
    rows = sum(a_range.rows for a_range in filled)
    count = -(-rows // partition_rows)
    share = -(-rows // count) if count else 0
    return [
        ExportPartition(index=index, rows=sum(r.rows for r in pack), ranges=pack)
        for index, pack in enumerate(_packs(filled, share))
    ]


def _packs(ranges: Iterable[ExportRange], share: int) -> Iterator[list[ExportRange]]:
    pack: list[ExportRange] = []
    room = share
    for whole in ranges:
        at = whole.from_offset
        while at < whole.to_offset:
            end = min(at + room, whole.to_offset)
            pack.append(_part(whole, at, end))
            room -= end - at
            at = end
            if not room or len(pack) == EXPORT_RANGE_COUNT_MAX:
                yield pack
                pack, room = [], share
    if pack:
        yield pack


def _part(whole: ExportRange, from_offset: int, to_offset: int) -> ExportRange:
    return ExportRange(
        broker_name=whole.broker_name,
        queue_id=whole.queue_id,
        from_offset=from_offset,
        to_offset=to_offset,
        topic_id=whole.topic_id,
    )
