"""What keeps a store in order while it serves: flushing, checkpoints, retention, the scrub.

Each is one step of a supervised loop; a step that fails is logged, counted and tried again.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Final

import structlog

from eruca.contract.errors import DiskFullError, ErucaError
from eruca_broker.core.retention import RetentionRules, decide
from eruca_broker.processors.group_lags import GroupLags
from eruca_broker.store.message_store import MessageStore
from eruca_broker.store.scrub import STEP_SECONDS, Scrub
from eruca_chassis.loops import BackgroundLoop

FLUSH_SECONDS: Final = 0.5  # RocketMQ's flushIntervalCommitLog
CHECKPOINT_SECONDS: Final = 5.0  # bounds what recovery walks beyond a segment
CONFIG_SECONDS: Final = 1.0  # RocketMQ taking over after a crash would not know a newer topic
RETENTION_SECONDS: Final = 10.0  # RocketMQ's cleanResourceInterval
_PAUSE_BETWEEN_DELETIONS_SECONDS: Final = 0.1  # RocketMQ's: deleting a gigabyte stalls a disk
_TURN_SECONDS: Final = 0.005  # of queues' deletions, before others have their turn
_RETRY_AFTER_SECONDS: Final = 10.0

logger = structlog.get_logger(__name__)


class Upkeep:
    """The loops of one store."""

    def __init__(
        self,
        store: MessageStore,
        rules: RetentionRules,
        *,
        carry_forward: Callable[[int], Awaitable[None]],
        lags: GroupLags | None = None,
        scrub: Scrub | None = None,
    ) -> None:
        self._store = store
        self._rules = rules
        self._carry_forward = carry_forward  # what the log before an offset holds and is needed
        self._lags = lags or GroupLags(store)
        self._checked_offset = -1  # of the log, at the last checkpoint
        self._saved_version = -1  # of the topics in the config snapshots
        self._loops = [
            BackgroundLoop("flush", self._flush, period_seconds=FLUSH_SECONDS),
            BackgroundLoop("checkpoint", self._checkpoint, period_seconds=CHECKPOINT_SECONDS),
            BackgroundLoop("config", self._save_config, period_seconds=CONFIG_SECONDS),
            BackgroundLoop("retention", self._retain, period_seconds=RETENTION_SECONDS),
        ]
        if scrub is not None:
            self._loops.append(BackgroundLoop("scrub", scrub.step, period_seconds=STEP_SECONDS))

    def start(self) -> None:
        """Start the loops on the running event loop."""
        for loop in self._loops:
            loop.start()

    async def stop(self) -> None:
        """Stop the loops and wait for the steps they are in."""
        for loop in self._loops:
            await loop.stop()

    async def _flush(self) -> None:
        if self._store.can_flush:
            await self._store.flush()
            await self._store.prepare_next_segment()

    async def _checkpoint(self) -> None:
        if self._store.can_flush and self._store.log_max_offset != self._checked_offset:
            reached = self._store.log_max_offset
            await self._store.checkpoint()
            await self._store.save_config()
            self._checked_offset = reached

    async def _save_config(self) -> None:
        """Save the snapshots early where the topics have changed, many changes together."""
        version = self._store.state.version
        if version != self._saved_version:
            await self._store.save_config()
            self._saved_version = version

    async def _retain(self) -> None:
        store = self._store
        used = store.disk_used_ratio
        is_full = isinstance(store.refusal, DiskFullError)
        decision = decide(
            self._rules,
            written_at=store.segment_ages(),
            now=time.time(),
            hour=datetime.now().astimezone().hour,
            disk_used=used,
            was_refusing=is_full,
        )
        if not (is_full and decision.is_refusing):
            # Also where something else is short, or that would be told for ever.
            await store.probe_disk()
        if decision.is_refusing and store.refusal is None:
            store.refusal = DiskFullError(
                f"the disk is {used:.0%} full; writes are refused above "
                f"{self._rules.disk_refuse:.0%}",
                retry_after_seconds=_RETRY_AFTER_SECONDS,
            )
        if decision.delete_count:
            await self._delete(decision.delete_count)

    async def _delete(self, count: int) -> None:
        refusal: ErucaError | None = None
        end = self._store.segment_ends()[count - 1]
        try:
            await self._carry_forward(end)
        except ErucaError as error:
            refusal = error  # what waits keeps its segments; those before may be the room it needs
        needed_from = await self._store.needed_from()
        unread = await self._lags.unread_before(min(end, needed_from))
        try:
            await self._delete_segments(count, needed_from)
        finally:
            await self._lags.tell_lost(unread)
        if refusal is not None:
            raise refusal

    async def _delete_segments(self, count: int, needed_from: int) -> None:
        turn_ends = time.monotonic() + _TURN_SECONDS
        for min_offset in self._store.deletion(count, needed_from):
            if min_offset is not None:
                logger.info("segment deleted", log_min_offset=min_offset)
                await self._store.let_deleted_go()
                await asyncio.sleep(_PAUSE_BETWEEN_DELETIONS_SECONDS)
            elif time.monotonic() < turn_ends:
                continue
            else:
                await asyncio.sleep(0)
            turn_ends = time.monotonic() + _TURN_SECONDS
