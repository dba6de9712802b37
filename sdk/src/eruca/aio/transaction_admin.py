"""Administration of transactions: undecided ones, one by its id, an operator's decision.

Each transaction is on one broker, and only that broker knows it. If a broker is unreachable, a list
fails, because it would be incomplete. A lookup by id succeeds if another broker knows the
transaction.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Final, Literal

from eruca.aio.cluster.instances import Instances
from eruca.aio.cluster.masters import Masters, answered
from eruca.aio.cluster.merging import merged
from eruca.aio.cluster.transaction_api import TransactionApi
from eruca.aio.http.transport import path_segment, target_of
from eruca.contract.errors import ErucaError, TransactionNotFoundError, ValidationError
from eruca.contract.limits import LIST_LIMIT_MAX
from eruca.contract.transactions import (
    Decide,
    DecisionReceipt,
    TransactionAsOf,
    TransactionDetail,
    TransactionSummary,
)
from eruca.core.checked_arguments import checked_calls
from eruca.core.checked_names import check_group
from eruca.core.routing.services import TXN_CHECKER

if TYPE_CHECKING:
    from eruca.aio.cluster.client_context import ClientContext
    from eruca.contract.transaction_events import Outcome

FORGET_SECONDS: Final = 20.0  # it may have to wait for a pending write


@checked_calls()
class AsyncTransactionAdmin:
    """Transactions of one cluster; made by :attr:`AsyncAdmin.transactions`."""

    def __init__(self, context: ClientContext) -> None:
        self._masters = Masters(context)
        self._api = TransactionApi(context.transport)
        self._timeout = context.settings.timeout_seconds
        self._checkers = Instances(TXN_CHECKER, context, timeout=FORGET_SECONDS)

    async def undecided(
        self,
        *,
        state: Literal["pending", "parked"] | None = None,
        producer_group: str | None = None,
        broker_name: str | None = None,
        unanswered: dict[str, ErucaError] | None = None,
    ) -> AsyncIterator[TransactionSummary]:
        """Iterate over pending or parked transactions, oldest first.

        Args:
            state: ``pending``: undecided. ``parked``: rolled back because there was no decision in
                time; an operator may still commit it.
            producer_group: Only transactions of this group.
            broker_name: Only transactions on this broker.
            unanswered: Collects the brokers that do not answer, each with its error. None: an
                unanswered request raises.
        """
        if producer_group is not None:
            check_group(producer_group, "producer_group")
        urls = await self._masters.all(broker_name=broker_name)
        streams = [
            answered(name, self._of_broker(url, state, producer_group), unanswered)
            for name, url in sorted(urls.items())
        ]
        async for found in merged(streams, key=lambda summary: summary.begun_at):
            yield found

    async def get(
        self, transaction_id: str, *, broker_name: str | None = None
    ) -> TransactionDetail:
        """Return a transaction with its message and history, as long as its broker keeps them.

        Args:
            transaction_id: Its id.
            broker_name: Where to look; default: on all brokers.

        Raises:
            TransactionNotFoundError: No broker knows it.
            ValidationError: Several brokers have a transaction with this id.
        """
        _, detail = await self._located(transaction_id, broker_name)
        return detail

    async def as_of(
        self, transaction_id: str, *, broker_name: str, log_offset: int
    ) -> TransactionAsOf:
        """Return the state of a transaction as of an earlier offset of its broker's log.

        Args:
            transaction_id: Its id.
            broker_name: The broker that has it.
            log_offset: The state is that after all records before it.

        Raises:
            ValidationError: The log does not reach that far.
        """
        url = await self._masters.of_broker(broker_name)
        path = f"/v1/transactions/{path_segment(transaction_id)}/as-of"
        target = target_of(path, log_offset=log_offset)
        return await self._masters.call(TransactionAsOf, "GET", url, target)

    async def commit(
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
        return await self._decide(transaction_id, "commit", reason, broker_name)

    async def rollback(
        self, transaction_id: str, *, reason: str, broker_name: str | None = None
    ) -> DecisionReceipt:
        """Roll back a transaction as an operator: its message is never delivered.

        A parked transaction is discarded. The arguments and errors are those of :meth:`commit`.
        """
        return await self._decide(transaction_id, "rollback", reason, broker_name)

    async def forget(self, broker_name: str) -> None:
        """Make the transaction checkers drop a broker that was removed for good.

        Its transactions are dropped, undecided ones included. If a broker returns under this name,
        its log is read from the beginning. To drop the query services' data, call ``query.forget``.

        Raises:
            BrokerNotFoundError: Its log was never followed, or has already been dropped.
            ConflictError: A name server still knows the broker: stop it first.
            NoRouteError: No transaction checker is known.
        """
        await self._checkers.request("DELETE", f"/v1/brokers/{path_segment(broker_name)}")

    async def _decide(
        self, transaction_id: str, outcome: Outcome, reason: str, broker_name: str | None
    ) -> DecisionReceipt:
        url, _ = await self._located(transaction_id, broker_name)
        request = Decide(by="operator", reason=reason)
        return await self._api.decide(url, transaction_id, outcome, request, timeout=self._timeout)

    async def _located(
        self, transaction_id: str, broker_name: str | None
    ) -> tuple[str, TransactionDetail]:
        """Return the URL of a transaction's broker, and the transaction."""
        urls = await self._masters.all(broker_name=broker_name)
        answers = await asyncio.gather(
            *(self._api.get(url, transaction_id, timeout=self._timeout) for url in urls.values()),
            return_exceptions=True,
        )
        found: dict[str, TransactionDetail] = {}
        errors: list[BaseException] = []
        for name, answer in zip(urls, answers, strict=True):
            if isinstance(answer, BaseException):
                answer.add_note(f"from {name}")
                errors.append(answer)
            else:
                found[name] = answer
        if len(found) > 1:
            raise ValidationError(
                f"several brokers have a transaction with the id {transaction_id!r}:"
                f" {' and '.join(sorted(found))}",
                fix="choose the broker with broker_name",
            )
        for name, detail in found.items():
            return urls[name], detail
        for error in errors:
            if not isinstance(error, TransactionNotFoundError):
                raise error  # this broker may have it
        raise TransactionNotFoundError(
            f"transaction {transaction_id!r} is unknown to {broker_name or 'every broker'}",
            fix="list undecided transactions: eruca txn list; a broker keeps a decided one"
            " until retention deletes it",
        )

    async def _of_broker(
        self, url: str, state: str | None, producer_group: str | None
    ) -> AsyncIterator[TransactionSummary]:
        cursor: str | None = None
        while True:
            page = await self._api.page(
                url,
                state=state,
                producer_group=producer_group,
                cursor=cursor,
                limit=LIST_LIMIT_MAX,
                timeout=self._timeout,
            )
            for summary in page.transactions:
                yield summary
            cursor = page.next_cursor
            if cursor is None:
                return
