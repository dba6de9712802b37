"""The push consumer: shares a group's queues with its other members and calls handlers.

::

    consumer = client.push_consumer("billing")

    @consumer.on("flights", tag="UA || AA")
    async def bill(message: eruca.ReceivedMessage) -> None:
        ...

    await consumer.run()  # until SIGTERM or Ctrl-C

**Handlers** are async functions, which run as tasks, or plain functions, which run in threads. If a
handler returns, its messages are acknowledged. If it raises, they are redelivered after a delay;
after too many failures they become dead letters. :class:`eruca.ConsumeStatus` lists the other
results of a handler. A handler with a second argument gets an :class:`eruca.ConsumeContext`.

**Delivery** is at least once. As long as members join and leave in an orderly way, each message is
handled once. If a member crashes, or is cut off for longer than its session, other members handle
its unfinished messages again. These are the messages in its handlers, and the finished ones that
were not committed yet (see ``offsets.commit_seconds``).

:mod:`eruca.aio.push` describes the implementation, with its states and invariants.

Concurrency rule: belongs to the event loop that first uses it.

Source: RocketMQ 5.3, ``DefaultMQPushConsumer``.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self, TypeVar

from eruca.aio.local_address import local_address
from eruca.aio.push.running import RunningConsumer
from eruca.aio.stop_signals import stop_on_signals
from eruca.contract.errors import ClosedError, ErucaError, ValidationError
from eruca.core.checked_arguments import checked_calls
from eruca.core.consuming.handler_shape import Handler, handler_shape
from eruca.core.consuming.handler_table import HandlerTable
from eruca.core.consuming.push_settings import PushSettings
from eruca.core.filters.subscription_filter import Filter
from eruca.core.filters.tag_expression import SUBSCRIBE_ALL
from eruca.core.interceptors import Interceptor
from eruca.core.messages.message_queue import MessageQueue

if TYPE_CHECKING:
    from eruca.aio.cluster.client_context import ClientContext

F = TypeVar("F", bound=Handler)

_INCARNATION_BYTES: Final = 8
_BROADCASTING_NAME: Final = "DEFAULT"  # RocketMQ's instance name; fixed, to find the offsets again

_logger = logging.getLogger(__name__)


@checked_calls(but=("run", "stop_soon"))
class AsyncPushConsumer:
    """Consumes as a member of a group; made by :meth:`eruca.AsyncClient.push_consumer`.

    As a context manager it starts when the block begins and stops when it ends.
    """

    def __init__(
        self,
        context: ClientContext,
        settings: PushSettings,
        interceptors: Sequence[Interceptor] = (),
    ) -> None:
        self._context = context
        self._settings = settings
        self._interceptors = interceptors
        self._handlers = HandlerTable()
        self._client_id = settings.client_id or _new_client_id(settings)
        self._incarnation = secrets.token_hex(_INCARNATION_BYTES)
        self._running: RunningConsumer | None = None
        self._failure: BaseException | None = None
        self._starting: asyncio.Task[None] | None = None
        self._stopping: asyncio.Task[None] | None = None
        self._stopped = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_to_stop = False

    @property
    def group(self) -> str:
        """The consumer's group."""
        return self._settings.group

    @property
    def client_id(self) -> str:
        """The consumer's name in the group."""
        return self._client_id

    @property
    def is_running(self) -> bool:
        """True after the start and before the stop."""
        return self._running is not None and not self._stopped.is_set()

    @property
    def failure(self) -> BaseException | None:
        """The error that ended the consumer; None after an ordinary stop."""
        return self._failure

    @property
    def assignment(self) -> list[MessageQueue]:
        """The queues that it reads now, sorted; the retry topic's are included."""
        return [] if self._running is None else self._running.queues

    @property
    def damaged_count(self) -> int:
        """Number of messages it skipped because their brokers found them damaged."""
        return 0 if self._running is None else self._running.damaged_count

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
        if self._running is not None:
            raise ValidationError("subscribe before the consumer is started")
        shape = handler_shape(handler)
        assert handler is not None
        self._handlers.add(
            topic,
            handler,
            expression=filter,
            filter_type=filter_type,
            is_async=shape.is_async,
            takes_context=shape.takes_context,
        )

    def on(self, topic: str, *, tag: str | None = None, sql: str | None = None) -> Callable[[F], F]:
        """Return a decorator that makes a function the handler of *topic*.

        Args:
            topic: The topic.
            tag: Tags, ``"a || b"``; default: all.
            sql: A condition over properties, ``"price > 20"``; excludes *tag*.
        """
        if tag is not None and sql is not None:
            raise ValidationError("tag and sql exclude each other")

        def decorate(function: F) -> F:
            self.subscribe(
                topic,
                SUBSCRIBE_ALL if tag is None and sql is None else sql or tag,
                function,
                filter_type="tag" if sql is None else "sql92",
            )
            return function

        return decorate

    async def start(self) -> None:
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
        self._context.check_open()
        if self._stopped.is_set():
            raise ClosedError("the consumer has been stopped")
        if self._running is not None:
            raise ValidationError("the consumer has been started already")
        if not self._handlers.topics:
            raise ValidationError(
                "the consumer has no handler",
                fix="call subscribe(), or decorate a function with on()",
            )
        running = self._running = RunningConsumer(
            self._context,
            self._settings,
            self._handlers,
            client_id=self._client_id,
            incarnation=self._incarnation,
            on_failure=self._fail,
            interceptors=self._interceptors,
        )
        self._loop = asyncio.get_running_loop()
        self._starting = asyncio.create_task(self._start(running), name="eruca consumer starts")
        if self._is_to_stop:
            self._begin_stop()
        try:
            await self._starting
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            raise ClosedError("the client was closed while the consumer started") from None

    async def wait_stopped(self) -> None:
        """Wait until the consumer has been stopped.

        Raises:
            ValidationError: The consumer has not been started.
            ErucaError: The consumer cannot continue: it was fenced, or the group's subscriptions
                changed.
        """
        if self._running is None and not self._stopped.is_set():
            raise ValidationError(
                "the consumer has not been started, so it would never stop",
                fix="call run() instead, or wait in a with block of the consumer",
            )
        await self._stopped.wait()
        if self._failure is not None:
            raise self._failure

    async def run(self) -> None:
        """Start, if that has not been done, and return when the consumer has been stopped.

        SIGTERM and Ctrl-C stop it in order: handlers end, offsets are committed, and queues are
        handed over. A second signal ends the process. If the program handles a signal itself, its
        handler stays in place. For several consumers see :func:`eruca.stop_on_signals`.

        Raises:
            ErucaError: As :meth:`start` and :meth:`wait_stopped`.
        """
        with stop_on_signals(self):
            async with self:
                await self.wait_stopped()

    def stop_soon(self) -> None:
        """Begin to stop, without waiting for it; any thread or signal handler may call this.

        A consumer that has not been started stops right after its start.
        """
        self._is_to_stop = True
        if self._loop is not None:
            with suppress(RuntimeError):  # the event loop is closed, and so is the consumer
                self._loop.call_soon_threadsafe(self._begin_stop)

    async def stop(self) -> None:
        """Stop without losing messages: end handlers, commit, hand over queues, leave the group.

        Handlers that take longer than ``stop_timeout_seconds`` are abandoned: other members handle
        their messages again. A handler must not wait for this call: it would wait for itself and be
        abandoned. If the consumer is being started, it stops right after its start.
        """
        if self._running is None:
            self._end()
            return
        await asyncio.shield(self._begin_stop())

    async def pause(self, *queues: MessageQueue) -> None:
        """Hand out nothing from *queues* until they are resumed; default: from all.

        The queues stay with this member. A running batch continues.
        """
        self._checked_running().pause(queues)

    async def resume(self, *queues: MessageQueue) -> None:
        """Hand out messages from *queues* again; default: from all."""
        self._checked_running().resume(queues)

    async def close(self) -> None:
        """Stop; see :meth:`stop`."""
        await self.stop()

    async def leave(self, *, drain: bool, failed: bool) -> None:
        """Stop because the client is closed; without *drain*, stop at once."""
        if self._running is None and self._handlers.topics and not failed:
            _logger.warning(
                "the consumer of group %s has handlers but was never started: call run(), or"
                " use it in a with block",
                self.group,
            )
        if not drain and self._running is not None and self._stopping is None:
            await self._until_started(cancel=True)
            if not self._stopped.is_set():
                await self._running.abort()
                self._end()
            return
        await self.stop()

    async def __aenter__(self) -> Self:
        if self._running is None:
            await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.stop()

    async def _start(self, running: RunningConsumer) -> None:
        try:
            await running.start()
        except BaseException:
            await running.abort()
            self._end()
            raise

    async def _until_started(self, *, cancel: bool = False) -> None:
        """Wait until no start is under way; otherwise it would continue after the end."""
        assert self._starting is not None
        if cancel:
            self._starting.cancel()
        await asyncio.wait((self._starting,))

    def _begin_stop(self) -> asyncio.Task[None]:
        if self._stopping is None:
            self._stopping = asyncio.create_task(self._stop(), name="eruca consumer stops")
        return self._stopping

    async def _stop(self) -> None:
        assert self._running is not None
        await self._until_started()
        if self._stopped.is_set():
            return  # its start failed
        try:
            await self._running.stop()
        finally:
            self._end()

    def _end(self) -> None:
        self._stopped.set()
        self._context.forget(self)

    def _fail(self, error: BaseException) -> None:
        """Stop because of an error that no retry fixes."""
        if self._failure is not None or self._stopped.is_set():
            return
        if isinstance(error, ErucaError):
            _logger.error(
                "consumer %s of %s cannot continue: %s", self._client_id, self.group, error
            )
        else:
            _logger.error("consumer %s of %s failed", self._client_id, self.group, exc_info=error)
        self._failure = error
        self._begin_stop()

    def _checked_running(self) -> RunningConsumer:
        if self._running is None or self._stopped.is_set():
            raise ClosedError("the consumer is not running")
        return self._running


def _new_client_id(settings: PushSettings) -> str:
    """Return a client id: a generated one, or in broadcasting the fixed one."""
    address = socket.inet_ntoa(local_address())
    if not settings.is_clustering:
        return f"{address}@{_BROADCASTING_NAME}"
    return f"{address}@{os.getpid()}#{secrets.token_hex(4)}"
