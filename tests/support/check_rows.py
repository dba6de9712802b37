"""Rows of the transaction checker in PostgreSQL: events folded into them, and read back."""

from __future__ import annotations

from collections.abc import Collection

from eruca.contract.transaction_events import (
    TransactionBegun,
    TransactionChecked,
    TransactionDecided,
    TransactionEvent,
    TransactionParked,
)
from eruca.contract.transactions import TransactionDetail
from eruca_postgres.database import Database
from eruca_txn_checker.core.check_rules import CheckRules
from eruca_txn_checker.projection.check_rows import CheckRow, checks_of, take_for_producer
from eruca_txn_checker.projection.due_rows import due_rows
from eruca_txn_checker.projection.fold import FoldCounts, LoggedEvent, TransactionProjection
from support.clocks import ManualClock

T0 = 1_700_000_000_000
RULES = CheckRules()
BROKER = "broker-a"
FORGOTTEN_MAX = 3


async def _nobody_asks(broker_name: str, transaction_id: str) -> TransactionDetail:
    raise AssertionError(f"nothing has rotted of {transaction_id} at {broker_name}")


class Folder:
    """Folds events, and keeps the notices that follow."""

    def __init__(self, database: Database, rules: CheckRules = RULES) -> None:
        self.database = database
        self.groups: list[set[str]] = []
        self.ids: list[set[str]] = []
        self.clock = ManualClock(now_ms=T0)
        self._offset = 0
        self._projection = TransactionProjection(
            rules,
            self.clock,
            on_checks=self.groups.append,
            on_folded=self._note,
            ask=_nobody_asks,
            counts=FoldCounts(),
            forgotten_max=FORGOTTEN_MAX,
        )

    async def fold(self, *events: TransactionEvent) -> None:
        """Fold one stretch."""
        async with self.database.transaction() as connection:
            tell = await self._projection.fold(connection, BROKER, [*map(self._logged, events)])
        tell()

    async def forget(self) -> bool:
        """Forget some of the broker; tell whether there may be more."""
        async with self.database.transaction() as connection:
            return await self._projection.forget(connection, BROKER)

    def _logged(self, event: TransactionEvent) -> LoggedEvent:
        self._offset += 100
        return LoggedEvent(event, self._offset)

    def _note(self, _broker_name: str, ids: Collection[str]) -> None:
        self.ids.append(set(ids))


def begun(name: str = "t", *, at: int = T0, group: str = "orders") -> TransactionBegun:
    return TransactionBegun(name, group, "payments", 1, at, None, group_size=10)


def checked(name: str = "t", number: int = 1, *, at: int = T0 + 10_000) -> TransactionChecked:
    return TransactionChecked(name, number, "checker", at)


def decided(name: str = "t", *, at: int = T0 + 20_000) -> TransactionDecided:
    return TransactionDecided(
        name, "commit", "producer", at, "orders", "payments", 1, T0, checks=0, group_size=10
    )


def parked(name: str = "t") -> TransactionParked:
    return TransactionParked(name, 15, "checker", T0 + 30_000, group_size=10)


async def take(database: Database, now_ms: int = T0, limit: int = 10) -> list[str]:
    async with database.transaction() as connection:
        taken = await take_for_producer(
            connection, "orders", "me", now_ms=now_ms, interval_ms=30_000, limit=limit
        )
    return [check.check_id for check in taken]


async def only_check(database: Database, name: str = "t") -> CheckRow:
    async with database.transaction() as connection:
        [check] = await checks_of(connection, BROKER, name)
    return check


async def due(database: Database, now_ms: int, **more: object) -> list[str]:
    settings: dict[str, object] = {
        "at_broker_ms": now_ms,
        "limit": 10,
        "without": (),
        "reachable": (),
        "counts_unreachable": True,
        "rules": RULES,
    }
    async with database.transaction() as connection:
        found = await due_rows(connection, BROKER, now_ms=now_ms, **(settings | more))  # type: ignore[arg-type]  # of its parameters
    return [row.transaction_id for row in found]
