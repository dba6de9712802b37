"""Retention: delete the oldest segments if they are old, or if the disk is full.

Their content that is still needed is carried forward first. Messages that groups have not read are
logged.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Final

import structlog

from eruca.contract.errors import DiskFullError, ErucaError
from eruca_broker.core.log.retention import RetentionDecision, RetentionRules, decide
from eruca_broker.processors.groups.lags import GroupLags
from eruca_broker.store.message_store import MessageStore

_PAUSE_BETWEEN_DELETIONS_SECONDS: Final = 0.1  # RocketMQ's: deleting a gigabyte stalls a disk
_TURN_SECONDS: Final = 0.005  # of queues' deletions, before others have their turn
_RETRY_AFTER_SECONDS: Final = 10.0

logger = structlog.get_logger(__name__)


class FollowedRetention:
    """The retention of a replica: it deletes what its master no longer has, nothing by itself.

    The master has carried forward what is still needed of that, and has a later snapshot. A replica
    that is far behind has neither yet, so it keeps what it needs until it has copied them.

    Args:
        store: The replica's store.
        min_offset: Returns the log offset of the master's first record; 0: unknown.
    """

    def __init__(self, store: MessageStore, min_offset: Callable[[], int]) -> None:
        self._store = store
        self._min_offset = min_offset

    async def step(self) -> None:
        """Find out whether a full disk has room again, and delete segments.

        Raises:
            StoreFailedError: The disk failed to flush the log.
            OSError: A segment could not be deleted.
        """
        await self.look_for_room()
        min_offset, retention = self._min_offset(), self._store.retention
        count = sum(end <= min_offset for end in retention.segment_ends())
        if count:
            needed_from = min(min_offset, await retention.needed_from())
            await _delete_segments(self._store, count, needed_from)

    async def look_for_room(self) -> None:
        """Accept writes again if what they lacked is there.

        Raises:
            StoreFailedError: The disk failed to flush the log.
        """
        await self._store.upkeep.probe_disk()


class RetentionLoop:
    """Applies the rules to one store, a round at each step.

    Args:
        store: The store whose segments are deleted.
        rules: The rules of retention.
        carry_forward: Stores the content before an offset again that is still needed.
        lags: Know the unread messages of groups.
        kept_from: Returns the log offset from which other replicas need the log; None: they do not.
        tiered_to: Returns the log offset before which the tier has everything; None: there is no
            tier. What it lacks is never deleted, whatever the disk, nor is its last segment.
    """

    def __init__(
        self,
        store: MessageStore,
        rules: RetentionRules,
        carry_forward: Callable[[int], Awaitable[None]],
        lags: GroupLags,
        *,
        kept_from: Callable[[], int | None] = lambda: None,
        tiered_to: Callable[[], int | None] = lambda: None,
    ) -> None:
        self._store = store
        self._rules = rules
        self._tiered_to = tiered_to
        self._is_waiting = False  # segments that would be deleted but for the tier
        self._kept_from = kept_from
        self._is_keeping = False  # segments that would be deleted but for other replicas
        self._carry_forward = carry_forward
        self._lags = lags

    async def step(self) -> None:
        """Apply the rules now: refuse writes, accept them again, delete segments.

        Raises:
            ErucaError: Waiting messages could not be carried forward, and keep their segments.
            OSError: A segment could not be deleted.
        """
        decision = await self._looked()
        count = decision.delete_count
        if not decision.is_forced:
            count = self._without_needed(count)
        count = self._in_tier(count)
        if count:
            await self._delete(count)

    async def look_for_room(self) -> None:
        """Refuse writes or accept them again, as the disk is now; delete nothing.

        Raises:
            StoreFailedError: The disk failed to flush the log.
        """
        await self._looked()

    async def _looked(self) -> RetentionDecision:
        store = self._store
        used = store.disk_used_ratio
        is_full = isinstance(store.refusal, DiskFullError)
        decision = decide(
            self._rules,
            written_at=store.retention.written_at(),
            now=time.time(),
            hour=datetime.now().astimezone().hour,
            disk_used=used,
            was_refusing=is_full,
        )
        if not (is_full and decision.is_refusing):
            # Also if another resource is exhausted, or this would be logged for ever.
            await store.upkeep.probe_disk()
        if decision.is_refusing and store.refusal is None:
            store.refusal = DiskFullError(
                f"the disk is {used:.0%} full; writes are refused above "
                f"{self._rules.disk_refuse_ratio:.0%}",
                retry_after_seconds=_RETRY_AFTER_SECONDS,
            )
        return decision

    def _without_needed(self, count: int) -> int:
        """Return how many of *count* segments no other replica needs."""
        needed_from, ends = self._kept_from(), self._store.retention.segment_ends()
        if needed_from is None:
            return count
        allowed = sum(end <= needed_from for end in ends[:count])
        is_keeping, self._is_keeping = self._is_keeping, allowed < count
        if self._is_keeping and not is_keeping:
            logger.info(
                "segments kept for replicas", count=count - allowed, needed_from=needed_from
            )
        return allowed

    def _in_tier(self, count: int) -> int:
        """Return how many of *count* segments the tier has, without the last one that it has.

        With that one, a replica that comes from the tier proves that its log is this one's.
        """
        tiered_to = self._tiered_to()
        if tiered_to is None:
            return count
        ends = self._store.retention.segment_ends()[:count]
        lacking = sum(end > tiered_to for end in ends)
        was_waiting, self._is_waiting = self._is_waiting, lacking > 0
        if self._is_waiting and not was_waiting:
            logger.warning(
                "segments kept until the tier has them", count=lacking, tiered_to=tiered_to
            )
        return sum(end < tiered_to for end in ends)

    async def _delete(self, count: int) -> None:
        refusal: ErucaError | None = None
        retention = self._store.retention
        end = retention.segment_ends()[count - 1]
        try:
            await self._carry_forward(end)
        except ErucaError as error:
            # Waiting messages keep their segments; deleting earlier ones may make room for them.
            refusal = error
        needed_from = await retention.needed_from()
        unread = await self._lags.unread_before(min(end, needed_from))
        try:
            await _delete_segments(self._store, count, needed_from)
        finally:
            await self._lags.tell_lost(unread)
        if refusal is not None:
            raise refusal


async def _delete_segments(store: MessageStore, count: int, needed_from: int) -> None:
    retention = store.retention
    turn_ends = time.monotonic() + _TURN_SECONDS
    for min_offset in retention.deletion(count, needed_from):
        if min_offset is not None:
            logger.info("segment deleted", log_min_offset=min_offset)
            await retention.let_deleted_go()
            await asyncio.sleep(_PAUSE_BETWEEN_DELETIONS_SECONDS)
        elif time.monotonic() < turn_ends:
            continue
        else:
            await asyncio.sleep(0)
        turn_ends = time.monotonic() + _TURN_SECONDS
