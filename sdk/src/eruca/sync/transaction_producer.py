"""The transaction producer: messages that are delivered if, and only if, local work was done.

Generated from ``eruca.aio.transaction_producer`` by ``sdk/tools/generate_sync.py``; change that one.
How it works and which threads may do what is said in :mod:`eruca.sync.portal`.
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

    Entering it stores the half message, or raises, and then the block does not run. A block that
    ends well commits. One that raises leaves the transaction to the checker, or rolls it back if
    that was asked for. Within the block, or after it, ``commit`` and ``rollback`` decide at once.
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
        """Its id, which is also the message's; to be stored with the local work."""
        return self._twin.transaction_id

    @property
    def result(self) -> TransactionResult:
        """The result of the transaction, once it is concluded."""
        return self._twin.result

    def commit(self) -> TransactionResult:
        """Have the message delivered.

        Raises:
            AlreadyDecidedError: It was rolled back: by an answer to a check, an operator, or since
                all checks were used up.
            TransactionNotFoundError: The broker does not know the transaction.
            TopicNotFoundError: The topic is gone; the transaction stays pending.
        """
        return self._portal.call(self._twin.commit)

    def rollback(self, *, reason: str | None = None) -> TransactionResult:
        """Have the message never delivered; raises as :meth:`commit` does.

        Args:
            reason: For whoever looks at the transaction.
        """
        return self._portal.call(self._twin.rollback, reason=reason)

    def conclude(self, verdict: Verdict, *, reason: str | None = None) -> TransactionResult:
        """Commit, roll back, or leave the transaction to the checker: ``unknown``.

        A decision that does not reach the broker in time leaves it to the checker as well, and is
        what a check is answered; ``result.is_decided`` tells. Repeating a decision is harmless.

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
        """The producer group, whose members are asked about its transactions."""
        return self._twin.group

    @property
    def client_id(self) -> str:
        """The client id that answers checks."""
        return self._twin.client_id

    def start(self) -> None:
        """Begin to answer checks; a first transaction does so, too. Harmless when repeated.

        A program that was started again should do this at once, whatever it sends: there may be
        transactions that it left undecided.
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
        """Store a half message, call *execute*, and do as that says.

        *execute* gets the half message, whose ``transaction_id`` is to be stored together with the
        work, and returns ``"commit"``, ``"rollback"`` or ``"unknown"``, which is also what
        returning nothing means. It runs in the thread that calls this.

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
        """Return a transaction, to be entered: the block is the local work, and commits at its end.

        The arguments are those of :meth:`send_in_transaction`, and so is what entering may raise.
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

        Transactions that are under way can still be decided, until the client is closed.
        """
        self._portal.leave(self._twin.close)

    def broker_health(self) -> tuple[BrokerHealth, ...]:
        """Return how the brokers stand with this producer, best first.

        Empty while latency fault tolerance is off: then nothing is remembered.
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
