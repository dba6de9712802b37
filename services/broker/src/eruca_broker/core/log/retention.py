"""Retention: how many of the oldest segments go, what keeps them, and whether writes are taken.

Rules, as RocketMQ's: in the hours named by ``delete_hours``, or above ``disk_high`` at any hour,
segments that have not been written to for ``reserved_hours`` are deleted. Above ``disk_forced``
the oldest go whatever their age, one round after the other, until it is below again. Above
``disk_refuse`` writes are refused as well, until it is down at ``disk_forced``. The last segment
never goes, and none goes before an older one.

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
    disk_high: float = 0.75  # used part of the disk: delete at any hour, by age
    disk_forced: float = 0.85  # … delete whatever the age
    disk_refuse: float = 0.90  # … and refuse writes

    def __post_init__(self) -> None:
        assert 0 < self.disk_high <= self.disk_forced <= self.disk_refuse <= 1


@dataclass(frozen=True, slots=True)
class RetentionDecision:
    """The decision for this moment."""

    delete_count: int  # of the oldest segments
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
    """Return how many of the oldest segments to delete, and whether writes are refused.

    Args:
        rules: What is kept.
        written_at: When each segment was last written to, oldest first, seconds since the epoch.
        now: The same clock's time.
        hour: Of the day, local time.
        disk_used: Used part of the disk, 0 to 1.
        was_refusing: Whether writes are refused because of the disk so far.
    """
    candidates = written_at[:-1][:SEGMENTS_PER_ROUND_MAX]
    count = 0
    if disk_used > rules.disk_forced:
        count = len(candidates)
    elif hour in rules.delete_hours or disk_used > rules.disk_high:
        oldest_kept = now - rules.reserved_hours * 3600
        while count < len(candidates) and candidates[count] <= oldest_kept:
            count += 1
    limit = rules.disk_forced if was_refusing else rules.disk_refuse
    return RetentionDecision(count, disk_used > limit)


def oldest_needed(
    *, visible_offset: int, snapshot_offset: int, waiting: Iterable[int | None]
) -> int:
    """Return the log offset before which nothing is needed any more.

    Args:
        visible_offset: What lies behind it has not been read by anyone.
        snapshot_offset: Where the latest whole snapshot of the state begins.
        waiting: Where the oldest messages lie that wait for their time or for a decision; None
            where none waits.
    """
    oldest = (offset for offset in waiting if offset is not None)
    return min(visible_offset, snapshot_offset, *oldest)
