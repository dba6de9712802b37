"""The parts of a transaction checker, wired up: made by :mod:`eruca_txn_checker.app`."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from eruca import AsyncClient
from eruca_chassis.clock import Clock
from eruca_postgres.broker_shares import BrokerShares
from eruca_postgres.database import Database
from eruca_txn_checker.checking.answers import Answers
from eruca_txn_checker.checking.broker_calls import BrokerCalls
from eruca_txn_checker.checking.broker_work import TransactionWork
from eruca_txn_checker.checking.due_work import CheckCounts
from eruca_txn_checker.checking.producers import Producers
from eruca_txn_checker.checking.questions import Questions
from eruca_txn_checker.checking.webhooks import Webhooks
from eruca_txn_checker.settings import TxnCheckerSettings


@dataclass(frozen=True, slots=True)
class TransactionChecker:
    """Everything that answers requests and works on brokers."""

    name: str
    started_at: datetime
    settings: TxnCheckerSettings
    clock: Clock
    database: Database
    client: AsyncClient  # of the cluster
    calls: BrokerCalls
    counts: CheckCounts
    questions: Questions
    answers: Answers
    producers: Producers
    webhooks: Webhooks
    shares: BrokerShares

    def work(self) -> dict[str, TransactionWork]:
        """Return what is done now, by broker."""
        return {
            name: work
            for name, work in self.shares.work.items()
            if isinstance(work, TransactionWork)
        }

    def faults(self) -> dict[str, str]:
        """Return what cannot be worked on just now, and why."""
        faults = {name: work.fault for name, work in self.work().items()}
        faults["name servers"] = self.shares.name_server_fault
        return {name: fault for name, fault in faults.items() if fault is not None}
