"""The transaction checker's rows: made of any stretches of the log they are the same."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from dataclasses import replace
from random import Random

import anyio.to_thread
import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Connection, func, select

from eruca.contract.transaction_events import (
    TransactionBegun,
    TransactionCarried,
    TransactionChecked,
    TransactionDecided,
    TransactionEvent,
    TransactionParked,
)
from eruca.contract.transactions import TransactionDetail
from eruca_chassis.held import HeldPlaces
from eruca_postgres.database import Database
from eruca_postgres.forgetting import begin_forgetting, being_forgotten
from eruca_postgres.migrations import upgrade
from eruca_postgres.settings import sqlalchemy_url
from eruca_postgres.tables import metadata as shared_tables
from eruca_txn_checker.checking.producers import Producers
from eruca_txn_checker.checking.questions import Questions
from eruca_txn_checker.core.check_ids import check_id_of
from eruca_txn_checker.core.check_rules import CheckRules
from eruca_txn_checker.core.next_look import seconds_to_next_look
from eruca_txn_checker.core.transaction_rows import TransactionRow, folded
from eruca_txn_checker.projection.check_rows import (
    CheckRow,
    checks_of,
    close_unsent,
    give_back,
    note_answer,
    note_settled,
    open_counts,
    settling_checks,
    take_for_producer,
)
from eruca_txn_checker.projection.due_rows import (
    ahead_of,
    delete_history,
    due_rows,
    open_again,
    refresh_due,
)
from eruca_txn_checker.projection.fold import FoldCounts, LoggedEvent, TransactionProjection
from eruca_txn_checker.projection.forgotten import ForgottenRows
from eruca_txn_checker.projection.listing import find_rows, page_of
from eruca_txn_checker.projection.producer_rows import note_seen, reachable_groups
from eruca_txn_checker.projection.tables import SCHEMA, metadata, transactions
from eruca_txn_checker.wiring import MIGRATIONS
from support.clocks import ManualClock
from support.postgres import drop_schema
from support.waiting import until_told

pytestmark = pytest.mark.anyio

T0 = 1_700_000_000_000
RULES = CheckRules()
BROKER = "broker-a"
FORGOTTEN_MAX = 3
SHORT = CheckRules(timeout_ms=20, interval_ms=30, age_max_ms=150)  # every ms can be looked at
SETTLE_AFTER_MS = 25
AHEAD_MS = 1_000  # the broker's clock is
LAST_MS = 260  # everything is due by then


@pytest.fixture
async def rows(postgres_url: str) -> AsyncIterator[Database]:
    """A database with the checker's empty tables."""
    url = sqlalchemy_url(postgres_url)
    drop_schema(postgres_url, SCHEMA)
    await anyio.to_thread.run_sync(upgrade, url, SCHEMA, MIGRATIONS)
    database = Database(url, SCHEMA, connections_max=4)
    yield database
    await database.close()


async def _nobody_asks(broker_name: str, transaction_id: str) -> TransactionDetail:
    raise AssertionError(f"nothing has rotted of {transaction_id} at {broker_name}")


class Folder:
    """Folds events, and keeps what others are told."""

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


@pytest.fixture
def folder(rows: Database) -> Folder:
    return Folder(rows)


def begun(name: str = "t", *, at: int = T0, group: str = "orders") -> TransactionBegun:
    return TransactionBegun(name, group, "payments", 1, at, None, group_size=10)


def checked(name: str = "t", number: int = 1, *, at: int = T0 + 10_000) -> TransactionChecked:
    return TransactionChecked(name, number, "checker", at)


def decided(name: str = "t", *, at: int = T0 + 20_000) -> TransactionDecided:
    return TransactionDecided(
        name, "commit", "producer", at, "orders", "payments", 1, T0, checks=0, group_size=10
    )


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


