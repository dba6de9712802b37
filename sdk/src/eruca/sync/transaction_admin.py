"""Administration of transactions: undecided ones, one by its id, an operator's decision.

Generated from ``eruca.aio.transaction_admin`` by ``sdk/tools/generate_sync.py``; change that one.
See :mod:`eruca.sync.portal` for its design and its rules for threads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from eruca.aio.transaction_admin import AsyncTransactionAdmin
from eruca.sync.portal import Portal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from eruca.contract.errors import ErucaError
    from eruca.contract.transactions import (
        DecisionReceipt,
        TransactionAsOf,
        TransactionDetail,
        TransactionSummary,
    )


class TransactionAdmin:
    """Transactions of one cluster; made by :attr:`Admin.transactions`."""

    def __init__(self, portal: Portal, twin: AsyncTransactionAdmin) -> None:
        self._portal = portal
        self._twin = twin

    def undecided(
        self,
        *,
        state: Literal["pending", "parked"] | None = None,
        producer_group: str | None = None,
        broker_name: str | None = None,
        unanswered: dict[str, ErucaError] | None = None,
    ) -> Iterator[TransactionSummary]:
        """Iterate over pending or parked transactions, oldest first.

        Args:
            state: ``pending``: undecided. ``parked``: rolled back because there was no decision in
                time; an operator may still commit it.
            producer_group: Only transactions of this group.
            broker_name: Only transactions on this broker.
            unanswered: Collects the brokers that do not answer, each with its error. None: an
                unanswered request raises.
        """
        return self._portal.iterate(
            self._twin.undecided(
                state=state,
                producer_group=producer_group,
                broker_name=broker_name,
                unanswered=unanswered,
            )
        )

    def get(self, transaction_id: str, *, broker_name: str | None = None) -> TransactionDetail:
        """Return a transaction with its message and history, as long as its broker keeps them.

        Args:
            transaction_id: Its id.
            broker_name: Where to look; default: on all brokers.

        Raises:
            TransactionNotFoundError: No broker knows it.
            ValidationError: Several brokers have a transaction with this id.
        """
        return self._portal.call(self._twin.get, transaction_id, broker_name=broker_name)

    def as_of(self, transaction_id: str, *, broker_name: str, log_offset: int) -> TransactionAsOf:
        """Return the state of a transaction as of an earlier offset of its broker's log.

        Args:
            transaction_id: Its id.
            broker_name: The broker that has it.
            log_offset: The state is that after all records before it.

        Raises:
            ValidationError: The log does not reach that far.
        """
        return self._portal.call(
            self._twin.as_of, transaction_id, broker_name=broker_name, log_offset=log_offset
        )

    def commit(
        self, transaction_id: str, *, reason: str, broker_name: str | None = None
    ) -> DecisionReceipt:
        """Commit a pending or parked transaction as an operator: its message is delivered.

        Args:
            transaction_id: Its id.
            reason: Why; recorded.
            broker_name: Its broker; default: look on all brokers.

        Raises:
            AlreadyDecidedError: It was rolled back by a decision, not because its checks were used
                up.
            TransactionNotFoundError: No broker knows it.
            ValidationError: Several brokers have a transaction with this id.
        """
        return self._portal.call(
            self._twin.commit, transaction_id, reason=reason, broker_name=broker_name
        )

    def rollback(
        self, transaction_id: str, *, reason: str, broker_name: str | None = None
    ) -> DecisionReceipt:
        """Roll back a transaction as an operator: its message is never delivered.

        A parked transaction is discarded. The arguments and errors are those of :meth:`commit`.
        """
        return self._portal.call(
            self._twin.rollback, transaction_id, reason=reason, broker_name=broker_name
        )

    def forget(self, broker_name: str) -> None:
        """Make the transaction checkers drop a broker that was removed for good.

        Its transactions are dropped, undecided ones included. If a broker returns under this name,
        its log is read from the beginning. To drop the query services' data, call ``query.forget``.

        Raises:
            BrokerNotFoundError: Its log was never followed, or has already been dropped.
            ConflictError: A name server still knows the broker: stop it first.
            NoRouteError: No transaction checker is known.
        """
        self._portal.call(self._twin.forget, broker_name)
