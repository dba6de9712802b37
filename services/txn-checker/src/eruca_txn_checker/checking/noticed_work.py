"""The work that notices announce: theirs who wait for checks, and that on brokers."""

from __future__ import annotations

from eruca_postgres.broker_shares import BrokerShares
from eruca_txn_checker.checking.broker_work import TransactionWork
from eruca_txn_checker.checking.producers import Producers
from eruca_txn_checker.checking.webhooks import Webhooks
from eruca_txn_checker.core.notices import CHECKS, DUE


class NoticedWork:
    """Wakes this instance's parts on notices of all instances."""

    def __init__(
        self, producers: Producers, webhooks: Webhooks, shares: BrokerShares[TransactionWork]
    ) -> None:
        self._producers = producers
        self._webhooks = webhooks
        self._shares = shares

    def wake(self) -> None:
        """Look for all kinds of work, after an event of unknown kind."""
        for notice in (CHECKS, DUE):
            self.heed(notice)

    def heed(self, notice: str) -> None:
        """Look for the work that *notice* announces; ignore notices of other versions."""
        if notice == CHECKS:
            self._producers.wake()
            self._webhooks.wake()
        elif notice == DUE:
            for work in self._shares.work.values():
                work.wake()