async def opened_again(
    database: Database, now_ms: int, reachable: Collection[str] = ("orders",), limit: int = 10
) -> int:
    async with database.transaction() as connection:
        return await open_again(
            connection,
            BROKER,
            now_ms=now_ms,
            at_broker_ms=now_ms,
            limit=limit,
            reachable=reachable,
            rules=RULES,
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
        await note_settled(connection, check_id)  # nothing has been answered
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
        left = await settling_checks(connection, BROKER, before_ms=T0 + 1, limit=10)
        await note_settled(connection, check_id)
        settled = await settling_checks(connection, BROKER, before_ms=T0 + 1, limit=10)

    assert answers == ["unknown", "commit", "commit", "commit"]
    assert ([known.check_id for known in left], settled) == ([check_id], [])
    assert (await only_check(folder.database)).answered_by == "me"


@pytest.mark.parametrize("is_one_stretch", [False, True])
async def test_the_checks_of_an_id_that_is_used_again_are_asked_anew(
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


async def test_what_is_due_comes_in_the_order_it_fell_due(folder: Folder) -> None:
    await folder.fold(
        begun("late", at=T0 + 5), begun("early"), begun("checked"), checked("checked")
    )

    assert await due(folder.database, T0 + 6_000) == []
    assert await due(folder.database, T0 + 6_006) == ["early", "late"]
    assert await due(folder.database, T0 + 40_000) == ["early", "late", "checked"]
    assert await due(folder.database, T0 + 40_000, limit=1) == ["early"]
    assert await due(folder.database, T0 + 40_000, without=["early", "late"]) == ["checked"]


async def test_what_is_answered_and_not_told_yet_is_not_due(folder: Folder) -> None:
    await folder.fold(begun(), checked())
    [check_id] = await take(folder.database)
    assert await due(folder.database, T0 + 50_000) == ["t"]

    async with folder.database.transaction() as connection:
        await note_answer(connection, check_id, "commit", answered_by="me", reason=None, now_ms=T0)

    assert await due(folder.database, T0 + 50_000) == []


async def test_only_groups_that_can_be_reached_are_checked_and_others_given_up_in_time(
    folder: Folder,
) -> None:
    await folder.fold(begun("ours"), begun("theirs", group="others"))

    assert await due(
        folder.database, T0 + 10_000, reachable={"orders"}, counts_unreachable=False
    ) == ["ours"]
    assert await due(folder.database, T0 + 10_000, counts_unreachable=False) == []
    old = T0 + RULES.age_max_ms + 1
    assert await due(folder.database, old, counts_unreachable=False) == ["ours", "theirs"]


async def test_a_check_that_nobody_took_is_not_used_up_while_its_producers_are_there(
    folder: Folder,
) -> None:
    await folder.fold(begun(), checked(at=T0))
    over = T0 + RULES.interval_ms + 1

    assert await take(folder.database, over) == []
    assert await due(folder.database, over, reachable={"orders"}) == []
    assert [await opened_again(folder.database, now_ms) for now_ms in (over - 1, over)] == [0, 1]
    assert await opened_again(folder.database, over) == 0
    [check_id] = await take(folder.database, over)

    assert (await only_check(folder.database)).check_id == check_id
    later = over + RULES.interval_ms + 1
    assert await opened_again(folder.database, later) == 0
    assert await due(folder.database, later, reachable={"orders"}) == ["t"]


async def test_a_check_that_nobody_took_is_used_up_where_nobody_is_there_or_it_is_too_old(
    folder: Folder,
) -> None:
    await folder.fold(begun(), checked(at=T0))
    over = T0 + RULES.interval_ms + 1
    old = T0 + RULES.age_max_ms + 1

    assert await opened_again(folder.database, over, reachable=()) == 0
    assert await opened_again(folder.database, old) == 0
    assert await due(folder.database, over, reachable={"others"}) == ["t"]
    assert await due(folder.database, old, reachable={"orders"}) == ["t"]


async def test_the_checks_that_waited_longest_are_opened_again_first(folder: Folder) -> None:
    names = ["a", "b", "c"]
    await folder.fold(*map(begun, names))
    await folder.fold(*(checked(name, at=T0 + n) for n, name in enumerate(names)))
    over = T0 + RULES.interval_ms + 10

    assert await opened_again(folder.database, over, limit=2) == 2
    taken = await take(folder.database, over)

    async with folder.database.transaction() as connection:
        checks = [(await checks_of(connection, BROKER, name))[0].check_id for name in names]
    assert taken == checks[:2]


async def test_rules_that_have_changed_hold_for_what_was_there_before(folder: Folder) -> None:
    await folder.fold(begun("new"), begun("checked"), checked("checked"))
    rules = replace(RULES, timeout_ms=1_000, interval_ms=2_000)

    async with folder.database.transaction() as connection:
        await refresh_due(connection, BROKER, rules)

    assert await due(folder.database, T0 + 1_001) == ["new"]
    assert await due(folder.database, T0 + 12_000, rules=rules) == ["new", "checked"]


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


async def anything_due(database: Database, now_ms: int, *, counts_unreachable: bool) -> bool:
    """Tell whether a look at *now_ms* would find anything to do; change nothing."""
    try:
        async with database.transaction() as connection:
            left = await settling_checks(
                connection, BROKER, before_ms=now_ms - SETTLE_AFTER_MS, limit=10
            )
            opened = await open_again(
                connection,
                BROKER,
                now_ms=now_ms,
                at_broker_ms=now_ms + AHEAD_MS,
                limit=10,
                reachable=["orders"],
                rules=SHORT,
            )
            rows = await due_rows(
                connection,
                BROKER,
                now_ms=now_ms,
                at_broker_ms=now_ms + AHEAD_MS,
                limit=10,
                without=(),
                reachable=["orders"],
                counts_unreachable=counts_unreachable,
                rules=SHORT,
            )
            raise _LookedError(left or opened or rows)
    except _LookedError as looked:
        return bool(looked.args[0])


class _LookedError(Exception):
    """Rolls a look back, and says what it found."""


async def quiet_ms(database: Database, now_ms: int) -> int:
    """Return for how many ms after *now_ms* no look is needed, as the service works it out."""
    async with database.transaction() as connection:
        ahead = await ahead_of(
            connection,
            BROKER,
            now_ms=now_ms,
            at_broker_ms=now_ms + AHEAD_MS,
            answered_since_ms=now_ms - SETTLE_AFTER_MS,
            rules=SHORT,
        )
    seconds = seconds_to_next_look(
        ahead,
        now_ms=now_ms,
        at_broker_ms=now_ms + AHEAD_MS,
        rules=SHORT,
        settle_after_ms=SETTLE_AFTER_MS,
    )
    return LAST_MS if seconds is None else round(seconds * 1000)


@pytest.mark.parametrize("counts_unreachable", [True, False])
@pytest.mark.parametrize("group", ["orders", "unreachable"])
@pytest.mark.parametrize("checks", [0, 1, 2])
@pytest.mark.parametrize("then", ["open", "taken", "answered"])
async def test_nothing_falls_due_while_the_loop_that_looks_sleeps(
    rows: Database, then: str, checks: int, group: str, *, counts_unreachable: bool
) -> None:
    """Between a look that finds nothing and the next one, at no millisecond is there anything."""
    folder = Folder(rows, SHORT)
    await folder.fold(begun(at=T0 + AHEAD_MS, group=group))
    for number in range(1, checks + 1):
        folder.clock.advance(0.03)
        checked_ms = folder.clock.now_ms() + AHEAD_MS - 10  # it is read 10 ms later
        await folder.fold(checked(number=number, at=checked_ms))
    now_ms = folder.clock.now_ms()
    async with rows.transaction() as connection:
        if then != "open":
            await take_for_producer(
                connection, group, "me", now_ms=now_ms, interval_ms=SHORT.interval_ms, limit=1
            )
        if then == "answered":
            check_id = check_id_of(BROKER, "t", checks)
            await note_answer(
                connection, check_id, "commit", answered_by="me", reason=None, now_ms=now_ms
            )

    while not await anything_due(rows, now_ms, counts_unreachable=counts_unreachable):
        wakes_ms = now_ms + max(await quiet_ms(rows, now_ms), 1)
        missed = [
            moment_ms
            for moment_ms in range(now_ms, wakes_ms)
            if await anything_due(rows, moment_ms, counts_unreachable=counts_unreachable)
        ]
        assert missed == []
        now_ms = wakes_ms


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
