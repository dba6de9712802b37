"""The projection of the checker: rows are what the fold says, whatever is read and when."""

from __future__ import annotations

from random import Random

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Connection

from eruca.contract.transaction_events import TransactionCarried, TransactionEvent
from eruca_postgres.database import Database
from eruca_postgres.tables import metadata as shared_tables
from eruca_txn_checker.core.transaction_rows import TransactionRow, folded
from eruca_txn_checker.projection.check_rows import (
    close_unsent,
    forwarding_checks,
    give_back,
    note_answer,
    note_forwarded,
    open_counts,
)
from eruca_txn_checker.projection.listing import page_of
from eruca_txn_checker.projection.tables import metadata
from support.check_rows import (
    BROKER,
    RULES,
    T0,
    Folder,
    begun,
    checked,
    decided,
    due,
    only_check,
    parked,
    take,
)

pytestmark = pytest.mark.anyio


def carried(name: str = "t", *, checks: int) -> TransactionCarried:
    return TransactionCarried(
        name,
        "orders",
        "payments",
        1,
        T0,
        begun_offset=0,
        immunity_ms=None,
        checks=checks,
        checked_at=T0 + 10_000,
        parked_at=None,
        carried_at=T0 + 11_000,
        group_size=10,
    )


def _differences(connection: Connection) -> list[object]:
    context = MigrationContext.configure(
        connection, opts={"include_schemas": False, "compare_type": True}
    )
    return [
        difference
        for difference in compare_metadata(context, metadata)
        if not (difference[0] == "remove_table" and difference[1].name in shared_tables.tables)
    ]


async def test_the_migrations_make_the_tables_that_are_declared(rows: Database) -> None:
    async with rows.transaction() as connection:
        differences = await connection.run_sync(_differences)

    left = [d for d in differences if "alembic_version" not in str(d)]
    assert left == []


@pytest.mark.parametrize("seed", range(3))
async def test_rows_are_what_the_fold_says_however_the_log_is_cut(
    folder: Folder, seed: int
) -> None:
    random = Random(seed)
    names = [f"t{number}" for number in range(6)]
    history: list[TransactionEvent] = []
    for name in random.choices(names, k=60):
        some: list[TransactionEvent] = [begun(name), decided(name), parked(name)]
        history.append(random.choice([*some, checked(name, random.randrange(1, 4))]))
    expected: dict[str, TransactionRow] = {}
    for number, event in enumerate(history, 1):
        row = folded(
            expected.get(event.transaction_id),
            event,
            broker_name=BROKER,
            next_offset=100 * number,
            rules=RULES,
        )
        if row is not None:
            expected[event.transaction_id] = row

    left = list(history)
    while left:
        count = random.randrange(1, 20)
        await folder.fold(*left[:count])
        del left[:count]

    async with folder.database.transaction() as connection:
        found = await page_of(
            connection, state=None, producer_group=None, broker_name=None, after=None, limit=100
        )
    assert {row.transaction_id: row for row in found} == expected


async def test_a_check_can_be_taken_once(folder: Folder) -> None:
    await folder.fold(begun(), checked())

    first = await take(folder.database)
    second = await take(folder.database)

    assert (len(first), second) == (1, [])
    assert folder.groups == [{"orders"}]
    assert folder.ids == [{"t"}]


async def test_what_is_given_back_can_be_taken_again_while_it_is_worth_it(folder: Folder) -> None:
    await folder.fold(begun(), checked())
    taken = await take(folder.database)
    async with folder.database.transaction() as connection:
        await give_back(connection, taken)
    assert await take(folder.database) == taken

    await folder.fold(checked(number=2))
    async with folder.database.transaction() as connection:
        await give_back(connection, taken)

    [second] = await take(folder.database)
    assert second != taken[0]


@pytest.mark.parametrize("event", [decided(), parked()])
async def test_a_check_is_closed_by_what_makes_it_needless(
    folder: Folder, event: TransactionEvent
) -> None:
    await folder.fold(begun(), checked())

    await folder.fold(event)

    assert await take(folder.database) == []


async def test_a_check_stays_open_when_its_transaction_is_carried_forward(folder: Folder) -> None:
    await folder.fold(begun(), checked())

    await folder.fold(carried(checks=1))

    assert len(await take(folder.database)) == 1


