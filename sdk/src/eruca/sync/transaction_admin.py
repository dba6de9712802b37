"""Administration of transactions: those that are not over, one by its id, an operator's decision.

Generated from ``eruca.aio.transaction_admin`` by ``sdk/tools/generate_sync.py``; change that one.
How it works and which threads may do what is said in :mod:`eruca.sync.portal`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from eruca.aio.transaction_admin import AsyncTransactionAdmin
from eruca.sync.portal import Portal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from eruca.contract.errors import ErucaError
    from eruca.contract.transactions import DecisionReceipt, TransactionDetail, TransactionSummary


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
        """Iterate over what is pending or parked, oldest first.

        Args:
            state: ``pending``: nobody has decided. ``parked``: rolled back, for nobody decided in
                time; an operator may still commit it.
            producer_group: Only those of it.
            broker_name: Only those at this broker.
            unanswered: Takes brokers that do not answer, and how; None: that is an error.
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
        """Return a transaction, its message and its history, as long as its broker remembers it.

        Args:
            transaction_id: Its id.
            broker_name: Where to look; by default everywhere.

        Raises:
            TransactionNotFoundError: No broker knows it.
            ValidationError: Several brokers know one of this id.
        """
        return self._portal.call(self._twin.get, transaction_id, broker_name=broker_name)

    def commit(
        self, transaction_id: str, *, reason: str, broker_name: str | None = None
    ) -> DecisionReceipt:
        """Have a pending or parked transaction's message delivered, as an operator.

        Args:
            transaction_id: Its id.
            reason: Why; recorded.
            broker_name: Where it is; by default all brokers are asked.

        Raises:
            AlreadyDecidedError: It was rolled back, and not since its checks were used up.
            TransactionNotFoundError: No broker knows it.
            ValidationError: Several brokers know one of this id.
        """
        return self._portal.call(
            self._twin.commit, transaction_id, reason=reason, broker_name=broker_name
        )

    def rollback(
        self, transaction_id: str, *, reason: str, broker_name: str | None = None
    ) -> DecisionReceipt:
        """See to it that a transaction's message is never delivered, as an operator.

        A parked one is discarded. The arguments and errors are those of :meth:`commit`.
        """
        return self._portal.call(
            self._twin.rollback, transaction_id, reason=reason, broker_name=broker_name
        )

    def forget(self, broker_name: str) -> None:
        """Have the transaction checkers drop a broker which was taken away for good.

        Its transactions go, also those that nobody has decided. One that comes back under this name
        is read anew. What the query services know of it, ``query.forget`` drops.

        Raises:
            BrokerNotFoundError: Its log has never been followed, or it has been forgotten.
            ConflictError: A name server still knows it: stop it first.
            NoRouteError: No transaction checker is known.
        """
        self._portal.call(self._twin.forget, broker_name)
