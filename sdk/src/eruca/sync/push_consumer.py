"""The push consumer: shares a group's queues with its other members and calls handlers.

Generated from ``eruca.aio.push_consumer`` by ``sdk/tools/generate_sync.py``; change that one.
See :mod:`eruca.sync.portal` for its design and its rules for threads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from eruca.aio.push_consumer import AsyncPushConsumer, F
from eruca.aio.stop_signals import stop_on_signals
from eruca.core.filters.tag_expression import SUBSCRIBE_ALL
from eruca.sync.portal import Portal

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from eruca.core.consuming.handler_shape import Handler
    from eruca.core.filters.subscription_filter import Filter
    from eruca.core.messages.message_queue import MessageQueue


class PushConsumer:
    """Consumes as a member of a group; made by :meth:`eruca.Client.push_consumer`.

    As a context manager it starts when the block begins and stops when it ends.
    """

    def __init__(self, portal: Portal, twin: AsyncPushConsumer) -> None:
        self._portal = portal
        self._twin = twin

    @property
    def group(self) -> str:
        """The consumer's group."""
        return self._twin.group

    @property
    def client_id(self) -> str:
        """The consumer's name in the group."""
        return self._twin.client_id

    @property
    def is_running(self) -> bool:
        """True after the start and before the stop."""
        return self._twin.is_running

    @property
    def failure(self) -> BaseException | None:
        """The error that ended the consumer; None after an ordinary stop."""
        return self._twin.failure

    @property
    def assignment(self) -> list[MessageQueue]:
        """The queues that it reads now, sorted; the retry topic's are included."""
        return self._twin.assignment

    @property
    def damaged_count(self) -> int:
        """Number of messages it skipped because their brokers found them damaged."""
        return self._twin.damaged_count

    def subscribe(
        self,
        topic: str,
        filter: Filter | None = SUBSCRIBE_ALL,
        handler: Handler | None = None,
        *,
        filter_type: str = "tag",
    ) -> None:
        """Call *handler* with the messages of *topic* that match *filter*.

        Args:
            topic: The topic.
            filter: Tags, ``"a || b"``, or a condition over properties, ``eruca.sql("a > 5")``.
            handler: An async or plain function of a message, or of a list of messages if the
                consumer's batches may have several. If it requires a second argument, it gets an
                :class:`eruca.ConsumeContext`.
            filter_type: The type of a *filter* given as text: ``tag`` or ``sql92``.

        Raises:
            ValidationError: A value is invalid, or the consumer has already been started.
        """
        return self._portal.run(
            self._twin.subscribe, topic, filter, handler, filter_type=filter_type
        )

    def on(self, topic: str, *, tag: str | None = None, sql: str | None = None) -> Callable[[F], F]:
        """Return a decorator that makes a function the handler of *topic*.

        Args:
            topic: The topic.
            tag: Tags, ``"a || b"``; default: all.
            sql: A condition over properties, ``"price > 20"``; excludes *tag*.
        """
        return self._portal.run(self._twin.on, topic, tag=tag, sql=sql)

    def start(self) -> None:
        """Join the group and start reading; queues arrive when other members hand them over.

        If brokers are away, they may be restarting, so this waits for them up to 30 seconds.

        Raises:
            ValidationError: The consumer has no handler.
            TopicNotFoundError: A topic does not exist, and the consumer does not wait for it.
            SubscriptionConflictError: The group has other subscriptions.
            ClientIdInUseError: Another process uses this client id.
            ClosedError: The client was closed meanwhile.
            ErucaError: No broker answered, or a broker refuses this member.
        """
        self._portal.call(self._twin.start)

    def wait_stopped(self) -> None:
        """Wait until the consumer has been stopped.

        Raises:
            ValidationError: The consumer has not been started.
            ErucaError: The consumer cannot continue: it was fenced, or the group's subscriptions
                changed.
        """
        self._portal.call(self._twin.wait_stopped)

    def run(self) -> None:
        """Start, if that has not been done, and return when the consumer has been stopped.

        SIGTERM and Ctrl-C stop it in order: handlers end, offsets are committed, and queues are
        handed over. A second signal ends the process. If the program handles a signal itself, its
        handler stays in place. For several consumers see :func:`eruca.stop_on_signals`.

        Raises:
            ErucaError: As :meth:`start` and :meth:`wait_stopped`.
        """
        with stop_on_signals(self):
            with self:
                self.wait_stopped()

    def stop_soon(self) -> None:
        """Begin to stop, without waiting for it; any thread or signal handler may call this.

        A consumer that has not been started stops right after its start.
        """
        self._twin.stop_soon()

    def stop(self) -> None:
        """Stop without losing messages: end handlers, commit, hand over queues, leave the group.

        Handlers that take longer than ``stop_timeout_seconds`` are abandoned: other members handle
        their messages again. A handler must not wait for this call: it would wait for itself and be
        abandoned. If the consumer is being started, it stops right after its start.
        """
        self._portal.call(self._twin.stop)

    def pause(self, *queues: MessageQueue) -> None:
        """Hand out nothing from *queues* until they are resumed; default: from all.

        The queues stay with this member. A running batch continues.
        """
        self._portal.call(self._twin.pause, *queues)

    def resume(self, *queues: MessageQueue) -> None:
        """Hand out messages from *queues* again; default: from all."""
        self._portal.call(self._twin.resume, *queues)

    def close(self) -> None:
        """Stop; see :meth:`stop`."""
        self._portal.leave(self._twin.close)

    def __enter__(self) -> Self:
        self._portal.call(self._twin.__aenter__)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._portal.leave(self._twin.__aexit__, kind, error, traceback)
