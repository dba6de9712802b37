"""The producer: sends single messages or many at once, and groups them into batches itself.

Each message goes into a *lane* (:mod:`eruca.aio.sending.send_lane`). Messages that may go to any
queue share one lane per topic, and its batches are spread over the queues. Messages with a sharding
key, a selector or a named queue go into the lane of that queue, and stay in order. Such a lane has
one batch under way at a time; if batches wait for that, it sends several ahead, in order.

The buffer is limited (``buffer_bytes_max``); if it is full, sending waits. A message is
acknowledged when its ``SendResult`` is available. The result says how durable the message is.

Concurrency rule: belongs to the event loop that first uses it; any number of tasks may send.

Source: RocketMQ 5.3, ``DefaultMQProducer``, ``ProduceAccumulator``.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Iterable
from functools import lru_cache
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from eruca.aio.sending.ahead import LaneTurns
from eruca.aio.sending.attempts import view_before
from eruca.aio.sending.batch_sender import BatchSender
from eruca.aio.sending.bulk_send import BULK_IN_FLIGHT_MAX, BulkSend
from eruca.aio.sending.send_buffer import SendBuffer
from eruca.aio.sending.send_lane import PendingBatch, SendFuture, SendLane
from eruca.contract.errors import (
    ClosedError,
    ErucaError,
    TimeoutExpiredError,
    ValidationError,
)
from eruca.contract.hashing import queue_of_hash, string_hash
from eruca.core.checked_arguments import check_argument, checked_calls
from eruca.core.checked_numbers import checked_seconds
from eruca.core.messages.message import Message
from eruca.core.messages.message_queue import MessageQueue, checked_queue
from eruca.core.producing.producer_settings import ProducerSettings
from eruca.core.producing.send_parts import SendPart, part_alike, part_by_queue, results_in_order
from eruca.core.producing.send_result import SendResult, SendResults, Stored
from eruca.core.routing.latency_fault import BrokerHealth, fault_table
from eruca.core.routing.selectors import QueueSelector, SelectorArgument, select_queue

if TYPE_CHECKING:
    from eruca.aio.cluster.client_context import ClientContext
    from eruca.core.routing.route_table import PublishView

LANES_MAX: Final = 4_096  # above this number, unused lanes are dropped

_logger = logging.getLogger(__name__)


@checked_calls(but=("send", "submit", "send_oneway"))
class AsyncProducer:
    """Sends messages; made by :meth:`eruca.AsyncClient.producer`.

    As a context manager it sends the buffered messages when the block ends.
    """

    def __init__(self, context: ClientContext, settings: ProducerSettings) -> None:
        self._context = context
        self._settings = settings
        self._buffer = SendBuffer(settings.buffer_bytes_max)
        self._timeout = settings.send_timeout_seconds
        self._faults = fault_table(settings.latency_fault)
        self._sender: BatchSender | None = None
        self._bulk_turns = asyncio.Semaphore(BULK_IN_FLIGHT_MAX)
        self._topic_lanes: dict[str, SendLane] = {}
        self._queue_lanes: dict[MessageQueue, SendLane] = {}

    @property
    def group(self) -> str | None:
        """The producer group; checkers ask its members about the outcome of transactions."""
        return self._settings.group

    async def send(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        selector: QueueSelector | None = None,
        selector_arg: SelectorArgument = None,
        timeout_seconds: float | None = None,
    ) -> SendResult:
        """Store *message* and return its place.

        Tasks that send at the same time share batches, so concurrent sends are fast. Cancelling the
        call withdraws the message if it has not been sent yet.

        Args:
            message: What to send.
            queue: The target queue; default: the sharding key decides, else the producer.
            selector: Chooses a queue of the topic by *selector_arg*.
            selector_arg: Argument of the selector.
            timeout_seconds: Time limit for all attempts together; default: the producer's.

        Raises:
            SendFailedError: Every attempt failed; a broker may have stored the message.
            TopicNotFoundError: The topic does not exist, and sending does not create it.
            NoRouteError: No live broker accepts messages of the topic.
            NameServersUnreachableError: No name server answered.
            TimeoutExpiredError: The deadline passed before the first attempt.
            RefusedError, RequestError: The broker refuses the message.
        """
        if message.__class__ is not Message:
            check_argument("message", message, Message)
        if timeout_seconds is not None:
            return await self._send_within(timeout_seconds, message, queue, selector, selector_arg)
        if queue is None and selector is None and message.sharding_key is None:
            # Fast path of most messages, kept short.
            lane = self._topic_lanes.get(message.topic)
            size = message.size_estimate()
            buffer = self._buffer
            if lane is not None and buffer.size + size <= buffer.limit:  # as its take_now
                buffer.size += size
                if lane.is_lone:
                    try:
                        return await lane.send_alone(message, size)
                    finally:
                        buffer.give_back(size)
                return await lane.add(message, size)
        future = self._try_submit(message, queue, selector, selector_arg)
        if future is None:
            future = await self._submit(message, queue, selector, selector_arg)
        return await future

    async def submit(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        selector: QueueSelector | None = None,
        selector_arg: SelectorArgument = None,
    ) -> asyncio.Future[SendResult]:
        """Queue *message* for sending and return the future of its result.

        Waits only for room in the buffer, and for the topic's route if the queue must be known. The
        arguments are those of :meth:`send`. The future raises the same errors.
        """
        future = self._try_submit(message, queue, selector, selector_arg)
        return future or await self._submit(message, queue, selector, selector_arg)

    async def send_oneway(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        selector: QueueSelector | None = None,
        selector_arg: SelectorArgument = None,
    ) -> None:
        """Queue *message* for sending, and report no result to the caller.

        Waits as :meth:`submit` does; a failure is logged at debug level.
        """
        future = await self.submit(
            message, queue=queue, selector=selector, selector_arg=selector_arg
        )
        future.add_done_callback(_log_failure)

    async def send_many(
        self,
        messages: Iterable[Message],
        *,
        queue: MessageQueue | None = None,
        selector: QueueSelector | None = None,
        selector_arg: SelectorArgument = None,
        timeout_seconds: float | None = None,
    ) -> SendResults:
        """Store *messages* and return their places, in the same order.

        They are split by queue and by the limits of a batch. Each batch is stored whole or not at
        all. Several batches are under way at a time. Messages for the same queue stay in order.

        The result is a sequence with one SendResult for each message; each one is made at its first
        access.

        Args:
            messages: What to send; topics may differ.
            queue: The target queue of all messages.
            selector: Chooses the queue of each message by *selector_arg*.
            selector_arg: Argument of the selector.
            timeout_seconds: Time limit for all attempts of one batch, from its first attempt;
                default: the producer's. If no batch is stored for that long, the remaining batches
                fail without an attempt.

        Raises:
            PartialSendError: Some batches were stored and others were not; it lists the messages.
            ErucaError: There was only one batch, or none was stored; as in :meth:`send`.
        """
        seconds = (
            self._timeout
            if timeout_seconds is None
            else checked_seconds(timeout_seconds, "timeout_seconds")
        )
        parts = await self._parted(messages, queue, selector, selector_arg, seconds)
        bulk = BulkSend(seconds)
        futures: list[asyncio.Future[Stored]] = []
        refusal: ErucaError | None = None  # error of all batches without a future
        try:
            for part in parts:
                try:
                    await self._buffer.take(part.size)
                except ClosedError as error:
                    refusal = error
                    break
                if bulk.stalled is not None:
                    refusal = bulk.stalled
                    self._buffer.give_back(part.size)
                    break
                now = asyncio.get_running_loop().time()
                batch = PendingBatch(part.queue, opened_at=now, deadline=math.inf)
                batch.messages, batch.size = part.messages, part.size
                futures.append(bulk.add(batch))
                # Not earlier: an unused lane may be dropped while the buffer is full.
                self._lane(part.topic, part.queue).add_batch(batch)
            if futures:
                await asyncio.wait(futures)
        except BaseException:
            for future in futures:
                if not future.cancel() and not future.cancelled():
                    future.exception()  # nobody waits for it
            raise
        finally:
            bulk.close()
        outcomes = list(map(_outcome, futures))
        if refusal is not None:
            outcomes += [refusal] * (len(parts) - len(futures))
        return results_in_order(parts, outcomes)

    async def flush(self, timeout_seconds: float | None = None) -> None:
        """Wait until every message submitted so far has been stored or has failed.

        Raises:
            TimeoutExpiredError: It takes longer than *timeout_seconds*.
        """
        loop = asyncio.get_running_loop()
        finished = []
        for lane in (*self._topic_lanes.values(), *self._queue_lanes.values()):
            for batch in lane.flush():
                if batch.finished is None:
                    batch.finished = loop.create_future()
                finished.append(batch.finished)
        if finished:
            _, pending = await asyncio.wait(finished, timeout=timeout_seconds)
            if pending:
                raise TimeoutExpiredError(
                    f"{len(pending)} batches were not sent in {timeout_seconds} s"
                )

    async def close(self, *, drain: bool = True, timeout_seconds: float | None = None) -> None:
        """Accept no more messages; send the buffered ones first, unless *drain* is false.

        Messages that are not sent within *timeout_seconds* fail with ClosedError; its text says if
        a broker may have stored them. Default: the producer's send timeout.
        """
        self._buffer.close()
        if drain:
            try:
                await self.flush(self._timeout if timeout_seconds is None else timeout_seconds)
            except TimeoutExpiredError as late:
                _logger.warning("the producer was closed before all messages were sent: %s", late)
        unsent = ClosedError("the producer was closed before the message was sent")
        under_way = ClosedError(
            "the producer was closed before the broker answered; the message may have been stored"
        )
        tasks = []
        for lane in (*self._topic_lanes.values(), *self._queue_lanes.values()):
            tasks += lane.cancel(unsent, under_way=under_way)
        if tasks:
            await asyncio.wait(tasks)
        for lane in self._queue_lanes.values():
            await lane.close()
        self._context.forget(self)

    async def leave(self, *, drain: bool, failed: bool) -> None:
        """Close because the context or the client ends; *failed* if an exception ended it."""
        await self.close(drain=drain)

    def broker_health(self) -> tuple[BrokerHealth, ...]:
        """Return the producer's view of the brokers' health, best first.

        Empty while latency fault tolerance is off, because the producer records nothing then.
        """
        return () if self._faults is None else self._faults.health(time.monotonic() * 1000)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    def _try_submit(
        self,
        message: Message,
        queue: MessageQueue | None,
        selector: QueueSelector | None,
        selector_arg: SelectorArgument,
    ) -> SendFuture | None:
        """Submit *message* without waiting if possible, which is the usual case."""
        _check_target(message, queue, selector)
        if queue is not None or selector is not None or message.sharding_key is not None:
            view = self._context.routes.cached_publish_view(message.topic)
            if view is None or not view.queues:
                return None
            queue = queue_of(message, view, queue, selector, selector_arg)
            lane = self._queue_lanes.get(queue)
        else:
            lane = self._topic_lanes.get(message.topic)
        if lane is None:
            lane = self._lane(message.topic, queue)
        size = message.size_estimate()
        return lane.add(message, size) if self._buffer.take_now(size) else None

    async def _submit(
        self,
        message: Message,
        queue: MessageQueue | None,
        selector: QueueSelector | None,
        selector_arg: SelectorArgument,
        *,
        deadline: float = 0.0,
    ) -> SendFuture:
        if queue is not None or selector is not None or message.sharding_key is not None:
            by = deadline or asyncio.get_running_loop().time() + self._timeout
            view = await view_before(self._context.routes, message.topic, by)
            queue = queue_of(message, view, queue, selector, selector_arg)
        size = message.size_estimate()
        await self._buffer.take(size)
        return self._lane(message.topic, queue).add(message, size, deadline)

    async def _send_within(
        self,
        timeout_seconds: float,
        message: Message,
        queue: MessageQueue | None,
        selector: QueueSelector | None,
        selector_arg: SelectorArgument,
    ) -> SendResult:
        _check_target(message, queue, selector)
        deadline = asyncio.get_running_loop().time() + checked_seconds(
            timeout_seconds, "timeout_seconds"
        )
        try:
            async with asyncio.timeout_at(deadline):
                future = await self._submit(
                    message, queue, selector, selector_arg, deadline=deadline
                )
                return await future
        except TimeoutError:
            raise TimeoutExpiredError(
                f"no acknowledgement within {timeout_seconds:.3g} s;"
                " the message may have been stored"
            ) from None

    async def _parted(
        self,
        messages: Iterable[Message],
        queue: MessageQueue | None,
        selector: QueueSelector | None,
        selector_arg: SelectorArgument,
        seconds: float,
    ) -> list[SendPart]:
        """Return *messages* as batches; those for one queue are in order.

        Looking up each topic's route may take up to *seconds*.
        """
        everything = list(messages)
        if {message.__class__ for message in everything} != {Message}:
            for index, message in enumerate(everything):
                check_argument(f"messages[{index}]", message, Message)
        topics = {message.topic for message in everything}
        is_keyed = {message.sharding_key for message in everything} != {None}
        views: dict[str, PublishView] = {}
        if queue is not None or selector is not None or is_keyed:
            routes, clock = self._context.routes, asyncio.get_running_loop().time
            for topic in topics:
                views[topic] = await view_before(routes, topic, clock() + seconds)
        if len(topics) == 1 and (queue is not None or not views):
            if queue is not None:
                queue = queue_of(everything[0], views[everything[0].topic], queue, None, None)
            return part_alike(everything, queue, self._settings.batching)
        targets = [
            None
            if queue is None and selector is None and message.sharding_key is None
            else queue_of(message, views[message.topic], queue, selector, selector_arg)
            for message in everything
        ]
        return part_by_queue(everything, targets, self._settings.batching)

    def _lane(self, topic: str, queue: MessageQueue | None) -> SendLane:
        lane = self._topic_lanes.get(topic) if queue is None else self._queue_lanes.get(queue)
        if lane is not None:
            return lane
        if len(self._topic_lanes) + len(self._queue_lanes) >= LANES_MAX:
            self._topic_lanes = {t: ln for t, ln in self._topic_lanes.items() if not ln.is_idle}
            self._queue_lanes = {q: ln for q, ln in self._queue_lanes.items() if not ln.is_idle}
        batching = self._settings.batching
        lane = SendLane(
            self._run,
            self._batch_sender().send_one,
            queue,
            limits=batching,
            linger=batching.linger_ms / 1000,
            in_flight_max=batching.in_flight_max,
            timeout=self._timeout,
            turns=None
            if queue is None
            else LaneTurns(self._context.hot_transport, batching.in_flight_max),
        )
        if queue is None:
            self._topic_lanes[topic] = lane
        else:
            self._queue_lanes[queue] = lane
        return lane

    async def _run(self, batch: PendingBatch) -> None:
        size = batch.size
        try:
            if batch.begin is None:
                await self._batch_sender().send(batch)
                return
            await self._take_bulk_turn(batch)
            try:
                batch.begin(batch)
                await self._batch_sender().send(batch)
            finally:
                self._bulk_turns.release()
        finally:
            self._buffer.give_back(size)

    async def _take_bulk_turn(self, batch: PendingBatch) -> None:
        """Wait until a batch is the next of its lane, and few others are under way.

        A batch that waits for earlier ones of its lane takes no turn from other lanes.
        """
        while True:
            if batch.turns is None or batch.seat is None:
                await self._bulk_turns.acquire()
                return
            await batch.turns.until_next(batch.seat)
            await self._bulk_turns.acquire()
            if batch.turns.is_next(batch.seat):
                return
            self._bulk_turns.release()  # meanwhile an earlier one has failed, and goes again

    def _batch_sender(self) -> BatchSender:
        if self._sender is None:
            self._sender = BatchSender(
                self._context.hot_transport,
                self._context.routes,
                attempts_max=self._settings.retries_max + 1,
                faults=self._faults,
                compression_threshold_bytes=self._settings.compression_threshold_bytes,
                is_idempotent=self._settings.idempotent,
                copies=self._settings.copies,
                group=self._settings.group,
                statistics=self._context.statistics,
            )
        return self._sender


def _check_target(
    message: Message, queue: MessageQueue | None, selector: QueueSelector | None
) -> None:
    """Raise ValidationError for an invalid message or an invalid target."""
    if message.__class__ is not Message:
        check_argument("message", message, Message)
    if queue is not None:
        checked_queue(queue)
    if selector is not None and not callable(selector):
        raise ValidationError(
            f"selector: expected a function, found {selector!r:.60}",
            fix="use a function such as eruca.by_hash",
        )


def queue_of(
    message: Message,
    view: PublishView,
    queue: MessageQueue | None,
    selector: QueueSelector | None,
    selector_arg: SelectorArgument,
) -> MessageQueue:
    """Return the queue a message must go to: named, selected, or by its sharding key."""
    if queue is not None:
        if checked_queue(queue).topic != message.topic:
            raise ValidationError(
                f"queue: expected a queue of topic {message.topic}, found one of {queue.topic}"
            )
        return queue
    if selector is not None:
        return select_queue(selector, view.key_queues, selector_arg)
    assert message.sharding_key is not None
    queues = view.key_queues
    return queues[queue_of_hash(_sharding_hash(message.sharding_key), len(queues))]


@lru_cache(maxsize=65_536)
def _sharding_hash(key: str) -> int:
    return string_hash(key)


def _outcome(future: asyncio.Future[Stored]) -> Stored | ErucaError:
    error = future.exception()
    if error is None or not isinstance(error, ErucaError):
        return future.result()
    return error


def _log_failure(future: SendFuture) -> None:
    if not future.cancelled() and (error := future.exception()) is not None:
        _logger.debug("a one-way message was lost: %s", error)
