"""Administration of transactions: those that are not over, one by its id, an operator's decision.

Each transaction is at one broker, and only that one knows it. A broker that cannot be reached makes
a list fail, for it would not be whole; a transaction that another one knows is found all the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Final, Literal

from eruca.aio.cluster.instances import Instances
from eruca.aio.cluster.masters import Masters, answered
from eruca.aio.cluster.merging import merged
from eruca.aio.cluster.transaction_api import TransactionApi
from eruca.aio.http.transport import path_segment
from eruca.contract.errors import ErucaError, TransactionNotFoundError, ValidationError
from eruca.contract.limits import LIST_LIMIT_MAX
from eruca.contract.transactions import (
    Decide,
    DecisionReceipt,
    TransactionDetail,
    TransactionSummary,
)
from eruca.core.checked_arguments import checked_calls
from eruca.core.checked_names import check_group
from eruca.core.routing.services import TXN_CHECKER

if TYPE_CHECKING:
    from eruca.aio.cluster.client_context import ClientContext
    from eruca.contract.transaction_events import Outcome

FORGET_SECONDS: Final = 20.0  # it may have to wait for what is being written


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
        """Iterate over what is pending or parked, oldest first.

        Args:
            state: ``pending``: nobody has decided. ``parked``: rolled back, for nobody decided in
                time; an operator may still commit it.
            producer_group: Only those of it.
            broker_name: Only those at this broker.
            unanswered: Takes brokers that do not answer, and how; None: that is an error.
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
        """Return a transaction, its message and its history, as long as its broker remembers it.

        Args:
            transaction_id: Its id.
            broker_name: Where to look; by default everywhere.

        Raises:
            TransactionNotFoundError: No broker knows it.
            ValidationError: Several brokers know one of this id.
        """
        _, detail = await self._located(transaction_id, broker_name)
        return detail

    async def commit(
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
        return await self._decide(transaction_id, "commit", reason, broker_name)

    async def rollback(
        self, transaction_id: str, *, reason: str, broker_name: str | None = None
    ) -> DecisionReceipt:
        """See to it that a transaction's message is never delivered, as an operator.

        A parked one is discarded. The arguments and errors are those of :meth:`commit`.
        """
        return await self._decide(transaction_id, "rollback", reason, broker_name)

    async def forget(self, broker_name: str) -> None:
        """Have the transaction checkers drop a broker which was taken away for good.

        Its transactions go, also those that nobody has decided. One that comes back under this name
        is read anew. What the query services know of it, ``query.forget`` drops.

        Raises:
            BrokerNotFoundError: Its log has never been followed, or it has been forgotten.
            ConflictError: A name server still knows it: stop it first.
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
        """Return where a transaction is, and what is known of it there."""
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
                f"{' and '.join(sorted(found))} have a transaction of the id {transaction_id!r}",
                fix="say which is meant: broker_name",
            )
        for name, detail in found.items():
            return urls[name], detail
        for error in errors:
            if not isinstance(error, TransactionNotFoundError):
                raise error  # this one may know it
        raise TransactionNotFoundError(
            f"no transaction {transaction_id!r} is known to {broker_name or 'any broker'}",
            fix="see eruca txn list; a decided one is known as long as its broker's log has it",
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
