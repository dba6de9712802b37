"""Checks that are due: in order, for groups that can be reached, and none missed in a sleep."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import pytest

from eruca_postgres.database import Database
from eruca_txn_checker.core.check_ids import check_id_of
from eruca_txn_checker.core.check_rules import CheckRules
from eruca_txn_checker.core.next_look import seconds_to_next_look
from eruca_txn_checker.projection.check_rows import (
    checks_of,
    forwarding_checks,
    note_answer,
    take_for_producer,
)
from eruca_txn_checker.projection.due_rows import ahead_of, due_rows, open_again, refresh_due
from support.check_rows import BROKER, RULES, T0, Folder, begun, checked, due, only_check, take

pytestmark = pytest.mark.anyio
SHORT = CheckRules(timeout_ms=20, interval_ms=30, age_max_ms=150)  # every ms can be looked at
FORWARD_AFTER_MS = 25
AHEAD_MS = 1_000  # the broker's clock is
LAST_MS = 260  # everything is due by then


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


async def anything_due(database: Database, now_ms: int, *, counts_unreachable: bool) -> bool:
    """Tell whether a look at *now_ms* would find anything to do; change nothing."""
    try:
        async with database.transaction() as connection:
            left = await forwarding_checks(
                connection, BROKER, before_ms=now_ms - FORWARD_AFTER_MS, limit=10
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
            answered_since_ms=now_ms - FORWARD_AFTER_MS,
            rules=SHORT,
        )
    seconds = seconds_to_next_look(
        ahead,
        now_ms=now_ms,
        at_broker_ms=now_ms + AHEAD_MS,
        rules=SHORT,
        forward_after_ms=FORWARD_AFTER_MS,
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
