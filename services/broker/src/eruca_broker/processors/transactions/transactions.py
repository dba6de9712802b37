"""Transactions: begin, decide, check and expire them.

Each has a module of its own. Their common parts, a transaction's turn and its one write, are in
:mod:`eruca_broker.processors.transactions.writes`.

A client that begins or decides is answered by a callback, and nothing is awaited, as for sending.
So the two requests of a transaction cost no more than two sends.

Source: RocketMQ 5.3, ``SendMessageProcessor.handleTransaction``, ``EndTransactionProcessor``.
"""

from __future__ import annotations

from eruca.contract.records import Host
from eruca_broker.processors.scheduled import Scheduled
from eruca_broker.processors.send_message import Sender
from eruca_broker.processors.transactions.beginning import TransactionBeginning
from eruca_broker.processors.transactions.checking import TransactionChecking
from eruca_broker.processors.transactions.deciding import TransactionDeciding
from eruca_broker.processors.transactions.log import TransactionLog
from eruca_broker.processors.transactions.writes import TransactionWrites
from eruca_broker.store.files.refusals import renewed
from eruca_broker.store.message_store import MessageStore
from eruca_chassis.clock import Clock


class Transactions:
    """The transactions of this broker."""

    def __init__(
        self,
        store: MessageStore,
        sender: Sender,
        scheduled: Scheduled,
        log: TransactionLog,
        *,
        broker_name: str,
        count_max: int,
        store_host: Host,
        clock: Clock,
    ) -> None:
        writes = TransactionWrites(store, log, store_host=store_host, clock=clock)
        self._store = store
        self.count_max = count_max
        self.counts = writes.counts
        self.turns = writes.turns
        beginning = TransactionBeginning(
            writes, sender, broker_name=broker_name, count_max=count_max
        )
        checking = TransactionChecking(writes)
        self.begin = beginning.begin
        self.decide = TransactionDeciding(writes, scheduled).decide
        self.check = checking.check
        self.expire = checking.expire

    def admit(self) -> None:
        """Raise the error that every write would raise now, if it is known without the body."""
        if self._store.refusal is not None:
            raise renewed(self._store.refusal)
