"""The queues of a pull consumer: they follow the routes, and one fetcher per broker fills them.

If a queue leaves the route and returns, as all queues of a restarting broker do, reading continues
where it stopped. A queue that appears while the consumer runs is read as if it had existed from the
start: see :mod:`eruca.core.consuming.pull_positions`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from eruca.aio.pulling.broker_fetcher import BrokerFetcher, Prefetch
from eruca.contract.errors import (
    ClosedError,
    ErucaError,
    TimeoutExpiredError,
    ValidationError,
)
from eruca.core.consuming.pull_flow import QueueFlow
from eruca.core.consuming.pull_settings import PullSettings
from eruca.core.messages.message_queue import MessageQueue, checked_queue
from eruca.core.messages.received_message import ReceivedMessage

if TYPE_CHECKING:
    from eruca.aio.cluster.client_context import ClientContext


class Assignment:
    """The queues of one consumer."""

    def __init__(self, context: ClientContext, settings: PullSettings) -> None:
        self.news = asyncio.Event()  # set when there are messages to take or an error to raise
        self.missing: set[str] = set()  # missing topics that the consumer waits for
        self._context = context
        self._settings = settings
        self._prefetch = Prefetch(settings.prefetch_count_max, settings.prefetch_bytes_max)
        self._fetchers: dict[str, BrokerFetcher] = {}  # by broker name
        self._left_at: dict[MessageQueue, int] = {}  # positions in queues that are absent now
        self._turn = 0  # index of the queue to take from first
        self._lock = asyncio.Lock()
        self._began_at: datetime | None = None  # None: the consumer has not been used yet
        self._is_complete = False
        self._is_stale = False  # a route has changed
        self._stop_listening: Callable[[], None] | None = None
        self._is_start_due = settings.is_start_asked  # the warning about an ignored start is due
        self._is_closed = False

    @property
    def flows(self) -> list[QueueFlow]:
        """All queues."""
        return [flow for fetcher in self._fetchers.values() for flow in fetcher.flows.values()]

    @property
    def failures(self) -> dict[str, ErucaError]:
        """The brokers that do not answer now, each with its error."""
        return {
            name: failure
            for name, fetcher in self._fetchers.copy().items()  # other threads read this, too
            if (failure := fetcher.failure) is not None
        }

    def flow(self, queue: MessageQueue) -> QueueFlow:
        """Return a queue's flow; raise ValidationError if this consumer does not read it."""
        fetcher = self._fetchers.get(checked_queue(queue).broker_name)
        flow = None if fetcher is None else fetcher.flows.get(queue)
        if flow is None:
            raise ValidationError(
                f"queue: {queue} is not read by this consumer",
                fix="see assignment() for this consumer's queues",
            )
        return flow

    def chosen(self, queues: Sequence[MessageQueue]) -> list[QueueFlow]:
        """Return the flows of *queues*; default: of all queues."""
        return [self.flow(queue) for queue in queues] if queues else self.flows

    async def complete(self) -> None:
        """Update the queues from the routes, if a route has changed.

        Raises:
            TopicNotFoundError: A topic does not exist, and the consumer does not wait for it.
            NameServersUnreachableError: No name server answered.
        """
        if self._is_complete and not self._is_stale:
            return
        async with self._lock:
            if self._is_complete and not self._is_stale:
                return
            self._is_stale = False
            if self._began_at is None:
                self._began_at = datetime.now(UTC)
            try:
                wanted = await self._wanted()
            except BaseException:
                self._is_stale = True
                raise
            if self._is_closed:
                raise ClosedError("the consumer is closed")
            if self._stop_listening is None:
                self._stop_listening = self._context.routes.on_change(self._on_route_change)
            await self._change_to(wanted)
            self._is_complete = True

    def look_again(self) -> None:
        """Look for missing topics again at the next completion."""
        if self.missing:
            self._is_stale = True

    async def known(self, queue: MessageQueue) -> QueueFlow:
        """Return a queue's flow once its position is known."""
        await self.complete()
        flow = self.flow(queue)
        timeout = self._context.settings.timeout_seconds
        try:
            async with asyncio.timeout(timeout):
                while flow.position is None:
                    self.news.clear()
                    if flow.fault is not None:
                        raise flow.fault
                    await self.news.wait()
        except TimeoutError:
            failure = self._fetchers[queue.broker_name].failure
            raise failure or TimeoutExpiredError(
                f"broker {queue.broker_name} did not return the position within {timeout:.3g} s"
            ) from None
        return flow

    def take(self, count_max: int) -> list[ReceivedMessage]:
        """Take up to *count_max* fetched messages, beginning with another queue each time."""
        flows = self.flows
        messages: list[ReceivedMessage] = []
        self._turn += 1
        for index in range(len(flows)):
            if len(messages) >= count_max:
                break
            flow = flows[(self._turn + index) % len(flows)]
            before = flow.size
            messages += flow.take(count_max - len(messages))
            self._prefetch.size -= before - flow.size
        self.kick()
        return messages

    def give_back(self, messages: Sequence[ReceivedMessage]) -> None:
        """Put back the messages that were taken last and have not been handed out."""
        by_queue: dict[MessageQueue, list[ReceivedMessage]] = {}
        for message in messages:
            by_queue.setdefault(message.queue, []).append(message)
        flows = {flow.queue: flow for flow in self.flows} if by_queue else {}
        for queue, unread in by_queue.items():
            flow = flows.get(queue)
            if flow is None:  # the queue is absent now
                self._left_at[queue] = unread[0].queue_offset
            else:
                before = flow.size
                flow.give_back(unread)
                self._prefetch.size += flow.size - before

    def move(self, flows: Sequence[QueueFlow], move: Callable[[QueueFlow], None]) -> None:
        """Call *move* for each of *flows*, and fetch from the new positions."""
        for flow in flows:
            self._prefetch.size -= flow.size
            move(flow)
        for fetcher in self._fetchers.values():
            fetcher.restart([flow.queue for flow in flows if flow.queue in fetcher.flows])

    def kick(self) -> None:
        """Pull all queues that have room."""
        for fetcher in self._fetchers.values():
            fetcher.kick()

    def raise_fault(self) -> None:
        """Raise an error that prevents reading a queue and that a retry cannot fix."""
        for flow in self.flows:
            # Prefetched messages come first: a seek would drop them.
            if flow.fault is not None and flow.count == 0:
                raise flow.fault
        for fetcher in self._fetchers.values():
            # A single failure may come from a route that is about to change; a second one is real.
            failure = fetcher.failure
            if failure is None or failure.retryable or fetcher.failure_count < 2:
                continue
            # Each attempt's failure once: a program that polls again at once waits for the next
            # attempt, whose pause grows, instead of spinning.
            if fetcher.failure_count != fetcher.raised_count:
                fetcher.raised_count = fetcher.failure_count
                raise failure

    def raise_failure(self) -> None:
        """Raise the failure if no broker answers."""
        failures = list(self.failures.values())
        if failures and len(failures) == len(self._fetchers):
            raise failures[0]

    async def close(self) -> None:
        """Stop reading."""
        self._is_closed = True
        self.news.set()
        if self._stop_listening is not None:
            self._stop_listening()
        for fetcher in self._fetchers.values():
            await fetcher.close()

    async def _wanted(self) -> set[MessageQueue]:
        settings, routes = self._settings, self._context.routes
        wanted = set(settings.queues)
        missing = set()
        for topic in settings.subscriptions:
            view = await routes.consumers_view(topic, waits=settings.wait_for_topics)
            if view is None:
                missing.add(topic)
            elif not settings.queues:
                wanted.update(view.queues)
        self.missing = missing
        return wanted

    async def _change_to(self, wanted: set[MessageQueue]) -> None:
        for flow in self.flows:
            if flow.queue not in wanted:
                self._fetchers[flow.queue.broker_name].remove(flow.queue)
                self._prefetch.size -= flow.size
                if flow.position is not None:
                    self._left_at[flow.queue] = flow.position
        for queue in sorted(wanted - {flow.queue for flow in self.flows}):
            fetcher = self._fetchers.get(queue.broker_name)
            if fetcher is None:
                fetcher = self._fetchers[queue.broker_name] = self._new_fetcher(queue.broker_name)
            flow = QueueFlow(
                queue,
                self._settings.start,
                use_committed=self._settings.group is not None,
                offset=self._left_at.pop(queue, None),
                came_after=self._began_at if self._is_complete else None,
            )
            fetcher.add(flow)
        for name in [name for name, fetcher in self._fetchers.items() if not fetcher.flows]:
            await self._fetchers.pop(name).close()
        for fetcher in self._fetchers.values():
            fetcher.pull()  # at once: the next route may lack its broker

    def _new_fetcher(self, broker_name: str) -> BrokerFetcher:
        return BrokerFetcher(
            self._context,
            broker_name,
            self._settings,
            self._prefetch,
            on_news=self.news.set,
            on_begun_before=self._warn_of_unused_start,
        )

    def _warn_of_unused_start(self, flow: QueueFlow) -> None:
        """Warn once if the group's offsets override the given start."""
        if not self._is_start_due:
            return
        self._is_start_due = False
        from eruca.aio.cluster.group_start import warn_of_offsets_before_start  # late: models

        assert self._settings.group is not None
        assert flow.fetch_offset is not None
        warn_of_offsets_before_start(
            self._settings.group, flow.queue, flow.fetch_offset, self._settings.start
        )

    def _on_route_change(self, topic: str) -> None:
        if topic in self._settings.subscriptions:
            self._is_stale = True
            self.news.set()
