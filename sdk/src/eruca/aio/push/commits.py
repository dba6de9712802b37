"""Commit offsets at the brokers: one request per broker and round.

A round starts every ``commit_seconds`` while there is progress. A crash repeats the messages since
the last round. If a lock is lost, the broker refuses the whole commit. Then the client asks the
broker at once which lock is lost, and the next round commits the other offsets.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from itertools import islice
from typing import Final, Protocol

from eruca.aio.cluster.group_api import GroupApi
from eruca.aio.cluster.outages import Outages
from eruca.aio.push.held_queue import HeldQueue
from eruca.contract.errors import ErucaError, MemberNotFoundError, StaleLockError
from eruca.contract.groups import OffsetCommit, OffsetCommits
from eruca.contract.limits import OFFSET_COUNT_MAX
from eruca.core.consuming.refused_queues import refused_places
from eruca.core.messages.message_queue import MessageQueue

_AGAIN_SECONDS: Final = 1.0  # after a failure, at least

_logger = logging.getLogger(__name__)


class OffsetStore(Protocol):
    """A store of committed offsets."""

    async def store(self, offsets: dict[HeldQueue, int]) -> None:
        """Store *offsets*; on an error, the caller offers the missing ones again."""


class BrokerOffsets:
    """Offsets stored at the queues' brokers, under the tokens of their locks."""

    def __init__(
        self,
        api: GroupApi,
        url_of: Callable[[MessageQueue], str],
        on_doubt: Callable[[str], None],
    ) -> None:
        self._api = api
        self._url_of = url_of
        self._on_doubt = on_doubt  # called with a broker that refuses a lock's token

    async def store(self, offsets: dict[HeldQueue, int]) -> None:
        """Store *offsets* with one request per broker."""
        by_broker: dict[str, dict[HeldQueue, int]] = {}
        for held, offset in offsets.items():
            by_broker.setdefault(held.queue.broker_name, {})[held] = offset
        outcomes = await asyncio.gather(
            *(self._store_at(name, its) for name, its in by_broker.items()),
            return_exceptions=True,
        )
        for outcome in outcomes:
            if outcome is not None:
                raise outcome

    async def _store_at(self, broker_name: str, offsets: dict[HeldQueue, int]) -> None:
        left = dict(offsets)
        while left:
            part = dict(islice(left.items(), OFFSET_COUNT_MAX))
            try:
                await self._commit(part)
                done = list(part)
            except (StaleLockError, MemberNotFoundError):
                self._on_doubt(broker_name)
                raise
            except ErucaError as error:
                done = [list(part)[place] for place in refused_places(error, len(part))]
                if not done:
                    raise
                # The queue's next pull returns the new offset. Until then there is nothing to
                # commit for it, and the other queues must not wait.
                _logger.warning("skipped committing offsets at broker %s: %s", broker_name, error)
            for held in done:
                held.committed = left.pop(held)

    async def _commit(self, offsets: Mapping[HeldQueue, int]) -> None:
        commits = OffsetCommits(
            offsets=[
                OffsetCommit(
                    topic=held.queue.topic,
                    queue_id=held.queue.queue_id,
                    offset=offset,
                    token=held.token,
                )
                for held, offset in offsets.items()
            ],
            client_id=self._api.client_id,
            incarnation=self._api.incarnation,
        )
        await self._api.commit(self._url_of(next(iter(offsets)).queue), commits)


class Commits:
    """Collects offsets that may be committed, and commits them in rounds."""

    def __init__(self, store: OffsetStore, seconds: float) -> None:
        self._store = store
        self._seconds = seconds
        self._outages = Outages(
            _logger, failed="committing %s failed; retrying: %s", over="%s are committed again"
        )
        self._dirty: set[HeldQueue] = set()
        self._news = asyncio.Event()
        self._turn = asyncio.Lock()  # prevents that an older commit overwrites a newer one

    def note(self, held: HeldQueue) -> None:
        """Record that a queue has an offset to commit."""
        if held not in self._dirty:
            self._dirty.add(held)
            self._news.set()

    def forget(self, held: HeldQueue) -> None:
        """Stop committing for a queue."""
        self._dirty.discard(held)

    async def run(self) -> None:
        """Commit in rounds, for ever."""
        while True:
            await self._news.wait()
            self._news.clear()
            try:
                await self.flush()
            except ErucaError as error:
                self._outages.failed("offsets", error)
                self._news.set()
                await asyncio.sleep(max(self._seconds, _AGAIN_SECONDS))
            else:
                self._outages.answered("offsets")
                await asyncio.sleep(self._seconds)

    async def flush(self) -> None:
        """Commit everything recorded, after the commit that is under way."""
        async with self._turn:
            await self._flush()

    async def _flush(self) -> None:
        dirty, self._dirty = self._dirty, set()
        offsets = {
            held: held.process.commit_offset
            for held in dirty
            if held.is_begun and not held.is_dropped
        }
        offsets = {held: offset for held, offset in offsets.items() if held.committed != offset}
        if not offsets:
            return
        try:
            await self._store.store(offsets)
        except BaseException:
            for held in offsets:
                if not held.is_dropped:
                    self.note(held)
            raise
