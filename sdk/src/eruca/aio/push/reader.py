"""Read the held queues: from the brokers to the runner, and offsets back.

If a queue ends before the next offset, its topic was deleted and created again, or its broker lost
its log's tail. In clustering, the lock of a recreated queue contains its start. So only the lost
tail remains, and reading continues at the end. In broadcasting, reading starts at the queue's
beginning. It may handle messages again but skips none.

Concurrency rule: the event loop's.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

from eruca.aio.pulling.broker_fetcher import BrokerFetcher, Prefetch
from eruca.aio.push.background import Background
from eruca.aio.push.calling import Outcome, tell, tell_one
from eruca.aio.push.commits import Commits
from eruca.aio.push.held_queue import HeldQueue
from eruca.core.consuming.concurrent_result import AGAIN_SECONDS
from eruca.core.consuming.consume_status import ConsumeStatus
from eruca.core.consuming.flow_control import FlowLimits
from eruca.core.consuming.pull_positions import StartPosition
from eruca.core.consuming.pull_settings import PullSettings
from eruca.core.consuming.push_settings import PushSettings
from eruca.core.consuming.session import Session
from eruca.core.filters.tag_expression import Subscription
from eruca.core.messages.message_queue import MessageQueue
from eruca.core.messages.received_message import ReceivedMessage

if TYPE_CHECKING:
    from eruca.aio.cluster.client_context import ClientContext

# Makes messages dead letters; returns those for which that was not confirmed.
Bury: TypeAlias = Callable[
    [HeldQueue, Sequence[ReceivedMessage], Outcome], Awaitable[list[ReceivedMessage]]
]

_DAMAGED: Final = Outcome(ConsumeStatus.RECONSUME_LATER, "damaged")

_logger = logging.getLogger(__name__)


class Runner(Protocol):
    """A dispatcher of messages to handlers, in order or not."""

    def add(self, held: HeldQueue) -> None:
        """Start a queue."""

    def put(self, held: HeldQueue, messages: list[ReceivedMessage]) -> None:
        """Hand out *messages*."""

    def restart(self, held: HeldQueue) -> None:
        """Drop the queue's messages; running batches do not count."""

    def pause(self, held: HeldQueue) -> None:
        """Hand out nothing from a queue until it is resumed."""

    def resume(self, held: HeldQueue) -> None:
        """Hand out a paused queue again."""

    async def drain(self, held: HeldQueue) -> None:
        """Begin no further batch of a queue; return when none is running."""

    def drop(self, held: HeldQueue) -> None:
        """Ignore all later results of a queue."""

    async def close(self) -> None:
        """Cancel the running handlers."""


