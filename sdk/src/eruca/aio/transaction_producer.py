"""The transaction producer: messages that are delivered if, and only if, local work was done.

A half message is stored first, which nobody sees; then the program does its work; then the message
is committed or rolled back. Where the program dies in between, or cannot tell, a transaction
checker asks the producer group: any of its members, after any restart, is to know from what the
work has left behind. What happens when is drawn in :mod:`eruca.core.producing.transactions`.

Checks are answered from the moment the producer is started, beside the program's own code.

Concurrency rule: belongs to the event loop that first uses it; any number of tasks may have
transactions.

Source: RocketMQ 5.3, ``TransactionMQProducer``.
"""

from __future__ import annotations

import logging
import os
import secrets
import socket
import time
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from eruca.aio.cluster.transaction_api import CheckApi, TransactionApi
from eruca.aio.local_address import local_address
from eruca.aio.local_calls import LocalCalls, returned_before
from eruca.aio.producer import queue_of
from eruca.aio.transactions.check_loop import CheckLoop
from eruca.aio.transactions.checkers import Checkers
from eruca.aio.transactions.decisions import Decisions
from eruca.aio.transactions.half_sender import HalfSender
from eruca.contract.errors import ClosedError, ErucaError, ValidationError
from eruca.core.checked_arguments import checked_calls
from eruca.core.checked_numbers import checked_seconds
from eruca.core.failure_text import text_of_error
from eruca.core.messages.message import Message
from eruca.core.messages.message_queue import MessageQueue
from eruca.core.producing.transaction_book import TransactionBook
from eruca.core.producing.transaction_settings import (
    LocalCode,
    OnError,
    TransactionSettings,
    checked_immunity,
    checked_on_error,
)
from eruca.core.producing.transactions import (
    HalfMessage,
    TransactionResult,
    Verdict,
    verdict_of,
)
from eruca.core.routing.latency_fault import BrokerHealth, fault_table
from eruca.core.routing.selectors import QueueSelector, SelectorArgument

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from eruca.aio.cluster.client_context import ClientContext
    from eruca.core.routing.route_table import PublishView

LOCAL_THREADS_MAX: Final = 32  # local code that is no async function, at a time

_logger = logging.getLogger(__name__)


@checked_calls()
class AsyncTransaction:
    """One transaction, as a context manager; made by :meth:`AsyncTransactionProducer.transaction`.

    Entering it stores the half message, or raises, and then the block does not run. A block that
    ends well commits. One that raises leaves the transaction to the checker, or rolls it back if
    that was asked for. Within the block, or after it, ``commit`` and ``rollback`` decide at once.
    """

    def __init__(
        self,
        begin: Callable[[], Awaitable[tuple[HalfMessage, str]]],
        decisions: Decisions,
        book: TransactionBook,
        on_error: OnError,
    ) -> None:
        self._begin = begin
        self._decisions = decisions
        self._book = book
        self._on_error = on_error
        self._half: HalfMessage | None = None
        self._url = ""
        self._verdict: Verdict | None = None
        self._result: TransactionResult | None = None

    @property
    def half(self) -> HalfMessage:
        """The half message."""
        if self._half is None:
            raise ClosedError("the transaction has not been begun", fix="enter it: async with …")
        return self._half

    @property
    def transaction_id(self) -> str:
        """Its id, which is also the message's; to be stored with the local work."""
        return self.half.transaction_id

    @property
    def result(self) -> TransactionResult:
        """The result of the transaction, once it is concluded."""
        if self._result is None:
            raise ClosedError("the transaction has not been concluded")
        return self._result

    async def commit(self) -> TransactionResult:
        """Have the message delivered.

        Raises:
            AlreadyDecidedError: It was rolled back: by an answer to a check, an operator, or since
                all checks were used up.
            TransactionNotFoundError: The broker does not know the transaction.
            TopicNotFoundError: The topic is gone; the transaction stays pending.
        """
        return await self.conclude("commit")

    async def rollback(self, *, reason: str | None = None) -> TransactionResult:
        """Have the message never delivered; raises as :meth:`commit` does.

        Args:
            reason: For whoever looks at the transaction.
        """
        return await self.conclude("rollback", reason=reason)

    async def conclude(self, verdict: Verdict, *, reason: str | None = None) -> TransactionResult:
        """Commit, roll back, or leave the transaction to the checker: ``unknown``.

        A decision that does not reach the broker in time leaves it to the checker as well, and is
        what a check is answered; ``result.is_decided`` tells. Repeating a decision is harmless.

        Raises:
            ValidationError: The opposite was concluded before.
            ErucaError: As for :meth:`commit`.
        """
        half = self.half
        verdict = verdict_of(verdict)
        if self._verdict is None:
            self._book.conclude(half.transaction_id, verdict)
        elif self._verdict not in ("unknown", verdict):
            raise ValidationError(
                f"transaction {half.transaction_id} was concluded with {self._verdict}; "
                f"it cannot be concluded with {verdict}"
            )
        self._verdict = verdict
        if self._result is None or not self._result.is_decided:
            self._result = await self._told(half, verdict, reason)
        return self._result

    async def _told(
        self, half: HalfMessage, verdict: Verdict, reason: str | None
    ) -> TransactionResult:
        self._result = TransactionResult(half, verdict, None)
        if verdict == "unknown":
            return self._result
        try:
            decision = await self._decisions.deliver(half, self._url, verdict, reason)
        except ErucaError:
            self._book.settle(half.transaction_id)  # the broker knows better
            raise
        if decision is not None:
            self._book.settle(half.transaction_id)
        return TransactionResult(half, verdict, decision)

    async def __aenter__(self) -> Self:
        if self._half is not None:
            raise ClosedError("the transaction has been begun already")
        self._half, self._url = await self._begin()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._verdict is not None:
            return
        if error is None:
            await self.conclude("commit")
            return
        try:
            if (returned := returned_before(error)) is not None:
                await self.conclude(verdict_of(returned.value))
            else:
                await self.conclude(self._on_error, reason=text_of_error(error))
        except ErucaError as failure:
            error.add_note(f"transaction {self.transaction_id} is not what it should be: {failure}")
            _logger.warning("transaction %s after an error: %s", self.transaction_id, failure)
        else:
            if not self.result.is_decided:
                error.add_note(f"transaction {self.transaction_id} is left to the checker")


