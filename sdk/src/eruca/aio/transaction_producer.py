"""The transaction producer: a message is delivered if and only if its local work commits.

First, the broker stores a half message, which no consumer sees. Then the program does its local
work. Then the message is committed or rolled back. If the program crashes in between, or does not
know the outcome, a transaction checker asks the producer group. Any member, even after a restart,
must find the outcome in the data that the work left. :mod:`eruca.core.producing.transactions`
contains the state diagram.

The producer answers checks from its start on, concurrently with the program's own code.

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
from eruca.aio.transactions.decisions import Decision, Decisions
from eruca.aio.transactions.half_sender import HalfSender
from eruca.aio.transactions.unawaited import UnawaitedDecisions
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

    Begin = Callable[[Message], Awaitable[tuple[HalfMessage, str]]]

LOCAL_THREADS_MAX: Final = 32  # local code in plain functions, at a time

_logger = logging.getLogger(__name__)


@checked_calls()
class AsyncTransaction:
    """One transaction, as a context manager; made by :meth:`AsyncTransactionProducer.transaction`.

    Entering it stores the half message; if that raises, the block does not run. A block that
    succeeds commits. A block that raises leaves the transaction to the checker, or rolls it back,
    as *on_error* says. ``commit`` and ``rollback``, in the block or after it, decide at once.
    """

    def __init__(
        self,
        begin: Callable[[], Awaitable[tuple[HalfMessage, str]]],
        decisions: Decisions,
        book: TransactionBook,
        on_error: OnError,
        unawaited: UnawaitedDecisions | None,
    ) -> None:
        self._begin = begin
        self._decisions = decisions
        self._unawaited = unawaited
        self._is_handed_over = False
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
            raise ClosedError("the transaction has not begun", fix="enter it: async with …")
        return self._half

    @property
    def transaction_id(self) -> str:
        """Its id, which is also the message's id; store it together with the local work."""
        return self.half.transaction_id

    @property
    def result(self) -> TransactionResult:
        """The result of the transaction, once it is concluded."""
        if self._result is None:
            raise ClosedError("the transaction is not concluded")
        return self._result

    async def commit(self) -> TransactionResult:
        """Commit the transaction: the message is delivered.

        Raises:
            AlreadyDecidedError: It was rolled back: by an answer to a check, by an operator, or
                because all checks were used up.
            TransactionNotFoundError: The broker does not know the transaction.
            TopicNotFoundError: The topic was deleted; the transaction stays pending.
        """
        return await self.conclude("commit")

    async def rollback(self, *, reason: str | None = None) -> TransactionResult:
        """Roll back the transaction: the message is never delivered. Raises as :meth:`commit` does.

        Args:
            reason: For operators who look at the transaction.
        """
        return await self.conclude("rollback", reason=reason)

    async def conclude(self, verdict: Verdict, *, reason: str | None = None) -> TransactionResult:
        """Commit, roll back, or leave the transaction to the checker (``unknown``).

        If a decision does not reach the broker in time, the transaction is left to the checker as
        well, and this producer answers the check with that decision. ``result.is_decided`` is false
        then. Repeating a decision is harmless.

        If the producer does not await decisions, ``result.is_decided`` is false, and no refusal is
        raised, but logged.

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
                f"transaction {half.transaction_id} was concluded with {self._verdict}; it"
                f" cannot be concluded with {verdict}"
            )
        self._verdict = verdict
        if self._result is None or not (self._result.is_decided or self._is_handed_over):
            self._result = await self._told(half, verdict, reason)
        return self._result

    async def _told(
        self, half: HalfMessage, verdict: Verdict, reason: str | None
    ) -> TransactionResult:
        self._result = TransactionResult(half, verdict, None)
        if verdict == "unknown":
            return self._result
        if self._unawaited is not None and not self._unawaited.is_closed:
            await self._unawaited.hand_over(Decision(half, self._url, verdict, reason))
            self._is_handed_over = True
            return self._result
        try:
            decision = await self._decisions.deliver(half, self._url, verdict, reason)
        except ErucaError:
            self._book.settle(half.transaction_id)  # the broker's decision counts
            raise
        if decision is not None:
            self._book.settle(half.transaction_id)
        return TransactionResult(half, verdict, decision)

    async def __aenter__(self) -> Self:
        if self._half is not None:
            raise ClosedError("the transaction has already begun")
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
            error.add_note(
                f"transaction {self.transaction_id} does not have the intended outcome: {failure}"
            )
            _logger.warning("transaction %s after an error: %s", self.transaction_id, failure)
        else:
            if not (self.result.is_decided or self._is_handed_over):
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
        self._unawaited: UnawaitedDecisions | None = None
        self._check_loop: CheckLoop | None = None
        self._is_closed = False

    @property
    def group(self) -> str:
        """The producer group; checkers ask its members about its transactions."""
        return self._settings.group

    @property
    def client_id(self) -> str:
        """The client id that answers checks."""
        return self._client_id

    async def start(self) -> None:
        """Start to answer checks; the first transaction does so, too. Repeating it is harmless.

        Call this right after a restart, whatever the program sends: it may have left undecided
        transactions.
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
        """Store a half message, call *execute*, and commit or roll back by its result.

        *execute* gets the half message. It stores the half message's ``transaction_id`` together
        with its work. It returns ``"commit"``, ``"rollback"`` or ``"unknown"``; None means
        ``"unknown"``. A plain function runs in a thread.

        Args:
            message: What to send.
            execute: The local work; runs only if the half message is stored.
            queue: The target queue; default: the sharding key decides, else the producer.
            selector: Chooses a queue of the topic by *selector_arg*.
            selector_arg: Argument of the selector.
            check_immunity_seconds: How long the transaction is not checked; default: the checker's
                setting. It should be longer than the local work takes.
            on_error: The outcome if *execute* raises; the error is raised again in any case.
            timeout_seconds: Time limit for storing the half message; default: the producer's.

        Raises:
            SendFailedError: The half message could not be stored.
            AlreadyDecidedError: The broker already has another decision.
            ErucaError: As for sending; or the broker refuses the decision.
        """
        if not callable(execute):
            raise ValidationError(f"execute: expected a function, found {execute!r:.60}")
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
        """Return a transaction as a context: the block is the local work and commits at its end.

        The arguments are those of :meth:`send_in_transaction`. Entering raises the same errors.
        """
        self._start()
        assert self._sender is not None
        assert self._decisions is not None
        book, sender = self._book, self._sender
        seconds = self._settings.send_timeout_seconds
        if timeout_seconds is not None:
            seconds = checked_seconds(timeout_seconds, "timeout_seconds")
        immunity = checked_immunity(check_immunity_seconds)

        async def begin(message: Message) -> tuple[HalfMessage, str]:
            self._check_open()
            wanted = partial(
                _wanted_queue, message, queue=queue, selector=selector, selector_arg=selector_arg
            )
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
                # No local code has run under an id that was made just now, and none will. Under the
                # program's own id it may have run before or elsewhere.
                is_made = message.message_id is None
                book.conclude(transaction_id, "rollback" if is_made else "unknown")
                raise
            book.note_stored(transaction_id)
            return begun

        return AsyncTransaction(
            lambda: self._begin(message, begin),
            self._decisions,
            book,
            checked_on_error(on_error),
            self._unawaited,
        )

    async def close(self) -> None:
        """Begin no more transactions, and answer no more checks.

        Decisions that nobody awaits are delivered first. Transactions under way can still be
        decided, until the client is closed; now every decision is awaited.
        """
        self._is_closed = True
        if self._unawaited is not None:
            await self._unawaited.close()
        if self._check_loop is not None:
            await self._check_loop.close()
        self._calls.close()
        self._context.forget(self)

    async def leave(self, *, drain: bool, failed: bool) -> None:
        """Close because the context or the client ends."""
        if self._unawaited is not None and not drain:
            self._unawaited.give_up()
        await self.close()

    def broker_health(self) -> tuple[BrokerHealth, ...]:
        """Return the producer's view of the brokers' health, best first.

        Empty while latency fault tolerance is off, because the producer records nothing then.
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

    async def _begin(self, message: Message, begin: Begin) -> tuple[HalfMessage, str]:
        return await begin(message)

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
            statistics=context.statistics,
        )
        self._decisions = Decisions(
            api, context.routes, settings.group, timeout=settings.decision_timeout_seconds
        )
        if not settings.await_decisions:
            self._unawaited = UnawaitedDecisions(self._decisions, self._book)
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
    """Return the queue a message must go to; None if it may go to any."""
    if queue is None and selector is None and message.sharding_key is None:
        return None
    return queue_of(message, view, queue, selector, selector_arg)
