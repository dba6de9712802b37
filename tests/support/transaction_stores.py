"""A store and the parts that work on its transactions, without a broker around them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

from eruca.contract.messages import Body, NewMessage
from eruca.contract.transaction_events import Decider, Outcome
from eruca.contract.transactions import (
    CheckGrant,
    CheckRequest,
    Decide,
    DecisionReceipt,
    ExpireRequest,
    NewTransaction,
    TransactionReceipt,
)
from eruca_broker.processors.replication.copies import GroupCopies
from eruca_broker.processors.replication.replication import Replication
from eruca_broker.processors.scheduled import Scheduled
from eruca_broker.processors.send_message import Sender
from eruca_broker.processors.topics import Topics
from eruca_broker.processors.transactions.carrying import TransactionCarrier
from eruca_broker.processors.transactions.log import TransactionLog
from eruca_broker.processors.transactions.transactions import Transactions
from eruca_broker.processors.transactions.views import TransactionViews
from eruca_broker.store.message_store import MessageStore
from eruca_broker.store.settings import StoreSettings
from support.clocks import ManualClock
from support.stores import STORE_HOST

GROUP = "orders"
TOPIC = "payments"
CHECKER = "c"

Told = TypeVar("Told")


async def _at_once() -> None:
    """Be known to all name servers, of which there are none."""


@dataclass(frozen=True)
class TransactionStore:
    """The wired parts of a broker."""

    store: MessageStore
    transactions: Transactions
    log: TransactionLog
    views: TransactionViews
    carrier: TransactionCarrier

    @classmethod
    async def open(
        cls, directory: Path, settings: StoreSettings, clock: ManualClock
    ) -> TransactionStore:
        """Open the store in *directory*, as after whatever happened to it."""
        store = await MessageStore.open(directory, settings, clock)
        topics = Topics(
            store,
            auto_create=False,
            count_max=9,
            on_change=lambda: None,
            changes_known=_at_once,
            on_delete=lambda _: None,
            ordered_at=lambda _: (),
        )
        scheduled = Scheduled(store, broker_name="b", delay_seconds_max=1e6, timers_max=10_000)
        sender = Sender(
            store,
            topics,
            scheduled,
            broker_name="b",
            store_host=STORE_HOST,
            clock=clock,
            copies=GroupCopies(store, Replication(store, clock)),
        )
        log = TransactionLog(store)
        transactions = Transactions(
            store,
            sender,
            scheduled,
            log,
            broker_name="b",
            count_max=100,
            store_host=STORE_HOST,
            clock=clock,
        )
        views = TransactionViews(store, log, broker_name="b")
        carrier = TransactionCarrier(
            store, log, transactions.turns, store_host=STORE_HOST, clock=clock
        )
        return cls(store, transactions, log, views, carrier)

    async def begin(
        self, transaction_id: str, body: str | None = None, **message: float | str | None
    ) -> TransactionReceipt:
        """Begin one, in queue 0; its id is the body, too, if there is no other."""
        new = NewTransaction(
            topic=TOPIC,
            producer_group=GROUP,
            queue_id=0,
            message=NewMessage(
                body=Body(text=body or transaction_id),
                message_id=transaction_id,
                **message,  # type: ignore[arg-type]
            ),
        )
        return await _told(partial(self.transactions.begin, new, STORE_HOST))

    async def decide(
        self,
        transaction_id: str,
        outcome: Outcome,
        by: Decider = "producer",
        reason: str = "because",
    ) -> DecisionReceipt:
        """Commit or roll back."""
        request = Decide(producer_group=GROUP, by=by, reason=reason)
        return await _told(partial(self.transactions.decide, transaction_id, outcome, request))

    async def check(self, transaction_id: str, number: int) -> CheckGrant:
        """Be granted a check."""
        request = CheckRequest(number=number, checker=CHECKER)
        return await _told(partial(self.transactions.check, transaction_id, request))

    async def expire(self, transaction_id: str, checks: int) -> DecisionReceipt:
        """Give up."""
        request = ExpireRequest(checks=checks, checker=CHECKER)
        return await _told(partial(self.transactions.expire, transaction_id, request))


async def _told(start: Callable[[Callable[[Told | Exception], None]], None]) -> Told:
    """Return the final answer to *start*, or raise it."""
    future: asyncio.Future[Told] = asyncio.get_running_loop().create_future()

    def settle(outcome: Told | Exception) -> None:
        if isinstance(outcome, Exception):
            future.set_exception(outcome)
        else:
            future.set_result(outcome)

    start(settle)
    return await future
