"""A replica that is far behind copies closed segments from the tier, and spares its master.

Two cases. Either the master still has what follows the replica's log: then the replica has proved
its lineage, and goes on fetching each second, a small run that it does not use, to say that it is
alive and how far it has come. Or the master's disk begins behind the replica's end: then the tier
is a bridge, if the replica's log is a beginning of the tier's. In both cases the replica proves its
lineage at the end, as after any doubt.

The tier is never needed: if it does not answer, the master's log is copied, for some time at least.
Only the bridge has no other way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import aclosing
from typing import Any, Final, TypeVar

import structlog

from eruca.contract.errors import ErucaError
from eruca_broker.core.log.copied_run import RefusedRunError
from eruca_broker.core.replication.epochs import EpochTable
from eruca_broker.store.message_store import MessageStore
from eruca_broker.store.tiering.copying import FAILURES, TierCopies

BEAT_SECONDS: Final = 1.0  # between two requests to the master, as while it is followed
RETRY_SECONDS: Final = 60.0  # after a failure: until then the master's log is copied

_T = TypeVar("_T")

logger = structlog.get_logger(__name__)


class _TierError(Exception):
    """The tier cannot be read now, or has other bytes; the master may be well."""

    def __init__(self, reason: Exception) -> None:
        super().__init__(str(reason))
        self.reason = reason


class CatchUp:
    """Copies from the tier for one follower.

    Args:
        store: The replica's store.
        tier: Its copies of segments.
        publish: Publishes what is confirmed of the log here.

    Attributes:
        copied_bytes: Bytes of the log that came from the tier.
    """

    def __init__(self, store: MessageStore, tier: TierCopies, publish: Callable[[], None]) -> None:
        self.copied_bytes = 0
        self._store = store
        self._tier = tier
        self._publish = publish
        self._retry_at = float("-inf")  # by the loop's clock
        self._beat_at = float("-inf")

    @property
    def may_try(self) -> bool:
        """False for a time after a failure."""
        return asyncio.get_running_loop().time() >= self._retry_at

    async def follow(
        self, master: EpochTable, confirmed: int, beat: Callable[[], Awaitable[None]]
    ) -> bool:
        """Copy what a master's log has in the tier; tell whether anything was copied.

        Args:
            master: The epochs of its log.
            confirmed: Log offset before which it has confirmed everything.
            beat: Tells the master that this replica is alive.

        Raises:
            ErucaError: The master does not answer, or writes are refused here.
        """
        store = self._store
        try:
            if not await self._beating(self._tier.look(), beat):
                return self._given_up("the tier does not answer, or has no manifest of this log")
        except _TierError as error:
            return self._given_up(error.reason)
        end = self._tier.end_for(master, confirmed)
        if end - store.log_max_offset < store.segment_bytes:
            return False
        return await self._copied(end, beat)

    async def bridge(self, confirm: Callable[[int], None]) -> bool:
        """Copy what the tier has behind the end of the log here; tell whether anything was copied.

        Args:
            confirm: Called with the log's end: all that the tier has is confirmed.

        Raises:
            ErucaError: Writes are refused here.
        """
        try:
            end = await self._tier.continues() if await self._tier.look() else None
        except FAILURES as error:
            return self._given_up(error)
        if end is None:
            return self._given_up("the tier has nothing that continues the log here")

        async def beat() -> None:
            confirm(self._store.log_max_offset)

        return await self._copied(end, beat)

    async def _copied(self, end: int, beat: Callable[[], Awaitable[None]]) -> bool:
        store, before = self._store, self.copied_bytes
        logger.info("copies segments from the tier", log_end=store.log_max_offset, end=end)
        async with aclosing(self._tier.runs(store.log_max_offset, end)) as runs:
            while True:
                try:
                    run = await self._beating(anext(runs, None), beat)
                except _TierError as error:
                    self._given_up(error.reason)
                    break
                if run is None:
                    break
                try:
                    await store.role.copy(memoryview(run), store.log_max_offset)
                except RefusedRunError as error:
                    self._given_up(error)
                    break
                self.copied_bytes += len(run)
                if asyncio.get_running_loop().time() >= self._beat_at:
                    await self._beat(beat)
                self._publish()
        logger.info("has copied from the tier", log_end=store.log_max_offset)
        return self.copied_bytes > before

    async def _beating(
        self, work: Coroutine[Any, Any, _T] | Awaitable[_T], beat: Callable[[], Awaitable[None]]
    ) -> _T:
        """Return the result of *work*; tell the master meanwhile that this replica is alive.

        Raises:
            _TierError: The work failed.
            ErucaError: The beat failed.
        """
        task = asyncio.ensure_future(work)
        try:
            while True:
                await asyncio.wait({task}, timeout=BEAT_SECONDS)
                if task.done():
                    break
                await self._beat(beat)  # its errors are the master's, and no fault of the tier
            try:
                return task.result()
            except (*FAILURES, RefusedRunError) as error:
                raise _TierError(error) from error
        finally:
            if not task.done():
                task.cancel()
                await asyncio.wait({task})

    async def _beat(self, beat: Callable[[], Awaitable[None]]) -> None:
        await beat()
        self._beat_at = asyncio.get_running_loop().time() + BEAT_SECONDS

    def _given_up(self, why: Exception | str) -> bool:
        self._retry_at = asyncio.get_running_loop().time() + RETRY_SECONDS
        reason = why.detail if isinstance(why, ErucaError) else str(why)
        logger.warning("goes on without the tier", reason=reason, retry_seconds=RETRY_SECONDS)
        return False
