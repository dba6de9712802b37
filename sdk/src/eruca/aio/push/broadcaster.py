"""Broadcasting: this member reads every queue of its topics, and keeps its own offsets.

There is nothing to divide and nothing to lock. A queue that appears while the member runs is read
from where it would have been, had it been there (see :mod:`eruca.core.consuming.pull_positions`);
one that goes away is forgotten, but for its offset.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime

from eruca.aio.cluster.routes import Routes
from eruca.aio.push.background import Background
from eruca.aio.push.held_queue import HeldQueue
from eruca.aio.push.membership import Membership
from eruca.aio.push.offset_file import OffsetFile
from eruca.aio.push.reader import Reader
from eruca.aio.push.rounds import KnownQueues, Rounds
from eruca.contract.errors import ErucaError
from eruca.core.consuming.push_settings import PushSettings
from eruca.core.messages.message_queue import MessageQueue

_logger = logging.getLogger(__name__)


class Broadcaster:
    """The queues of one broadcasting member.

    Args:
        settings: The consumer's.
        topics: What it subscribes to.
        routes: The client's.
        reader: Reads the queues.
        offsets: Where it was left.
        background: Runs what goes on in the background.
    """

    def __init__(
        self,
        settings: PushSettings,
        topics: Iterable[str],
        *,
        routes: Routes,
        reader: Reader,
        offsets: OffsetFile,
        background: Background,
    ) -> None:
        self._settings = settings
        self._reader = reader
        self._offsets = offsets
        self._background = background
        self._membership: Membership | None = None
        self._held: dict[MessageQueue, HeldQueue] = {}
        self._met: set[str] = set()  # topics whose queues have been seen: others come later
        self._began_at = datetime.now(UTC)
        self._rounds = Rounds(topics, routes, self._round)

    @property
    def held(self) -> Mapping[MessageQueue, HeldQueue]:
        """What is read."""
        return self._held

    @property
    def queues(self) -> list[MessageQueue]:
        """What is read, sorted."""
        return sorted(self._held.copy())  # other threads ask, too, while queues come and go

    def start(self, membership: Membership) -> None:
        """Begin, as a member."""
        self._membership = membership
        self._rounds.start(self._background, "eruca broadcasting")

    def kick(self) -> None:
        """Have a round soon."""
        self._rounds.ask()

    def give_up(self) -> None:
        """Begin no further batch: we are about to leave."""
        self._rounds.end()
        for held in self._held.values():
            held.is_draining = True

    async def stop(self) -> None:
        """Finish what is in hand of every queue."""
        self._rounds.end()
        await asyncio.gather(*map(self._reader.finish, self._held.values()))
        try:
            await self._offsets.store(
                {held: held.process.commit_offset for held in self._held.values() if held.is_begun}
            )
        except ErucaError as error:
            _logger.error("the last messages will be handled again: %s", error)
        for held in self._held.values():
            self._reader.drop(held)
        self._held.clear()

    async def _round(self, known: KnownQueues) -> None:
        assert self._membership is not None
        wanted = {queue for queues in known.queues.values() for queue in queues}
        wanted |= {queue for queue in self._held if queue.topic in known.unknown}
        self._membership.keep({queue.broker_name for queue in wanted})
        for queue in [queue for queue in self._held if queue not in wanted]:
            held = self._held.pop(queue)
            self._offsets.note(held)
            self._reader.drop(held)
        fresh = [self._hold(queue) for queue in sorted(wanted - self._held.keys())]
        self._met |= {queue.topic for queue in wanted}
        self._held |= {held.queue: held for held in fresh}
        if fresh:
            await self._reader.begin(fresh)

    def _hold(self, queue: MessageQueue) -> HeldQueue:
        return self._reader.hold(
            queue,
            self._offsets.offsets.get(queue),
            start=self._settings.start or "latest",
            came_after=self._began_at if queue.topic in self._met else None,
        )
