"""Broadcasting: this member reads every queue of its topics and stores its own offsets.

Broadcasting needs no allocation and no locks. A queue that appears while the member runs is read as
if it had existed from the start (see :mod:`eruca.core.consuming.pull_positions`). A queue that
disappears is dropped, but its offset is kept.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Iterable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from eruca.aio.cluster.outages import Outages
from eruca.aio.push.background import Background
from eruca.aio.push.held_queue import HeldQueue
from eruca.aio.push.membership import Membership
from eruca.aio.push.offset_file import OffsetFile
from eruca.aio.push.reader import Reader
from eruca.aio.push.rounds import LOOK_SECONDS, KnownQueues, Rounds
from eruca.contract.errors import ErucaError
from eruca.core.consuming.push_settings import PushSettings
from eruca.core.messages.message_queue import MessageQueue

if TYPE_CHECKING:
    from eruca.aio.cluster.client_context import ClientContext

_logger = logging.getLogger(__name__)


class Broadcaster:
    """The queues of one broadcasting member.

    Args:
        settings: The consumer's.
        topics: Its subscribed topics.
        context: The client's.
        reader: Reads the queues.
        offsets: The stored offsets.
        background: Runs background tasks.
    """

    def __init__(
        self,
        settings: PushSettings,
        topics: Iterable[str],
        *,
        context: ClientContext,
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
        self._met: set[str] = set()  # topics with known queues: further queues are new
        self._is_start_due = settings.start is not None  # the warning about an ignored start is due
        self._began_at = datetime.now(UTC)
        self._context = context
        self._rounds = Rounds(topics, context.routes, self._round)
        self._outages = Outages(
            _logger,
            failed="queues of %s cannot be read now: %s",
            over="queues of %s are read again",
            level=logging.WARNING,
        )

    @property
    def held(self) -> Mapping[MessageQueue, HeldQueue]:
        """The queues that this member reads."""
        return self._held

    @property
    def queues(self) -> list[MessageQueue]:
        """The queues that this member reads, sorted."""
        return sorted(self._held.copy())  # other threads read this while queues come and go

    def start(self, membership: Membership) -> None:
        """Start as a member."""
        self._membership = membership
        self._rounds.start(self._background, "eruca broadcasting")

    def kick(self) -> None:
        """Schedule a round."""
        self._rounds.ask()

    # No other member reads these queues, so there are no locks, and a session's end loses nothing.

    def locks_at(self, broker_name: str) -> dict[MessageQueue, int]:
        """Return no lock."""
        return {}

    def lose_broker(self, broker_name: str) -> None:
        """Keep the broker's queues."""

    def lose_locks(self, tokens: Mapping[MessageQueue, int]) -> None:
        """Keep all queues."""

    def lose(self, lost: Collection[HeldQueue]) -> None:
        """Keep all queues."""

    def give_up(self) -> None:
        """Begin no further batch, because the consumer is about to leave."""
        self._rounds.end()
        for held in self._held.values():
            held.is_draining = True

    async def stop(self) -> None:
        """Finish the running batches of every queue."""
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
        topic_ids = await self._topic_ids(sorted(wanted - self._held.keys()))
        fresh = [self._hold(queue, topic_id) for queue, topic_id in topic_ids.items()]
        self._met |= {queue.topic for queue in wanted}
        self._held |= {held.queue: held for held in fresh}
        if fresh:
            await self._reader.begin(fresh)

    async def _topic_ids(self, queues: Iterable[MessageQueue]) -> dict[MessageQueue, str | None]:
        """Return the topic ids of the queues whose brokers answer.

        The others are requested again later, because their offsets are valid only for the same
        topic id.
        """
        by_broker: dict[tuple[str, str], list[MessageQueue]] = {}
        for queue in queues:
            by_broker.setdefault((queue.broker_name, queue.topic), []).append(queue)
        topic_ids: dict[MessageQueue, str | None] = {}
        for (broker_name, topic), its in by_broker.items():
            try:
                url = (await self._context.routes.subscribe_view(topic)).url_of(its[0])
                told = await self._context.broker_api.topic_queues(url, topic)
            except ErucaError as error:
                self._outages.failed(f"{topic} at {broker_name}", error)
                asyncio.get_running_loop().call_later(LOOK_SECONDS, self._rounds.ask)
            else:
                self._outages.answered(f"{topic} at {broker_name}")
                topic_ids |= dict.fromkeys(its, told.topic_id)
        return topic_ids

    def _hold(self, queue: MessageQueue, topic_id: str | None) -> HeldQueue:
        if self._offsets.forget_another(queue, topic_id):
            return self._reader.hold(queue, None, start="earliest")
        offset = self._offsets.offsets.get(queue)
        if offset is not None and queue.topic not in self._met:
            self._warn_of_unused_start(queue, offset)
        return self._reader.hold(
            queue,
            offset,
            start=self._settings.start or "latest",
            came_after=self._began_at if queue.topic in self._met else None,
        )

    def _warn_of_unused_start(self, queue: MessageQueue, offset: int) -> None:
        """Warn once if this client's stored offsets override the given start."""
        if not self._is_start_due:
            return
        self._is_start_due = False
        _logger.warning(
            "start=%s is ignored: this client has stored offsets in %s. It continues at offset"
            " %d of %s. To start again, stop it and delete that file",
            *(self._settings.start, self._offsets.path, offset, queue),
        )
