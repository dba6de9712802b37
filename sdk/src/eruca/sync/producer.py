"""The producer: sends messages, alone or many at once, in batches that form by themselves.

Generated from ``eruca.aio.producer`` by ``sdk/tools/generate_sync.py``; change that one.
How it works and which threads may do what is said in :mod:`eruca.sync.portal`.
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

    As a context manager it drains what has not been sent when the block ends.
    """

    def __init__(self, portal: Portal, twin: AsyncProducer) -> None:
        self._portal = portal
        self._twin = twin

    @property
    def group(self) -> str | None:
        """The producer group; transactions ask its members about their outcome."""
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
        """Store *message* and return where.

        Many threads that send at the same time share batches, so concurrency is what makes it fast.
        Cancelling it takes the message back if it has not left yet.

        Args:
            message: What to send.
            queue: Where it must go; else its sharding key decides, else the producer.
            selector: Picks the queue from the topic's, by *selector_arg*.
            selector_arg: What the selector goes by.
            timeout_seconds: The time for all attempts together; by default the producer's.

        Raises:
            SendFailedError: Every attempt failed; it is unknown whether one of them stored it.
            TopicNotFoundError: The topic does not exist, and is not created by sending to it.
            NoRouteError: No live broker takes messages of the topic.
            NameServersUnreachableError: No name server answered.
            TimeoutExpiredError: The deadline passed before there was an attempt.
            RefusedError, RequestError: The broker will not have it.
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
        """Put *message* on its way and return the future of its result.

        Waits only for room in the buffer, and for the topic's route where a queue must be known.
        The arguments are those of :meth:`send`, and so is what the future may raise.
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
        """Put *message* on its way and forget it: nobody learns whether it was stored.

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
        """Store *messages* and return where, in their order.

        They are parted by queue and by the limits of a batch. Each batch is stored as a whole or
        not at all; several are under way at a time. Messages for the same queue stay in order.

        What is returned is a sequence of one SendResult for each message, made when it is first
        looked at.

        Args:
            messages: What to send; topics may differ.
            queue: Where all of them must go.
            selector: Picks the queue of all of them, by *selector_arg*.
            selector_arg: What the selector goes by.
            timeout_seconds: The time for all attempts of one batch, from when it is first tried; by
                default the producer's. Where none is stored for as long, the rest fails untried.

        Raises:
            PartialSendError: Some batches were stored and others not; says which messages.
            ErucaError: There was but one batch, or none was stored: as :meth:`send`.
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
        """Wait until everything submitted so far has been stored or has failed.

        Raises:
            TimeoutExpiredError: It takes longer than *timeout_seconds*.
        """
        self._portal.call(self._twin.flush, timeout_seconds)

    def close(self, *, drain: bool = True, timeout_seconds: float | None = None) -> None:
        """Take no more messages; send what is here first, unless *drain* is false.

        What cannot be sent within *timeout_seconds*, by default the producer's time-out for a
        send, fails with ClosedError, which says so where it may have been stored all the same.
        """
        self._portal.leave(self._twin.close, drain=drain, timeout_seconds=timeout_seconds)

    def broker_health(self) -> tuple[BrokerHealth, ...]:
        """Return how the brokers stand with this producer, best first.

        Empty while latency fault tolerance is off: then nothing is remembered.
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
