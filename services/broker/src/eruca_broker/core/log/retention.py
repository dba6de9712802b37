"""Retention: the number of oldest segments to delete, and whether writes are accepted.

The rules are RocketMQ's. Segments that have not been written for ``reserved_hours`` are deleted, in
the hours listed in ``delete_hours``, or at any hour if disk use is above ``disk_high_ratio``. Above
``disk_forced_ratio`` the oldest segments are deleted regardless of age, round after round, until
disk use is below it. Above ``disk_refuse_ratio`` writes are refused too, until disk use is at
``disk_forced_ratio`` again. The last segment is never deleted, and none before an older one.

A master keeps the segments that another replica still has to copy, up to a number of bytes. Above
``disk_forced_ratio`` it keeps none: the room of the disk comes first.

Source: RocketMQ 5.3, ``DefaultMessageStore.CleanCommitLogService``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

SEGMENTS_PER_ROUND_MAX: Final = 10  # RocketMQ's deleteFileBatchMax


@dataclass(frozen=True, slots=True)
class RetentionRules:
    """The rules of retention."""

    reserved_hours: float = 72.0  # since a segment was last written to
    delete_hours: frozenset[int] = frozenset({4})  # of the day, local time
    disk_high_ratio: float = 0.75  # used part of the disk: delete at any hour, by age
    disk_forced_ratio: float = 0.85  # … delete regardless of age
    disk_refuse_ratio: float = 0.90  # … and refuse writes

    def __post_init__(self) -> None:
        assert 0 < self.disk_high_ratio <= self.disk_forced_ratio <= self.disk_refuse_ratio <= 1


@dataclass(frozen=True, slots=True)
class RetentionDecision:
    """The decision for this moment."""

    delete_count: int  # of the oldest segments
    is_forced: bool  # regardless of age, and of replicas that need them
    is_refusing: bool  # writes


def decide(
    rules: RetentionRules,
    *,
    written_at: Sequence[float],
    now: float,
    hour: int,
    disk_used: float,
    was_refusing: bool,
) -> RetentionDecision:
    """Return the number of oldest segments to delete, and whether writes are refused.

    Args:
        rules: The rules of retention.
        written_at: When each segment was last written, oldest first, seconds since the epoch.
        now: The same clock's time.
        hour: Of the day, local time.
        disk_used: Used part of the disk, 0 to 1.
        was_refusing: Whether writes are refused because of the disk so far.
    """
    candidates = written_at[:-1][:SEGMENTS_PER_ROUND_MAX]
    count = 0
    is_forced = disk_used > rules.disk_forced_ratio
    if is_forced:
        count = len(candidates)
    elif hour in rules.delete_hours or disk_used > rules.disk_high_ratio:
        oldest_kept = now - rules.reserved_hours * 3600
        while count < len(candidates) and candidates[count] <= oldest_kept:
            count += 1
    limit = rules.disk_forced_ratio if was_refusing else rules.disk_refuse_ratio
    return RetentionDecision(count, is_forced, disk_used > limit)


def kept_from(ends: Iterable[int | None], *, log_end: int, keep_bytes: int) -> int | None:
    """Return the log offset from which other replicas need the log; None: they have everything.

    Args:
        ends: For each other replica, the log offset before which it has everything; None: it does
            not follow, so nobody knows.
        log_end: Log offset after the last record.
        keep_bytes: Bytes before the end that are kept for them at most.
    """
    needed = min((end or 0 for end in ends), default=log_end)
    return None if needed >= log_end else max(needed, log_end - keep_bytes, 0)


def oldest_needed(
    *, visible_offset: int, snapshot_offset: int, waiting: Iterable[int | None]
) -> int:
    """Return the log offset before which nothing is needed any more.

    Args:
        visible_offset: Log offset behind which no reader has read.
        snapshot_offset: The beginning of the latest whole snapshot of the state.
        waiting: Log offsets of the oldest messages that wait for their time or for a decision; None
            if there is none.
    """
    oldest = (offset for offset in waiting if offset is not None)
    return min(visible_offset, snapshot_offset, *oldest)
