"""Committed offsets on their way to the brokers: one request per broker and round.

A round comes every ``commit_seconds`` while there is progress. What is between the rounds is what a
crash repeats. A commit that is refused because a lock is gone changes nothing at all, so the broker
is asked at once which lock that is, and the others go with the next round.
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
        """Keep these; what could not be kept raises, and is offered again."""


class BrokerOffsets:
    """Offsets kept at the queues' brokers, under their locks' tokens."""

    def __init__(
        self,
        api: GroupApi,
        url_of: Callable[[MessageQueue], str],
        on_doubt: Callable[[str], None],
    ) -> None:
        self._api = api
        self._url_of = url_of
        self._on_doubt = on_doubt  # called with a broker that knows other locks than we do

    async def store(self, offsets: dict[HeldQueue, int]) -> None:
        """Store them, each broker's in one request."""
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
                # Its next pull tells such a queue where to go on; till then there is nothing to
                # commit, and the others are not to wait.
                _logger.warning("offsets at broker %s are left out: %s", broker_name, error)
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
    """Keeps what may be committed, and commits it in rounds."""

    def __init__(self, store: OffsetStore, seconds: float) -> None:
        self._store = store
        self._seconds = seconds
        self._outages = Outages(
            _logger, failed="%s are not committed for now: %s", over="%s are committed again"
        )
        self._dirty: set[HeldQueue] = set()
        self._news = asyncio.Event()
        self._turn = asyncio.Lock()  # or what was sent first might arrive last, and go back

    def note(self, held: HeldQueue) -> None:
        """Note that a queue may be committed further."""
        if held not in self._dirty:
            self._dirty.add(held)
            self._news.set()

    def forget(self, held: HeldQueue) -> None:
        """Commit a queue no more."""
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
        """Commit what there is, once what is under way has been."""
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