async def test_a_check_that_was_not_sent_names_nobody(folder: Folder) -> None:
    await folder.fold(begun(), checked())
    async with folder.database.transaction() as connection:
        await close_unsent(connection, await take(folder.database))

    assert (await only_check(folder.database)).asked is None
    assert await take(folder.database) == []


@pytest.mark.parametrize("answer", ["commit", "unknown"])
async def test_an_event_that_does_not_fit_a_checks_state_changes_nothing(
    folder: Folder, answer: str
) -> None:
    await folder.fold(begun(), checked())
    [check_id] = await take(folder.database)
    async with folder.database.transaction() as connection:
        await note_forwarded(connection, check_id)  # nothing has been answered
        asked = await only_check(folder.database)
        await note_answer(connection, check_id, answer, answered_by=None, reason=None, now_ms=T0)
    answered = await only_check(folder.database)

    async with folder.database.transaction() as connection:
        await give_back(connection, [check_id])
        await close_unsent(connection, [check_id])

    assert await only_check(folder.database) == answered
    assert (asked.answer, answered.answer, answered.answered_by) == (None, answer, asked.asked)
    assert await take(folder.database) == []


async def test_a_check_is_asked_only_until_the_next_one_is_nearly_due(folder: Folder) -> None:
    await folder.fold(begun(), checked())

    async with folder.database.transaction() as connection:
        counts = [
            await open_counts(connection, ["orders"], now_ms=T0 + later, interval_ms=30_000)
            for later in (26_999, 27_000)
        ]

    assert counts == [{"orders": 1}, {}]
    assert await take(folder.database, now_ms=T0 + 27_000) == []
    assert len(await take(folder.database, now_ms=T0 + 26_999)) == 1


async def test_a_check_that_is_read_late_is_over_before_the_next_one_is_due(
    folder: Folder,
) -> None:
    await folder.fold(begun())
    folder.clock.advance(60)
    await folder.fold(checked())
    assert len(await take(folder.database, now_ms=T0 + 60_000)) == 1

    check = await only_check(folder.database)
    assert check.answer_until_ms is not None
    times = [check.answer_until_ms, check.answer_until_ms + 1]

    assert times[0] == T0 + 60_000 + RULES.interval_ms
    assert [await due(folder.database, now_ms) for now_ms in times] == [[], ["t"]]


async def test_a_clock_that_is_set_back_makes_no_check_last_longer(folder: Folder) -> None:
    folder.clock.advance(3_600)
    await folder.fold(begun(), checked())

    await take(folder.database, now_ms=T0)

    check = await only_check(folder.database)
    assert check.answer_until_ms == T0 + RULES.interval_ms
    assert await due(folder.database, T0 + 1, at_broker_ms=T0 + 40_000) == ["t"]


async def test_the_first_decisive_answer_is_kept_and_waits_for_the_broker(folder: Folder) -> None:
    await folder.fold(begun(), checked())
    [check_id] = await take(folder.database)

    async with folder.database.transaction() as connection:
        answers = []
        for answer in ("unknown", "commit", "rollback", "unknown"):
            known = await note_answer(
                connection, check_id, answer, answered_by=None, reason=None, now_ms=T0
            )
            assert known is not None
            answers.append(known.answer)
        left = await forwarding_checks(connection, BROKER, before_ms=T0 + 1, limit=10)
        await note_forwarded(connection, check_id)
        forwarded = await forwarding_checks(connection, BROKER, before_ms=T0 + 1, limit=10)

    assert answers == ["unknown", "commit", "commit", "commit"]
    assert ([known.check_id for known in left], forwarded) == ([check_id], [])
    assert (await only_check(folder.database)).answered_by == "me"


@pytest.mark.parametrize("is_one_stretch", [False, True])
async def test_the_checks_of_an_id_that_is_used_again_are_asked_again(
    folder: Folder, *, is_one_stretch: bool
) -> None:
    again = T0 + 90_000
    first: list[TransactionEvent] = [begun(), checked(), decided()]
    second: list[TransactionEvent] = [begun(at=again), checked(at=again + 10_000)]
    if is_one_stretch:
        await folder.fold(*first, *second)
    else:
        await folder.fold(*first)
        await folder.fold(*second)

    check = await only_check(folder.database)
    assert (check.checked_ms, check.asked) == (again + 10_000, None)
    assert await take(folder.database) == [check.check_id]