@checked_calls()
class AsyncTransactionProducer:
    """Sends messages in transactions; made by :meth:`eruca.AsyncClient.transaction_producer`.

    As a context manager it answers checks until the block ends.
    """

    def __init__(self, context: ClientContext, settings: TransactionSettings) -> None:
        self._context = context
        self._settings = settings
        address = socket.inet_ntoa(local_address())
        self._client_id = f"{address}@{os.getpid()}#{secrets.token_hex(4)}"
        self._faults = fault_table(settings.latency_fault)
        self._book = TransactionBook()
        self._calls = LocalCalls(LOCAL_THREADS_MAX, "eruca local code")
        self._sender: HalfSender | None = None
        self._decisions: Decisions | None = None
        self._check_loop: CheckLoop | None = None
        self._is_closed = False

    @property
    def group(self) -> str:
        """The producer group, whose members are asked about its transactions."""
        return self._settings.group

    @property
    def client_id(self) -> str:
        """The client id that answers checks."""
        return self._client_id

    async def start(self) -> None:
        """Begin to answer checks; a first transaction does so, too. Harmless when repeated.

        A program that was started again should do this at once, whatever it sends: there may be
        transactions that it left undecided.
        """
        self._start()

    async def send_in_transaction(
        self,
        message: Message,
        execute: LocalCode,
        *,
        queue: MessageQueue | None = None,
        selector: QueueSelector | None = None,
        selector_arg: SelectorArgument = None,
        check_immunity_seconds: float | None = None,
        on_error: OnError = "unknown",
        timeout_seconds: float | None = None,
    ) -> TransactionResult:
        """Store a half message, call *execute*, and do as that says.

        *execute* gets the half message, whose ``transaction_id`` is to be stored together with the
        work, and returns ``"commit"``, ``"rollback"`` or ``"unknown"``, which is also what
        returning nothing means. A plain function runs in a thread.

        Args:
            message: What to send.
            execute: The local work; it does not run unless the half message is stored.
            queue: Where the message must go; else its sharding key decides, else the producer.
            selector: Picks the queue from the topic's, by *selector_arg*.
            selector_arg: What the selector goes by.
            check_immunity_seconds: For how long nobody is asked what became of it; by default as
                the checker is set. Should be longer than the local work takes.
            on_error: What it means that *execute* raises; the error is raised again in any case.
            timeout_seconds: The time to store the half message; by default the producer's.

        Raises:
            SendFailedError: The half message could not be stored.
            AlreadyDecidedError: The broker has had another decision before.
            ErucaError: As for sending; or the broker refuses the decision.
        """
        if not callable(execute):
            raise ValidationError(f"execute: {execute!r:.60} is not a function")
        async with self.transaction(
            message,
            queue=queue,
            selector=selector,
            selector_arg=selector_arg,
            check_immunity_seconds=check_immunity_seconds,
            on_error=on_error,
            timeout_seconds=timeout_seconds,
        ) as transaction:
            verdict = verdict_of(await self._calls.call(execute, transaction.half))
            await transaction.conclude(verdict)
        return transaction.result

    def transaction(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        selector: QueueSelector | None = None,
        selector_arg: SelectorArgument = None,
        check_immunity_seconds: float | None = None,
        on_error: OnError = "unknown",
        timeout_seconds: float | None = None,
    ) -> AsyncTransaction:
        """Return a transaction, to be entered: the block is the local work, and commits at its end.

        The arguments are those of :meth:`send_in_transaction`, and so is what entering may raise.
        """
        self._start()
        assert self._sender is not None
        assert self._decisions is not None
        book, sender = self._book, self._sender
        seconds = self._settings.send_timeout_seconds
        if timeout_seconds is not None:
            seconds = checked_seconds(timeout_seconds, "timeout_seconds")
        immunity = checked_immunity(check_immunity_seconds)
        wanted = partial(
            _wanted_queue, message, queue=queue, selector=selector, selector_arg=selector_arg
        )

        async def begin() -> tuple[HalfMessage, str]:
            self._check_open()
            transaction_id = sender.id_of(message)
            book.begin(transaction_id)
            try:
                begun = await sender.send(
                    message,
                    transaction_id,
                    wanted,
                    check_immunity_seconds=immunity,
                    timeout=seconds,
                )
            except BaseException:
                # Under an id that was made for it no local code has run or ever will; under one of
                # the program's own it may have, before or elsewhere.
                is_made = message.message_id is None
                book.conclude(transaction_id, "rollback" if is_made else "unknown")
                raise
            book.note_stored(transaction_id)
            return begun

        return AsyncTransaction(begin, self._decisions, book, checked_on_error(on_error))

    async def close(self) -> None:
        """Begin no more transactions, and answer no more checks.

        Transactions that are under way can still be decided, until the client is closed.
        """
        self._is_closed = True
        if self._check_loop is not None:
            await self._check_loop.close()
        self._calls.close()
        self._context.forget(self)

    async def leave(self, *, drain: bool, failed: bool) -> None:
        """Close, as its context or its client ends."""
        await self.close()

    def broker_health(self) -> tuple[BrokerHealth, ...]:
        """Return how the brokers stand with this producer, best first.

        Empty while latency fault tolerance is off: then nothing is remembered.
        """
        return () if self._faults is None else self._faults.health(time.monotonic() * 1000)

    async def __aenter__(self) -> Self:
        self._start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    def _check_open(self) -> None:
        if self._is_closed:
            raise ClosedError("the transaction producer is closed")

    def _start(self) -> None:
        self._check_open()
        if self._sender is not None:
            return
        context, settings = self._context, self._settings
        api = TransactionApi(context.hot_transport)
        self._sender = HalfSender(
            api,
            context.routes,
            settings.group,
            attempts_max=settings.retries_max + 1,
            faults=self._faults,
        )
        self._decisions = Decisions(
            api, context.routes, settings.group, timeout=settings.decision_timeout_seconds
        )
        if settings.check is not None:
            seconds = context.settings.timeout_seconds
            self._check_loop = CheckLoop(
                CheckApi(
                    context.held_transport,
                    settings.group,
                    client_id=self._client_id,
                    timeout=seconds,
                ),
                Checkers(context.name_servers, settings.checker_urls, seconds),
                self._book,
                settings.check,
                concurrency=settings.check_concurrency,
                client_id=self._client_id,
            )


def _wanted_queue(
    message: Message,
    view: PublishView,
    *,
    queue: MessageQueue | None,
    selector: QueueSelector | None,
    selector_arg: SelectorArgument,
) -> MessageQueue | None:
    """Return where a message must go, if that matters."""
    if queue is None and selector is None and message.sharding_key is None:
        return None
    return queue_of(message, view, queue, selector, selector_arg)
