"""The pull consumer: reads the queues it is told to, at the pace of whoever polls.

It belongs to no rebalance: two pull consumers of one topic both get everything. With a group it
starts where the group stands and commits how far it has come; without one it only reads.

**What is committed.** A commit never passes a message that the program may still be working on.
``commit()`` covers what has been handed out so far: call it when that has been dealt with. The
automatic commit covers what was handed out *before* the last poll (or, when iterating, before the
current message): that the program comes back for more is what says it is done with the rest. So a
crash repeats messages, and skips none.

Messages are fetched ahead, within limits, from each broker by :mod:`eruca.aio.broker_fetcher`. A
broker that is down is retried in the background while the others are read; when none of them
answers, ``poll`` raises.

Concurrency rule: belongs to the event loop that first uses it; one task polls.

Source: RocketMQ 5.3, ``DefaultLitePullConsumer``; unlike there, see above, its automatic commit
does not cover what has only just been returned.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from eruca.aio.broker_fetcher import BrokerFetcher, Prefetch
from eruca.contract import names
from eruca.contract.errors import (
    ClosedError,
    ErucaError,
    TimeoutExpiredError,
    TopicNotFoundError,
    ValidationError,
)
from eruca.core.message_queue import MessageQueue
from eruca.core.pull_flow import QueueFlow
from eruca.core.pull_positions import (
    OUT_OF_RANGE_POLICIES,
    START_POSITIONS,
    OutOfRangePolicy,
    StartPosition,
)
from eruca.core.received_message import ReceivedMessage
from eruca.core.tag_expression import Subscription, TagExpressionError, parse_tag_expression

if TYPE_CHECKING:
    from eruca.aio.client import AsyncClient

POLL_COUNT_DEFAULT: Final = 500  # messages
POLL_SECONDS_DEFAULT: Final = 5.0  # RocketMQ's pollTimeoutMillis
COMMIT_SECONDS_DEFAULT: Final = 5.0  # RocketMQ's autoCommitIntervalMillis
PREFETCH_COUNT_DEFAULT: Final = 2_000  # messages of one queue
PREFETCH_SIZE_DEFAULT: Final = 64 * 1024 * 1024  # bytes of all queues
_WAKE_SECONDS_MAX: Final = 60.0  # a poll may wait for ever; a timer may not
_LOOK_AGAIN_SECONDS: Final = 1.0  # for a topic that is waited for

_logger = logging.getLogger(__name__)


class AsyncPullConsumer:
    """Reads queues; made by :meth:`eruca.AsyncClient.pull_consumer`.

    As a context manager it commits when the block ends: everything handed out, or, after an
    exception, everything but what was last handed out.
    """

    def __init__(
        self,
        client: AsyncClient,
        group: str | None = None,
        *,
        topics: str | Iterable[str] = (),
        queues: Iterable[MessageQueue] = (),
        filter: str | Mapping[str, str] = "*",
        start: StartPosition | datetime = "earliest",
        on_offset_out_of_range: OutOfRangePolicy = "error",
        auto_commit_seconds: float | None = COMMIT_SECONDS_DEFAULT,
        prefetch_count: int = PREFETCH_COUNT_DEFAULT,
        prefetch_bytes: int = PREFETCH_SIZE_DEFAULT,
        wait_for_topics: bool = False,
    ) -> None:
        self._client = client
        self._group = _checked_group(group)
        self._queues = tuple(dict.fromkeys(queues))
        self._topics = _checked_topics(topics, self._queues)
        self._subscriptions = _subscriptions(self._topics, self._queues, filter)
        self._start = _checked_start(start, group)
        if on_offset_out_of_range not in OUT_OF_RANGE_POLICIES:
            raise ValidationError(
                f"on_offset_out_of_range: {on_offset_out_of_range!r} is none of"
                f" {', '.join(OUT_OF_RANGE_POLICIES)}"
            )
        if prefetch_count < 1 or prefetch_bytes < 1:
            raise ValidationError("prefetch_count and prefetch_bytes are at least 1")
        if auto_commit_seconds is not None and auto_commit_seconds < 0:
            raise ValidationError(f"auto_commit_seconds: {auto_commit_seconds} is below 0")
        self._policy = on_offset_out_of_range
        self._auto_commit_seconds = None if group is None else auto_commit_seconds
        self._wait_for_topics = wait_for_topics
        self._prefetch = Prefetch(prefetch_count, prefetch_bytes)
        self._fetchers: dict[str, BrokerFetcher] = {}  # by broker name
        self._left_at: dict[MessageQueue, int] = {}  # positions in queues that are away just now
        self._handed: list[ReceivedMessage] = []  # what the last poll took
        self._handed_count = 0  # of it, how many the program has got
        self._done_count = 0  # of it, how many the program has come back from
        self._turn = 0  # which queue is emptied first
        self._committed: dict[MessageQueue, int] = {}  # by this consumer
        self._commit_due_at = 0.0  # by the monotonic clock
        self._assigning = asyncio.Lock()
        self._is_assigned = False
        self._is_stale = False  # a route has changed
        self._news = asyncio.Event()
        self._stop_listening: Callable[[], None] | None = None
        self._missing: set[str] = set()  # topics that are waited for
        self._is_closed = False

    @property
    def group(self) -> str | None:
        """Whose offsets are read and committed."""
        return self._group

    @property
    def failures(self) -> dict[str, ErucaError]:
        """The brokers that do not answer just now, and how."""
        return {
            name: fetcher.failure
            for name, fetcher in self._fetchers.items()
            if fetcher.failure is not None
        }

    async def assignment(self) -> list[MessageQueue]:
        """Return the queues that are read, sorted."""
        await self._assign()
        return sorted(flow.queue for flow in self._flows())

    async def poll(
        self, max_count: int = POLL_COUNT_DEFAULT, wait: float = POLL_SECONDS_DEFAULT
    ) -> list[ReceivedMessage]:
        """Return the next messages, those of one queue in order; none if *wait* seconds bring none.

        Args:
            max_count: How many at most.
            wait: Seconds to wait for the first; 0 for only what is held ready.

        Raises:
            TopicNotFoundError: A topic does not exist.
            OffsetOutOfRangeError: A queue holds nothing at its position any more; seek.
            NoCommittedOffsetError: A queue has no committed offset to start at; seek.
            RequestError, RefusedError: A broker will not have it, and repeating it is useless.
            ErucaError: No broker answered while waiting.
        """
        if max_count < 1 or not wait >= 0:
            raise ValidationError(f"max_count: {max_count} is below 1, or wait: {wait} below 0")
        messages = await self._next_batch(max_count, wait)
        self._handed_count = len(messages)
        return messages

    async def batches(
        self, max_count: int = POLL_COUNT_DEFAULT, wait: float = POLL_SECONDS_DEFAULT
    ) -> AsyncIterator[list[ReceivedMessage]]:
        """Iterate over what :meth:`poll` returns, without empty lists, until closed."""
        while not self._is_closed:
            try:
                messages = await self.poll(max_count, wait)
            except ClosedError:
                if not self._is_closed:
                    raise
                return
            if messages:
                yield messages

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ReceivedMessage:
        """Return the next message, however long it takes; the one before counts as done."""
        while (message := self._hand_out()) is None:
            if not await self._fill():
                raise StopAsyncIteration
        return message

    async def commit(self, offsets: Mapping[MessageQueue, int] | None = None) -> None:
        """Store how far the group has come: past everything handed out, or where *offsets* say.

        Raises:
            ValidationError: The consumer has no group, or an offset is below 0.
            ErucaError: A broker could not store it; the others have.
        """
        self._check_usable()
        if self._group is None:
            raise ValidationError("group: a consumer without one has nothing to commit to")
        if offsets is None:
            offsets = self._positions(self._handed_count)
        if any(offset < 0 for offset in offsets.values()):
            raise ValidationError(f"offsets: one of {sorted(offsets.values())} is below 0")
        await self._commit(offsets)

    async def committed(self, queue: MessageQueue) -> int | None:
        """Return where the group stands in *queue* by its broker's word; None for nowhere yet."""
        self._check_usable()
        if self._group is None:
            raise ValidationError("group: a consumer without one has committed nothing")
        answer = await self._client.broker_api.group_offsets(
            await self._url(queue), self._group, queue.topic
        )
        for offset in answer.offsets:
            if offset.queue_id == queue.queue_id:
                return offset.committed_offset
        return None

    async def position(self, queue: MessageQueue) -> int:
        """Return the offset of the next message that is handed out from *queue*."""
        flow = await self._known_flow(queue)
        for message in self._handed[self._handed_count :]:
            if message.queue == queue:
                return message.queue_offset
        assert flow.position is not None
        return flow.position

    async def lag(self) -> dict[MessageQueue, int]:
        """Return for each queue how many offsets lie between its position and its end."""
        await self._assign()
        ends: dict[MessageQueue, int] = {}
        for broker_name, topic in sorted({(q.broker_name, q.topic) for q in self._assigned()}):
            url = await self._url(MessageQueue(topic, broker_name, 0))
            for queue in (await self._client.broker_api.topic_queues(url, topic)).queues:
                ends[MessageQueue(topic, broker_name, queue.queue_id)] = queue.max_offset
        return {
            queue: max(ends[queue] - await self.position(queue), 0)
            for queue in sorted(self._assigned())
            if queue in ends
        }

    async def offset_for_time(self, queue: MessageQueue, timestamp: datetime) -> int:
        """Return the offset of the first message of *queue* stored at *timestamp* or later."""
        self._check_usable()
        answer = await self._client.broker_api.offset_by_time(
            await self._url(queue), queue.topic, queue.queue_id, timestamp
        )
        return answer.offset

    async def seek(self, queue: MessageQueue, offset: int) -> None:
        """Read on at *offset*; what was fetched ahead is dropped.

        Whether there is anything at that offset shows at the next poll.
        """
        if offset < 0:
            raise ValidationError(f"offset: {offset} is below 0")
        await self._assign()
        self._move([self._flow(queue)], lambda flow: flow.seek(offset))

    async def seek_to_beginning(self, *queues: MessageQueue) -> None:
        """Read on at the first message of *queues*; of all, if none is given."""
        await self._seek_to("earliest", queues)

    async def seek_to_end(self, *queues: MessageQueue) -> None:
        """Read on at what is sent from now on to *queues*; to all, if none is given."""
        await self._seek_to("latest", queues)

    async def seek_to_time(self, timestamp: datetime, *queues: MessageQueue) -> None:
        """Read on at the first message of *queues* stored at *timestamp* or later."""
        _check_aware(timestamp, "timestamp")
        await self._seek_to(timestamp, queues)

    async def pause(self, *queues: MessageQueue) -> None:
        """Hand out nothing from *queues* until they are resumed; from all, if none is given."""
        await self._assign()
        for flow in self._chosen(queues):
            flow.is_paused = True

    async def resume(self, *queues: MessageQueue) -> None:
        """Hand out messages from *queues* again; from all, if none is given."""
        await self._assign()
        for flow in self._chosen(queues):
            flow.is_paused = False
        self._kick()
        self._news.set()

    async def close(self, *, commit: bool = True) -> None:
        """Stop reading; commit everything handed out, unless *commit* is false.

        Without automatic commits nothing is committed here either.
        """
        await self._close(self._handed_count if commit else None)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.leave(drain=True, failed=error is not None)

    async def leave(self, *, drain: bool, failed: bool) -> None:
        """Close, as its context or its client ends; *failed* with an exception."""
        await self._close((self._done_count if failed else self._handed_count) if drain else None)

    async def _close(self, commit_count: int | None) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        self._news.set()
        if self._stop_listening is not None:
            self._stop_listening()
        positions = {} if commit_count is None else self._positions(commit_count)
        for fetcher in self._fetchers.values():
            await fetcher.close()
        if self._auto_commit_seconds is not None and positions:
            try:
                await self._commit(positions)
            except ErucaError as error:
                _logger.warning("the last offsets of %s were not committed: %s", self._group, error)
        self._client.forget(self)

    def _hand_out(self) -> ReceivedMessage | None:
        """Return the next message of the last batch; None where that is used up, or must wait.

        Touches nothing that the event loop does, so another thread may call it.
        """
        if self._handed_count >= len(self._handed) or self._commit_is_due():
            return None
        self._done_count = self._handed_count
        self._handed_count += 1
        return self._handed[self._done_count]

    async def _fill(self) -> bool:
        """Do what lies between two messages of an iteration; tell whether it goes on."""
        if self._is_closed:
            return False
        if self._handed_count < len(self._handed):
            self._done_count = self._handed_count
            await self._auto_commit()
            return True
        try:
            await self._next_batch(POLL_COUNT_DEFAULT, POLL_SECONDS_DEFAULT)
        except ClosedError:
            if not self._is_closed:
                raise
            return False
        return True

    async def _next_batch(self, max_count: int, wait: float) -> list[ReceivedMessage]:
        """Take the next messages; what was handed out before counts as done."""
        self._check_usable()
        loop = asyncio.get_running_loop()
        deadline = loop.time() + wait
        self._give_back_unread()
        while True:
            self._news.clear()
            await self._assign()
            self._raise_fault()
            messages = self._take(max_count)
            if messages:
                self._handed = messages
                return messages
            if self._commit_is_due():
                await self._auto_commit()
            now = loop.time()
            if now >= deadline:
                self._raise_failure()
                return []
            wake_at = min(deadline, now + _WAKE_SECONDS_MAX)
            if self._auto_commit_seconds is not None:
                wake_at = min(wake_at, now + max(self._commit_due_at - time.monotonic(), 0.0))
            if self._missing:
                wake_at = min(wake_at, now + _LOOK_AGAIN_SECONDS)
            try:
                async with asyncio.timeout_at(wake_at):
                    await self._news.wait()
            except TimeoutError:
                self._is_stale = bool(self._missing)

    def _give_back_unread(self) -> None:
        """Put back what an iteration that was left has taken and not handed out."""
        unread: dict[MessageQueue, list[ReceivedMessage]] = {}
        for message in self._handed[self._handed_count :]:
            unread.setdefault(message.queue, []).append(message)
        for flow in self._flows():
            messages = unread.get(flow.queue, [])
            before = flow.size
            flow.give_back(messages)
            self._prefetch.size += flow.size - before
        self._handed = []
        self._handed_count = self._done_count = 0

    def _take(self, max_count: int) -> list[ReceivedMessage]:
        flows = self._flows()
        messages: list[ReceivedMessage] = []
        self._turn += 1
        for index in range(len(flows)):
            if len(messages) >= max_count:
                break
            flow = flows[(self._turn + index) % len(flows)]
            before = flow.size
            messages += flow.take(max_count - len(messages))
            self._prefetch.size -= before - flow.size
        self._kick()
        return messages

    def _raise_fault(self) -> None:
        for flow in self._flows():
            # What was fetched before it comes first: a seek would drop it.
            if flow.fault is not None and flow.count == 0:
                raise flow.fault
        for fetcher in self._fetchers.values():
            # Once may be a route that is about to change; twice, the broker means it.
            failure = fetcher.failure
            if failure is not None and not failure.retryable and fetcher.failure_count > 1:
                raise failure

    def _raise_failure(self) -> None:
        failures = [fetcher.failure for fetcher in self._fetchers.values()]
        if failures and failures[0] is not None and None not in failures:
            raise failures[0]

    # Which queues.

    async def _assign(self) -> None:
        self._check_usable()
        if self._is_assigned and not self._is_stale:
            return
        async with self._assigning:
            if self._is_assigned and not self._is_stale:
                return
            self._is_stale = False
            routes = self._client.routes
            wanted = set(self._queues)
            self._missing = set()
            for topic in self._topics or sorted({queue.topic for queue in self._queues}):
                try:
                    view = await routes.subscribe_view(topic)
                except TopicNotFoundError:
                    if not self._wait_for_topics:
                        raise
                    self._missing.add(topic)
                else:
                    if not self._queues:
                        wanted.update(view.queues)
            self._check_usable()
            if self._stop_listening is None:
                self._stop_listening = routes.on_change(self._on_route_change)
            await self._assign_queues(wanted)
            self._is_assigned = True

    async def _assign_queues(self, wanted: set[MessageQueue]) -> None:
        for flow in self._flows():
            if flow.queue not in wanted:
                self._fetchers[flow.queue.broker_name].remove(flow.queue)
                self._prefetch.size -= flow.size
                if flow.position is not None:
                    self._left_at[flow.queue] = flow.position
        for queue in sorted(wanted - set(self._assigned())):
            fetcher = self._fetchers.get(queue.broker_name)
            if fetcher is None:
                fetcher = self._fetchers[queue.broker_name] = self._new_fetcher(queue.broker_name)
            fetcher.add(
                QueueFlow(
                    queue,
                    self._start if not self._is_assigned else "earliest",
                    use_committed=self._group is not None,
                    offset=self._left_at.pop(queue, None),
                )
            )
        for name in [name for name, fetcher in self._fetchers.items() if not fetcher.flows]:
            await self._fetchers.pop(name).close()
        self._kick()

    def _new_fetcher(self, broker_name: str) -> BrokerFetcher:
        return BrokerFetcher(
            self._client,
            broker_name,
            self._group,
            subscriptions=self._subscriptions,
            policy=self._policy,
            prefetch=self._prefetch,
            on_news=self._news.set,
        )

    def _on_route_change(self, topic: str) -> None:
        if topic in self._subscriptions:
            self._is_stale = True
            self._news.set()

    def _flows(self) -> list[QueueFlow]:
        return [flow for fetcher in self._fetchers.values() for flow in fetcher.flows.values()]

    def _assigned(self) -> list[MessageQueue]:
        return [queue for fetcher in self._fetchers.values() for queue in fetcher.flows]

    def _flow(self, queue: MessageQueue) -> QueueFlow:
        fetcher = self._fetchers.get(queue.broker_name)
        flow = None if fetcher is None else fetcher.flows.get(queue)
        if flow is None:
            raise ValidationError(
                f"queue: {queue} is not read by this consumer", fix="see assignment()"
            )
        return flow

    def _chosen(self, queues: Sequence[MessageQueue]) -> list[QueueFlow]:
        return [self._flow(queue) for queue in queues] if queues else self._flows()

    def _kick(self) -> None:
        for fetcher in self._fetchers.values():
            fetcher.kick()

    async def _known_flow(self, queue: MessageQueue) -> QueueFlow:
        """Return a queue's flow once its position is known."""
        await self._assign()
        flow = self._flow(queue)
        timeout = self._client.settings.timeout_seconds
        try:
            async with asyncio.timeout(timeout):
                while flow.position is None:
                    self._news.clear()
                    if flow.fault is not None:
                        raise flow.fault
                    await self._news.wait()
        except TimeoutError:
            failure = self._fetchers[queue.broker_name].failure
            raise failure or TimeoutExpiredError(
                f"broker {queue.broker_name} did not tell the position in {timeout:.3g} s"
            ) from None
        return flow

    async def _url(self, queue: MessageQueue) -> str:
        view = await self._client.routes.subscribe_view(queue.topic)
        return view.url_of(queue)

    # Where in them.

    async def _seek_to(
        self, start: StartPosition | datetime, queues: tuple[MessageQueue, ...]
    ) -> None:
        await self._assign()
        flows = self._chosen(queues)
        self._move(flows, lambda flow: flow.seek_to(start))
        for flow in flows:
            await self._known_flow(flow.queue)  # "now" is now, not when somebody polls

    def _move(self, flows: list[QueueFlow], move: Callable[[QueueFlow], None]) -> None:
        moved = {flow.queue for flow in flows}
        kept = [
            (index, message)
            for index, message in enumerate(self._handed)
            if message.queue not in moved
        ]
        self._handed_count = sum(index < self._handed_count for index, _ in kept)
        self._done_count = sum(index < self._done_count for index, _ in kept)
        self._handed = [message for _, message in kept]
        for flow in flows:
            self._prefetch.size -= flow.size
            move(flow)
            self._committed.pop(flow.queue, None)
        for fetcher in self._fetchers.values():
            fetcher.restart([queue for queue in moved if queue.broker_name == fetcher.broker_name])

    def _positions(self, count: int) -> dict[MessageQueue, int]:
        """Return the positions that cover the first *count* messages of the last batch."""
        positions = {
            flow.queue: flow.position for flow in self._flows() if flow.position is not None
        }
        for message in reversed(self._handed[count:]):
            if message.queue in positions:
                positions[message.queue] = message.queue_offset
        return positions

    def _commit_is_due(self) -> bool:
        return self._auto_commit_seconds is not None and time.monotonic() >= self._commit_due_at

    async def _auto_commit(self) -> None:
        assert self._auto_commit_seconds is not None
        self._commit_due_at = time.monotonic() + self._auto_commit_seconds
        try:
            await self._commit(self._positions(self._done_count))
        except ErucaError as error:
            _logger.warning("offsets of %s are not committed for now: %s", self._group, error)

    async def _commit(self, offsets: Mapping[MessageQueue, int]) -> None:
        from eruca.contract.models import OffsetCommit  # pydantic: loaded when first needed

        assert self._group is not None
        changed = {q: offset for q, offset in offsets.items() if self._committed.get(q) != offset}
        by_broker: dict[str, list[OffsetCommit]] = {}
        for queue, offset in sorted(changed.items()):
            commit = OffsetCommit(topic=queue.topic, queue_id=queue.queue_id, offset=offset)
            by_broker.setdefault(await self._url(queue), []).append(commit)
        outcomes = await asyncio.gather(
            *(
                self._client.broker_api.commit_offsets(url, self._group, commits)
                for url, commits in by_broker.items()
            ),
            return_exceptions=True,
        )
        for outcome in outcomes:
            if outcome is not None:
                raise outcome
        self._committed.update(changed)

    def _check_usable(self) -> None:
        if self._is_closed:
            raise ClosedError("the consumer is closed")


