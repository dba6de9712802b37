"""Rows of the checker that go: history, brokers and groups, in pieces."""

from __future__ import annotations

import pytest
from sqlalchemy import func, select

from eruca_chassis.admission.held import HeldPlaces
from eruca_postgres.database import Database
from eruca_postgres.forgetting import begin_forgetting, being_forgotten
from eruca_txn_checker.checking.producers import Producers
from eruca_txn_checker.checking.questions import Questions
from eruca_txn_checker.projection.check_rows import checks_of
from eruca_txn_checker.projection.due_rows import delete_history
from eruca_txn_checker.projection.forgotten import ForgottenRows
from eruca_txn_checker.projection.listing import find_rows, page_of
from eruca_txn_checker.projection.producer_rows import note_seen, reachable_groups
from eruca_txn_checker.projection.tables import transactions
from support.check_rows import BROKER, FORGOTTEN_MAX, T0, Folder, begun, checked, decided, parked
from support.clocks import ManualClock
from support.waiting import until_told

pytestmark = pytest.mark.anyio


async def test_history_is_deleted_in_pieces_and_what_is_not_over_stays(folder: Folder) -> None:
    over = [f"over-{number}" for number in range(3)]
    await folder.fold(*map(begun, [*over, "pending", "parked"]), *map(decided, over))
    await folder.fold(checked("parked"), parked("parked"))

    async with folder.database.transaction() as connection:
        counts = [
            await delete_history(connection, BROKER, before_ms=before_ms, limit=2)
            for before_ms in (T0 + 20_000, T0 + 90_000, T0 + 90_000, T0 + 90_000)
        ]
        left = set(await connection.scalars(select(transactions.c.transaction_id)))

    assert counts == [0, 2, 1, 0]
    assert left == {"pending", "parked"}


async def test_a_broker_that_is_forgotten_takes_its_checks_along(folder: Folder) -> None:
    await folder.fold(begun(), checked(), begun("over"), decided("over"))

    assert not await folder.forget()

    async with folder.database.transaction() as connection:
        assert await find_rows(connection, "t") == []
        assert await checks_of(connection, BROKER, "t") == []
        assert await find_rows(connection, "over") == []


async def test_a_broker_with_many_transactions_is_forgotten_in_pieces(folder: Folder) -> None:
    """One transaction of PostgreSQL's must not last long, and a broker may have had millions."""
    ids = [f"t-{number}" for number in range(2 * FORGOTTEN_MAX + 1)]
    await folder.fold(*map(begun, ids), checked("t-0"), decided("t-1"))

    counts: list[int] = []
    is_more = True
    while is_more:
        is_more = await folder.forget()
        async with folder.database.transaction() as connection:
            left = await connection.scalar(select(func.count()).select_from(transactions))
        counts.append(left or 0)

    assert counts == [FORGOTTEN_MAX + 1, 1, 0]


async def test_a_broker_taken_away_for_good_is_deleted_in_pieces_and_shown_in_none_of_them(
    folder: Folder,
) -> None:
    ids = [f"t-{number}" for number in range(5)]
    await folder.fold(*map(begun, ids), checked("t-0"), decided("t-1"))
    database = folder.database
    async with database.transaction() as connection:
        await begin_forgetting(connection, BROKER)
    counts: list[int] = []
    # Each piece by an instance that was started after the one before had been killed.
    while await ForgottenRows(database, rows_max=2).delete_some():
        async with database.transaction() as connection:
            left = await connection.scalar(select(func.count()).select_from(transactions))
            counts.append(left or 0)
            assert await find_rows(connection, "t-4") == []
            page = await page_of(
                connection, state=None, producer_group=None, broker_name=None, after=None, limit=9
            )
            assert page == []
            is_left = BROKER in await connection.scalars(being_forgotten())
        assert is_left is (counts[-1] > 0)

    assert counts == [3, 1, 0]
    async with database.transaction() as connection:
        assert await checks_of(connection, BROKER, "t-0") == []


async def test_a_group_that_nobody_waits_for_any_more_is_forgotten(rows: Database) -> None:
    clock = ManualClock(now_ms=T0)
    async with rows.transaction() as connection:
        await note_seen(connection, ["gone"], now_ms=T0 - 3_600_001)
        await note_seen(connection, ["there"], now_ms=T0 - 3_600_000)
    unused = Questions(rows, None, clock)  # type: ignore[arg-type]  # nobody takes a check
    looking = Producers(
        rows, unused, HeldPlaces(maximum=1), clock, interval_ms=30_000, poll_seconds=lambda: 60
    )

    looking.start()

    async def groups() -> set[str]:
        async with rows.transaction() as connection:
            return await reachable_groups(connection, since_ms=0)

    assert await until_told(groups, lambda found: len(found) == 1) == {"there"}
    await looking.stop()