class Reader:
    """Reads the queues of one consumer.

    Args:
        context: The client's; it provides routes and transports.
        settings: The consumer's.
        subscriptions: By topic, the retry topic's included.
        runner: Hands out messages.
        commits: Receives offsets.
        background: Runs background tasks.
        bury: Makes dead letters; None in broadcasting.
    """

    def __init__(
        self,
        context: ClientContext,
        settings: PushSettings,
        subscriptions: Mapping[str, Subscription],
        *,
        runner: Runner,
        commits: Commits,
        background: Background,
        bury: Bury | None,
    ) -> None:
        self._context = context
        self._settings = settings
        self._runner = runner
        self._commits = commits
        self._background = background
        self._bury = bury
        self._prefetch = Prefetch(settings.limits.queue_count_max, settings.limits.bytes_max)
        self._limits = FlowLimits(
            settings.limits.queue_count_max,
            settings.limits.queue_bytes_max,
            None if settings.ordered else settings.limits.span_max,
        )
        self._pull_settings = _pull_settings(settings, subscriptions)
        self._fetchers: dict[str, BrokerFetcher] = {}
        self.damaged_count = 0  # messages skipped because they are damaged
        self._paused: set[MessageQueue] = set()
        self._is_paused = False  # applies to all queues, later ones included

    def hold(
        self,
        queue: MessageQueue,
        offset: int | None,
        token: int | None = None,
        session: Session | None = None,
        *,
        start: StartPosition | datetime = "latest",
        came_after: datetime | None = None,
    ) -> HeldQueue:
        """Return a queue that this member holds from now on, not being read yet."""
        held = HeldQueue(
            queue,
            model=self._settings.message_model,
            limits=self._limits,
            prefetch=self._prefetch,
            intake=self,
            offset=offset,
            start=start,
            came_after=came_after,
            token=token,
            session=session,
        )
        held.is_paused = self._is_paused or queue in self._paused
        return held

    async def begin(self, helds: list[HeldQueue]) -> None:
        """Notify the program, then read these queues, unless they are lost by then."""
        await tell(self._settings.listeners.on_assigned, [held.queue for held in helds])
        for held in helds:
            if held.is_draining or held.is_dropped:
                continue
            self._runner.add(held)
            name = held.queue.broker_name
            fetcher = self._fetchers.get(name)
            if fetcher is None:
                fetcher = self._fetchers[name] = self._new_fetcher(name)
            fetcher.add(held)
        for name in {held.queue.broker_name for held in helds} & self._fetchers.keys():
            self._fetchers[name].kick()

    async def finish(self, held: HeldQueue) -> None:
        """End a queue's batches; return when none is running and the program is notified."""
        held.is_draining = True
        self._stop_pulling(held)
        await self._runner.drain(held)
        self._commits.forget(held)
        if not held.is_dropped:
            await tell(self._settings.listeners.on_revoked, [held.queue])

    def drop(self, held: HeldQueue) -> None:
        """Stop reading a queue at once."""
        self._stop_pulling(held)
        self._commits.forget(held)
        self._runner.drop(held)

    async def tell_lost(self, queues: list[MessageQueue]) -> None:
        """Notify the program that queues are lost."""
        await tell(self._settings.listeners.on_lost, queues)

    def pause(self, helds: list[HeldQueue], *, all_queues: bool) -> None:
        """Pull and hand out nothing from these queues, or from all, later ones included."""
        self._is_paused = self._is_paused or all_queues
        self._paused |= {held.queue for held in helds}
        for held in helds:
            held.is_paused = True
            self._runner.pause(held)

    def resume(self, helds: list[HeldQueue], *, all_queues: bool) -> None:
        """Undo a pause."""
        if all_queues:
            self._is_paused = False
            self._paused.clear()
        self._paused -= {held.queue for held in helds}
        for held in helds:
            held.is_paused = False
            self._runner.resume(held)
        for fetcher in self._fetchers.values():
            fetcher.kick()

    async def close(self) -> None:
        """Stop pulling."""
        for fetcher in self._fetchers.values():
            await fetcher.close()
        await self._runner.close()

    # --- what a held queue tells ------------------------------------------------------------------

    def put(self, held: HeldQueue, messages: list[ReceivedMessage]) -> None:
        """Hand out pulled messages."""
        self._runner.put(held, messages)

    def restart(self, held: HeldQueue) -> None:
        """Drop the queue's messages: its topic was deleted and created again."""
        self._runner.restart(held)

    def progressed(self, held: HeldQueue) -> None:
        """Record that the queue may have an offset to commit, and may have room."""
        if held.is_dropped:
            return
        self._commits.note(held)
        if not held.is_pulling and held.has_room(0):
            fetcher = self._fetchers.get(held.queue.broker_name)
            if fetcher is not None:
                fetcher.kick()

    def skipped(self, held: HeldQueue, message: ReceivedMessage) -> bool:
        """Report a damaged message, which no handler gets; make a dead letter in its place.

        Broadcasting has no dead letters, so nothing remains to be done.
        """
        self.damaged_count += 1
        _logger.error(
            "skipped a damaged message: %s at offset %d, %s",
            *(message.queue, message.queue_offset, message.damage),
        )
        if (listener := self._settings.listeners.on_damaged) is not None:
            self._background.start(tell_one(listener, message), "eruca listener to damage")
        if self._bury is None:
            return False
        self._background.start(self._bury_damaged(self._bury, held, message), "eruca burial")
        return True

    async def _bury_damaged(self, bury: Bury, held: HeldQueue, message: ReceivedMessage) -> None:
        """Make a dead letter that describes the damage, however long that takes.

        A queue that is handed over meanwhile has not been committed past the message. So its next
        owner makes the letter.
        """
        while not held.is_draining and not held.is_dropped:
            unsent = await bury(held, [message], _DAMAGED)
            if held.is_dropped:
                return
            if not unsent:
                held.freed(held.process.remove([message]))
                return
            await asyncio.sleep(AGAIN_SECONDS)

    def _new_fetcher(self, broker_name: str) -> BrokerFetcher:
        on_news = _no_news if self._settings.is_clustering else self._follow_starts
        return BrokerFetcher(
            self._context, broker_name, self._pull_settings, self._prefetch, on_news=on_news
        )

    def _follow_starts(self) -> None:
        """Record the start offsets that have become known, so that they are committed."""
        for fetcher in self._fetchers.values():
            for flow in fetcher.flows.values():
                if isinstance(flow, HeldQueue) and not flow.is_begun:
                    flow.follow()

    def _stop_pulling(self, held: HeldQueue) -> None:
        name = held.queue.broker_name
        fetcher = self._fetchers.get(name)
        if fetcher is None or fetcher.flows.get(held.queue) is not held:
            return
        fetcher.remove(held.queue)
        if not fetcher.flows:
            del self._fetchers[name]
            self._background.start(fetcher.close(), "eruca fetcher's end")


def _pull_settings(
    settings: PushSettings, subscriptions: Mapping[str, Subscription]
) -> PullSettings:
    return PullSettings(
        group=settings.group,
        topics=tuple(subscriptions),
        queues=(),
        subscriptions=subscriptions,
        start="earliest",
        is_start_asked=False,
        on_offset_out_of_range="nearest" if settings.is_clustering else "earliest",
        commit_seconds=None,
        prefetch_count_max=settings.limits.queue_count_max,
        prefetch_bytes_max=settings.limits.bytes_max,
        wait_for_topics=True,
    )


def _no_news() -> None:
    """Ignore the call: messages arrive through the held queues, which know their start."""
