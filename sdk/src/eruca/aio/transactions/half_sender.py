"""Send a half message: choose a queue, try, and retry until the deadline.

If the answer was lost, the half message may be stored. So the next attempt goes to the same broker,
where beginning the transaction again is harmless. At another broker it would be a second
transaction, which the checker might commit as well. Another broker is tried only if the first one
has certainly stored nothing: there was no connection, or the broker said so.

A sending has these states, and all attempts carry the same transaction id::

    free ──an attempt may have stored it──▶ bound to its queue, until the deadline
     │                                        │
     └────────────────stored──────────────────┴──▶ the half message

A free half message is sent like a plain message: to the next queue, avoiding slow and failed
brokers, and as often as the producer retries. For a bound one only time helps. So its attempts are
not counted, unless the producer has no retries at all.

Source: RocketMQ 5.3, ``DefaultMQProducerImpl.sendMessageInTransaction``, which may store two.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING

from eruca.aio.cluster.transaction_api import TransactionApi, begin_body
from eruca.aio.local_address import local_address
from eruca.aio.process import process_id
from eruca.aio.sending.attempts import (
    Attempts,
    is_awaited,
    is_raised_unchanged,
    may_be_stored,
    next_retry,
    remaining_seconds,
    tried,
)
from eruca.aio.transactions.gatherer import Gatherer
from eruca.contract.errors import ErucaError, SendFailedError
from eruca.contract.transactions import NewTransaction
from eruca.core.call_statistics import ClientStatistics
from eruca.core.messages.json_messages import new_message
from eruca.core.messages.message_queue import MessageQueue
from eruca.core.messages.unique_ids import UniqueIds
from eruca.core.producing.transactions import HalfMessage
from eruca.core.retry_policy import Patience, attempt_seconds

if TYPE_CHECKING:
    from eruca.aio.cluster.routes import Routes
    from eruca.contract.transactions import TransactionReceipt
    from eruca.core.messages.message import Message
    from eruca.core.routing.latency_fault import FaultTable
    from eruca.core.routing.route_table import PublishView

QueueOf = Callable[["PublishView"], "MessageQueue | None"]
"""Returns the queue of a topic that a message must go to; None: any."""


class HalfSender:
    """Sends the half messages of one producer group.

    Args:
        api: Requests to the brokers.
        routes: The client's.
        group: The producer group.
        attempts_max: Maximum number of attempts at brokers that have not stored the half message.
        faults: The producer's fault table; None while latency fault tolerance is off.
        statistics: The client's.
    """

    def __init__(
        self,
        api: TransactionApi,
        routes: Routes,
        group: str,
        *,
        attempts_max: int,
        faults: FaultTable | None,
        statistics: ClientStatistics,
    ) -> None:
        self._gatherer: Gatherer[bytes, TransactionReceipt] = Gatherer(
            lambda url, body, timeout: api.begin(url, body, timeout=timeout),
            lambda url, bodies, timeout: api.begin_many(url, bodies, timeout=timeout),
        )
        self._routes = routes
        self._group = group
        self._statistics = statistics
        self._attempts = Attempts(routes, faults)
        self._attempts_max = attempts_max
        self._unique_ids = UniqueIds(local_address(), random.getrandbits(32))

    def id_of(self, message: Message) -> str:
        """Return the transaction id of *message*: its own unique id, or a new one."""
        if message.message_id:
            return message.message_id
        return self._unique_ids.next(time.time_ns() // 1_000_000, process_id())

    async def send(
        self,
        message: Message,
        transaction_id: str,
        queue_of: QueueOf,
        *,
        check_immunity_seconds: float | None,
        timeout: float,
    ) -> tuple[HalfMessage, str]:
        """Store the half message; return it with its broker's URL.

        Args:
            message: What to send.
            transaction_id: The result of :meth:`id_of`.
            queue_of: Returns the target queue.
            check_immunity_seconds: How long the transaction is not checked.
            timeout: Seconds for all attempts together.

        Raises:
            SendFailedError: Every attempt failed; a broker may have stored the half message.
            ErucaError: As for sending.
        """
        sent_at = time.monotonic()
        course = _Course(message, transaction_id, queue_of, check_immunity_seconds, timeout)
        while True:
            course.attempt += 1
            try:
                receipt = await self._attempt(course)
            except ErucaError as error:
                course.failures.append((course.broker_name or "no broker", error))
                try:
                    await self._prepare_next(course, error)
                except ErucaError:
                    self._account(course, sent_at, failed=True)
                    raise
            else:
                self._account(course, sent_at)
                queue = MessageQueue(receipt.topic, receipt.broker_name, receipt.queue_id)
                begun_at = datetime.fromisoformat(receipt.begun_at)
                half = HalfMessage(
                    transaction_id,
                    message,
                    queue,
                    receipt.half_log_offset,
                    begun_at,
                    receipt.durability,
                )
                return half, course.url

    def _account(self, course: _Course, begun_at: float, *, failed: bool = False) -> None:
        self._statistics.add_call("send", course.topic, self._group, 1, begun_at, failed=failed)

    async def _attempt(self, course: _Course) -> TransactionReceipt:
        if course.is_bound:
            queue = course.bound_queue
            view = self._routes.cached_publish_view(course.topic)
            # The broker may have a new URL; while it is away, it is not in the route.
            course.url = (
                course.url if view is None else view.urls.get(queue.broker_name, course.url)
            )
        else:
            view = course.view = await self._attempts.view(course.topic, course.deadline)
            if course.wanted is None:
                course.wanted = course.queue_of(view)
            queue = course.wanted or self._attempts.choose(
                view, course.broker_name, course.patience
            )
            course.queue = queue
            if view.is_missed(queue):
                view = course.view = await self._attempts.view_with(queue, course.deadline)
            course.url = view.url_of(queue)
        request = NewTransaction(
            topic=course.topic,
            producer_group=self._group,
            message=new_message(course.message, course.transaction_id),
            queue_id=queue.queue_id,
            check_immunity_seconds=course.check_immunity_seconds,
        )
        attempts_left = self._attempts_max - course.counted
        if course.is_bound and self._attempts_max > 1:
            attempts_left = 2
        if view is not None and view.has_successor(queue.broker_name):
            attempts_left = max(attempts_left, 2)  # or a silent master would take all of the time
        seconds = attempt_seconds(remaining_seconds(course.deadline), attempts_left)
        began_at = time.monotonic()
        try:
            body = begin_body(request)
            receipt = await self._gatherer.ask(course.url, body, size=len(body), timeout=seconds)
        except ErucaError as error:
            self._attempts.report(queue, began_at, error)
            course.is_bound |= may_be_stored(error)
            raise
        self._attempts.report(queue, began_at, None)
        return receipt

    async def _prepare_next(self, course: _Course, error: ErucaError) -> None:
        """Wait until the next attempt is due; raise the final error if there is none."""
        attempts_left = 1
        awaits_master = is_awaited(course.view, course.queue, error)
        if awaits_master:
            course.away.add(course.broker_name)
        elif not course.is_bound or self._attempts_max == 1:
            course.counted += 1
            attempts_left = self._attempts_max - course.counted
        retry = next_retry(
            error,
            attempt=course.attempt,
            attempts_max=course.attempt + attempts_left,
            deadline=course.deadline,
            last_broker=course.broker_name,
            next_brokers=course.next_brokers - course.away,
            patience=course.patience,
            awaits_master=awaits_master,
        )
        if retry is None:
            raise _final_error(course, error) from error
        await self._attempts.until_next(course.topic, retry, error, course.deadline)


class _Course:
    """The progress of sending one half message."""

    def __init__(
        self,
        message: Message,
        transaction_id: str,
        queue_of: QueueOf,
        check_immunity_seconds: float | None,
        timeout: float,
    ) -> None:
        self.message = message
        self.topic = message.topic
        self.transaction_id = transaction_id
        self.queue_of = queue_of
        self.check_immunity_seconds = check_immunity_seconds
        self.deadline = asyncio.get_running_loop().time() + timeout
        self.attempt = 0
        self.counted = 0  # failed attempts that count
        self.away: set[str | None] = set()  # brokers that are awaited
        self.view: PublishView | None = None
        self.wanted: MessageQueue | None = None  # where it must go
        self.queue: MessageQueue | None = None  # the last attempt's
        self.url = ""
        self.is_bound = False  # to that queue, which may have the half message
        self.failures: list[tuple[str, ErucaError]] = []
        self.patience = Patience()

    @property
    def bound_queue(self) -> MessageQueue:
        assert self.is_bound
        assert self.queue is not None
        return self.queue

    @property
    def broker_name(self) -> str | None:
        return None if self.queue is None else self.queue.broker_name

    @property
    def next_brokers(self) -> set[str]:
        """The brokers that the next attempt can use."""
        if (queue := self.bound_queue if self.is_bound else self.wanted) is not None:
            return {queue.broker_name}
        return set() if self.view is None else {queue.broker_name for queue in self.view.queues}


def _final_error(course: _Course, error: ErucaError) -> ErucaError:
    if is_raised_unchanged(error, course.failures) or course.queue is None:
        return error  # no broker has failed
    attempts, how = tried(course.failures)
    stored = "it may be stored" if course.is_bound else "it is not stored"
    return SendFailedError(
        f"half message {course.transaction_id} to {course.topic}: {attempts} failed, {stored}:"
        f" {how}",
        attempts=course.failures,
    )
