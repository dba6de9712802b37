"""Maintain a store while it serves: flushing, checkpoints, retention, the scrub.

Each is one step of a supervised loop. A step that fails is logged, counted and retried.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from eruca_broker.core.log.retention import RetentionRules
from eruca_broker.loops.of_masters import until_demoted
from eruca_broker.loops.retention import FollowedRetention, RetentionLoop
from eruca_broker.processors.groups.lags import GroupLags
from eruca_broker.store.message_store import MessageStore
from eruca_broker.store.scrub import STEP_SECONDS, Scrub
from eruca_broker.store.tiering.scrub import SCRUB_SECONDS, TierScrub
from eruca_broker.store.tiering.tiering import Tiering
from eruca_chassis.loops import BackgroundLoop

FLUSH_SECONDS: Final = 0.5  # RocketMQ's flushIntervalCommitLog
CHECKPOINT_SECONDS: Final = 5.0  # bounds the part that recovery walks beyond a segment
CONFIG_SECONDS: Final = 1.0  # a RocketMQ that takes over after a crash would not know a newer topic
MEND_SECONDS: Final = 0.5  # a damaged queue's readers wait for it
RETENTION_SECONDS: Final = 10.0  # RocketMQ's cleanResourceInterval
ROOM_SECONDS: Final = 1.0  # between two looks for room, while writes are refused


class Upkeep:
    """The loops of one store."""

    def __init__(
        self,
        store: MessageStore,
        rules: RetentionRules | FollowedRetention,
        *,
        carry_forward: Callable[[int], Awaitable[None]],
        lags: GroupLags | None = None,
        kept_from: Callable[[], int | None] = lambda: None,
        scrub: Scrub | None = None,
        tiering: Tiering | None = None,
        tier_scrub: TierScrub | None = None,
    ) -> None:
        self._store = store
        self._checked_offset = -1  # log offset of the last checkpoint
        self._saved_version = -1  # version of the topics in the config snapshots
        self._retention = (
            rules
            if isinstance(rules, FollowedRetention)
            else RetentionLoop(
                store,
                rules,
                carry_forward,
                lags or GroupLags(store),
                kept_from=kept_from,
                tiered_to=lambda: None if tiering is None else tiering.tiered_to,
            )
        )
        self._retaining = asyncio.Lock()
        self._loops = [
            BackgroundLoop("flush", self._flush, period_seconds=FLUSH_SECONDS),
            BackgroundLoop("segments", self._prepare_next, period_seconds=FLUSH_SECONDS),
            BackgroundLoop("checkpoint", self._checkpoint, period_seconds=CHECKPOINT_SECONDS),
            BackgroundLoop(
                "projections", store.upkeep.mend_projections, period_seconds=MEND_SECONDS
            ),
            BackgroundLoop("config", self._save_config, period_seconds=CONFIG_SECONDS),
            BackgroundLoop(
                "retention", until_demoted(self._retain), period_seconds=RETENTION_SECONDS
            ),
            BackgroundLoop("room", until_demoted(self._look_for_room), period_seconds=ROOM_SECONDS),
        ]
        if scrub is not None:
            self._loops.append(BackgroundLoop("scrub", scrub.step, period_seconds=STEP_SECONDS))

        if tiering is not None:
            loop = BackgroundLoop("tier", tiering.step, period_seconds=STEP_SECONDS)
            tiering.wake = loop.wake
            self._loops.append(loop)
        if tier_scrub is not None:
            self._loops.append(
                BackgroundLoop("tier scrub", tier_scrub.step, period_seconds=SCRUB_SECONDS)
            )

    def start(self) -> None:
        """Start the loops on the running event loop."""
        for loop in self._loops:
            loop.start()

    async def stop(self) -> None:
        """Stop the loops and wait for their current steps."""
        self._store.upkeep.stop_warming()
        for loop in self._loops:
            await loop.stop()

    async def _flush(self) -> None:
        if self._store.upkeep.can_flush:
            await self._store.upkeep.flush()

    async def _prepare_next(self) -> None:
        """Prepare the next segment early; warming it takes longer than a flush."""
        if self._store.upkeep.can_flush:
            await self._store.upkeep.prepare_next_segment()

    async def _checkpoint(self) -> None:
        if self._store.upkeep.can_flush and self._store.log_max_offset != self._checked_offset:
            reached = self._store.log_max_offset
            await self._store.upkeep.checkpoint()
            await self._store.upkeep.save_config()
            self._checked_offset = reached

    async def _retain(self) -> None:
        async with self._retaining:
            await self._retention.step()

    async def _look_for_room(self) -> None:
        """Accept writes soon after there is room: senders wait for it."""
        if self._store.refusal is not None and not self._retaining.locked():
            async with self._retaining:
                await self._retention.look_for_room()

    async def _save_config(self) -> None:
        """Save the snapshots early if the topics have changed, many changes together."""
        version = self._store.state.version
        if version != self._saved_version:
            await self._store.upkeep.save_config()
            self._saved_version = version