def _checked_group(group: str | None) -> str | None:
    if group is not None and (fault := names.client_group_fault(group)) is not None:
        raise ValidationError(f"group: {group!r} is {fault.value.replace('_', ' ')}")
    return group


def _checked_topics(
    topics: str | Iterable[str], queues: tuple[MessageQueue, ...]
) -> tuple[str, ...]:
    several = (topics,) if isinstance(topics, str) else tuple(dict.fromkeys(topics))
    if bool(several) == bool(queues):
        raise ValidationError("give topics or queues to read, one of the two")
    for topic in several or {queue.topic for queue in queues}:
        if (fault := names.broker_topic_fault(topic)) is not None:
            raise ValidationError(f"topics: {topic!r} is {fault.value.replace('_', ' ')}")
    return several


def _subscriptions(
    topics: Iterable[str], queues: Iterable[MessageQueue], filters: str | Mapping[str, str]
) -> dict[str, Subscription]:
    every_topic = {*topics, *(queue.topic for queue in queues)}
    if not isinstance(filters, str) and (strangers := set(filters) - every_topic):
        raise ValidationError(f"filter: {sorted(strangers)} are not read by this consumer")
    try:
        return {
            topic: parse_tag_expression(
                filters if isinstance(filters, str) else filters.get(topic, "*")
            )
            for topic in every_topic
        }
    except TagExpressionError as error:
        raise ValidationError(f"filter: {error}", fix='such as "a || b", or "*"') from error


def _checked_start(start: StartPosition | datetime, group: str | None) -> StartPosition | datetime:
    if isinstance(start, datetime):
        _check_aware(start, "start")
    elif start not in START_POSITIONS:
        raise ValidationError(f"start: {start!r} is none of {', '.join(START_POSITIONS)}, no time")
    elif start == "committed" and group is None:
        raise ValidationError("start: without a group nothing is committed to start at")
    return start


def _check_aware(moment: datetime, name: str) -> None:
    if moment.tzinfo is None:
        raise ValidationError(
            f"{name}: {moment!r} has no time zone", fix="such as datetime.now(UTC)"
        )
