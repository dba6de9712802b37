"""The transaction producer: a message is delivered if and only if its local work commits.

Generated from ``eruca.aio.transaction_producer`` by ``sdk/tools/generate_sync.py``; change that one.
See :mod:`eruca.sync.portal` for its design and its rules for threads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from eruca.aio.transaction_producer import AsyncTransaction, AsyncTransactionProducer
from eruca.contract.errors import ValidationError
from eruca.core.producing.transactions import verdict_of
from eruca.sync.portal import Portal

if TYPE_CHECKING:
    from types import TracebackType

    from eruca.core.messages.message import Message
    from eruca.core.messages.message_queue import MessageQueue
    from eruca.core.producing.transaction_settings import LocalCode, OnError
    from eruca.core.producing.transactions import HalfMessage, TransactionResult, Verdict
    from eruca.core.routing.latency_fault import BrokerHealth
    from eruca.core.routing.selectors import QueueSelector, SelectorArgument


class Transaction:
    """One transaction, as a context manager; made by :meth:`TransactionProducer.transaction`.

    Entering it stores the half message; if that raises, the block does not run. A block that
    succeeds commits. A block that raises leaves the transaction to the checker, or rolls it back,
    as *on_error* says. ``commit`` and ``rollback``, in the block or after it, decide at once.
    """

    def __init__(self, portal: Portal, twin: AsyncTransaction) -> None:
        self._portal = portal
        self._twin = twin

    @property
    def half(self) -> HalfMessage:
        """The half message."""
        return self._twin.half

    @property
    def transaction_id(self) -> str:
        """Its id, which is also the message's id; store it together with the local work."""
        return self._twin.transaction_id

    @property
    def result(self) -> TransactionResult:
        """The result of the transaction, once it is concluded."""
        return self._twin.result

    def commit(self) -> TransactionResult:
        """Commit the transaction: the message is delivered.

        Raises:
            AlreadyDecidedError: It was rolled back: by an answer to a check, by an operator, or
                because all checks were used up.
            TransactionNotFoundError: The broker does not know the transaction.
            TopicNotFoundError: The topic was deleted; the transaction stays pending.
        """
        return self._portal.call(self._twin.commit)

    def rollback(self, *, reason: str | None = None) -> TransactionResult:
        """Roll back the transaction: the message is never delivered. Raises as :meth:`commit` does.

        Args:
            reason: For operators who look at the transaction.
        """
        return self._portal.call(self._twin.rollback, reason=reason)

    def conclude(self, verdict: Verdict, *, reason: str | None = None) -> TransactionResult:
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
        return self._portal.call(self._twin.conclude, verdict, reason=reason)

    def __enter__(self) -> Self:
        self._portal.call(self._twin.__aenter__)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._portal.call(self._twin.__aexit__, kind, error, traceback)


class TransactionProducer:
    """Sends messages in transactions; made by :meth:`eruca.Client.transaction_producer`.

    As a context manager it answers checks until the block ends.
    """

    def __init__(self, portal: Portal, twin: AsyncTransactionProducer) -> None:
        self._portal = portal
        self._twin = twin

    @property
    def group(self) -> str:
        """The producer group; checkers ask its members about its transactions."""
        return self._twin.group

    @property
    def client_id(self) -> str:
        """The client id that answers checks."""
        return self._twin.client_id

    def start(self) -> None:
        """Start to answer checks; the first transaction does so, too. Repeating it is harmless.

        Call this right after a restart, whatever the program sends: it may have left undecided
        transactions.
        """
        self._portal.call(self._twin.start)

    def send_in_transaction(
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
        ``"unknown"``. It runs in the thread that calls this.

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
        with self.transaction(
            message,
            queue=queue,
            selector=selector,
            selector_arg=selector_arg,
            check_immunity_seconds=check_immunity_seconds,
            on_error=on_error,
            timeout_seconds=timeout_seconds,
        ) as transaction:
            verdict = verdict_of(execute(transaction.half))
            transaction.conclude(verdict)
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
    ) -> Transaction:
        """Return a transaction as a context: the block is the local work and commits at its end.

        The arguments are those of :meth:`send_in_transaction`. Entering raises the same errors.
        """
        return Transaction(
            self._portal,
            self._portal.run(
                self._twin.transaction,
                message,
                queue=queue,
                selector=selector,
                selector_arg=selector_arg,
                check_immunity_seconds=check_immunity_seconds,
                on_error=on_error,
                timeout_seconds=timeout_seconds,
            ),
        )

    def close(self) -> None:
        """Begin no more transactions, and answer no more checks.

        Decisions that nobody awaits are delivered first. Transactions under way can still be
        decided, until the client is closed; now every decision is awaited.
        """
        self._portal.leave(self._twin.close)

    def broker_health(self) -> tuple[BrokerHealth, ...]:
        """Return the producer's view of the brokers' health, best first.

        Empty while latency fault tolerance is off, because the producer records nothing then.
        """
        return self._portal.run(self._twin.broker_health)

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
