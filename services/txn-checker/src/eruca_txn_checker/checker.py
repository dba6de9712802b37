"""The parts of a transaction checker, as wired by :mod:`eruca_txn_checker.app`."""

from __future__ import annotations

from dataclasses import dataclass

from eruca_chassis.clock import Clock
from eruca_postgres.broker_shares import BrokerShares
from eruca_postgres.instance import Instance
from eruca_postgres.notices import Notices
from eruca_txn_checker.checking.answers import Answers
from eruca_txn_checker.checking.broker_calls import BrokerCalls
from eruca_txn_checker.checking.broker_work import TransactionWork
from eruca_txn_checker.checking.due_work import CheckCounts
from eruca_txn_checker.checking.producers import Producers
from eruca_txn_checker.checking.questions import Questions
from eruca_txn_checker.checking.webhooks import Webhooks
from eruca_txn_checker.core.notices import CHECKS, DUE
from eruca_txn_checker.projection.fold import FoldCounts
from eruca_txn_checker.settings import TxnCheckerSettings


@dataclass(frozen=True, slots=True)
class TransactionChecker:
    """Everything that serves requests and works on brokers."""

    instance: Instance
    settings: TxnCheckerSettings
    clock: Clock  # PostgreSQL's
    calls: BrokerCalls
    counts: CheckCounts
    folds: FoldCounts
    questions: Questions
    answers: Answers
    producers: Producers
    webhooks: Webhooks
    shares: BrokerShares[TransactionWork]
    notices: Notices

    def wake(self) -> None:
        """Look for all kinds of work, after an event of unknown kind."""
        for notice in (CHECKS, DUE):
            self.heed(notice)

    def heed(self, notice: str) -> None:
        """Look for the work that *notice* announces; ignore notices of other versions."""
        if notice == CHECKS:
            self.producers.wake()
            self.webhooks.wake()
        elif notice == DUE:
            for work in self.shares.work.values():
                work.wake()
