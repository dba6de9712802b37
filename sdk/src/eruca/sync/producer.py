"""The producer: sends single messages or many at once, and groups them into batches itself.

Generated from ``eruca.aio.producer`` by ``sdk/tools/generate_sync.py``; change that one.
See :mod:`eruca.sync.portal` for its design and its rules for threads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from eruca.aio.producer import AsyncProducer
from eruca.sync.portal import Portal, read_here

if TYPE_CHECKING:
    from collections.abc import Iterable
    from concurrent.futures import Future
    from types import TracebackType

    from eruca.core.messages.message import Message
    from eruca.core.messages.message_queue import MessageQueue
    from eruca.core.producing.send_result import SendResult, SendResults
    from eruca.core.routing.latency_fault import BrokerHealth
    from eruca.core.routing.selectors import QueueSelector, SelectorArgument


class Producer:
    """Sends messages; made by :meth:`eruca.Client.producer`.

    As a context manager it sends the buffered messages when the block ends.
    """

    def __init__(self, portal: Portal, twin: AsyncProducer) -> None:
        self._portal = portal
        self._twin = twin

    @property
    def group(self) -> str | None:
        """The producer group; checkers ask its members about the outcome of transactions."""
        return self._twin.group

    def send(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        selector: QueueSelector | None = None,
        selector_arg: SelectorArgument = None,
        timeout_seconds: float | None = None,
    ) -> SendResult:
        """Store *message* and return its place.

        Threads that send at the same time share batches, so concurrent sends are fast. Cancelling the
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
        return self._portal.call(
            self._twin.send,
            message,
            queue=queue,
            selector=selector,
            selector_arg=selector_arg,
            timeout_seconds=timeout_seconds,
        )

    def submit(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        selector: QueueSelector | None = None,
        selector_arg: SelectorArgument = None,
    ) -> Future[SendResult]:
        """Queue *message* for sending and return the future of its result.

        Waits only for room in the buffer, and for the topic's route if the queue must be known. The
        arguments are those of :meth:`send`. The future raises the same errors.
        """
        return self._portal.start(
            self._twin.submit, message, queue=queue, selector=selector, selector_arg=selector_arg
        )

    def send_oneway(
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
        self._portal.call(
            self._twin.send_oneway,
            message,
            queue=queue,
            selector=selector,
            selector_arg=selector_arg,
        )

    def send_many(
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
        return self._portal.call(
            self._twin.send_many,
            read_here(messages),
            queue=queue,
            selector=selector,
            selector_arg=selector_arg,
            timeout_seconds=timeout_seconds,
        )

    def flush(self, timeout_seconds: float | None = None) -> None:
        """Wait until every message submitted so far has been stored or has failed.

        Raises:
            TimeoutExpiredError: It takes longer than *timeout_seconds*.
        """
        self._portal.call(self._twin.flush, timeout_seconds)

    def close(self, *, drain: bool = True, timeout_seconds: float | None = None) -> None:
        """Accept no more messages; send the buffered ones first, unless *drain* is false.

        Messages that are not sent within *timeout_seconds* fail with ClosedError; its text says if
        a broker may have stored them. Default: the producer's send timeout.
        """
        self._portal.leave(self._twin.close, drain=drain, timeout_seconds=timeout_seconds)

    def broker_health(self) -> tuple[BrokerHealth, ...]:
        """Return the producer's view of the brokers' health, best first.

        Empty while latency fault tolerance is off, because the producer records nothing then.
        """
        return self._portal.run(self._twin.broker_health)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._portal.leave(self._twin.__aexit__, kind, error, traceback)
