"""One instance at a time works on a broker, and all of them share the brokers."""

from __future__ import annotations

import asyncio

import pytest
from sqlalchemy import text

from eruca_postgres.claims import ClaimKeeper, ClaimLostError
from eruca_postgres.database import Database
from support.clocks import ManualClock
from support.patience import PATIENCE_SECONDS

pytestmark = pytest.mark.anyio
BROKERS = ["a", "b", "c", "d", "e"]
LONG = 600.0


def keeper(database: Database, name: str, *, seconds: float = LONG) -> ClaimKeeper:
    return ClaimKeeper(database, name, seconds=seconds, clock=ManualClock())


async def let_expire(database: Database, holder: str) -> None:
    """Make PostgreSQL believe that *holder* has not been heard of for too long."""
    async with database.transaction() as connection:
        for table in ("leases", "instances"):
            await connection.execute(
                text(f"UPDATE {table} SET expires_at = now() - interval '1 s' WHERE holder = :h"),
                {"h": holder},
            )


async def test_one_alone_takes_all(database: Database) -> None:
    assert sorted(await keeper(database, "one").step(BROKERS)) == BROKERS


async def test_a_second_gets_its_share_and_nothing_is_held_twice(database: Database) -> None:
    one, two = keeper(database, "one"), keeper(database, "two")
    await one.step(BROKERS)
    assert await two.step(BROKERS) == {}

    held_by_one = await one.step(BROKERS)
    held_by_two = await two.step(BROKERS)

    assert sorted([*held_by_one, *held_by_two]) == BROKERS
    assert {len(held_by_one), len(held_by_two)} == {2, 3}


async def test_what_is_renewed_keeps_its_fence(database: Database) -> None:
    one = keeper(database, "one")

    assert await one.step(BROKERS) == await one.step(BROKERS)


async def test_the_work_of_one_that_is_gone_goes_to_the_others(database: Database) -> None:
    one, two = keeper(database, "one"), keeper(database, "two")
    before = await one.step(["a"])
    await two.step(["a"])
    await let_expire(database, "one")

    after = await two.step(["a"])

    assert after["a"].fence > before["a"].fence


async def test_one_that_slept_through_its_end_writes_nothing(database: Database) -> None:
    one, two = keeper(database, "one"), keeper(database, "two")
    stale = (await one.step(["a"]))["a"]
    await let_expire(database, "one")
    current = (await two.step(["a"]))["a"]

    async def write_under_the_old_claim() -> None:
        async with database.transaction() as connection:
            await connection.execute(text("INSERT INTO things VALUES (1)"))
            await stale.prove(connection)

    with pytest.raises(ClaimLostError):
        await write_under_the_old_claim()
    async with database.transaction() as connection:
        await current.prove(connection)
        assert await connection.scalar(text("SELECT count(*) FROM things")) == 0


async def test_leaving_lets_others_in_at_once(database: Database) -> None:
    one, two = keeper(database, "one"), keeper(database, "two")
    await one.step(BROKERS)

    await one.leave()

    assert sorted(await two.step(BROKERS)) == BROKERS


async def test_a_claim_is_over_by_our_clock_when_it_was_not_renewed(database: Database) -> None:
    clock = ManualClock()
    one = ClaimKeeper(database, "one", seconds=10, clock=clock)
    await one.step(["a"])
    clock.advance(9)
    assert "a" in one.held

    clock.advance(1)

    assert one.held == {}


async def test_a_broker_that_is_no_more_is_given_back(database: Database) -> None:
    one = keeper(database, "one")
    await one.step(["a", "b"])

    assert list(await one.step(["b"])) == ["b"]
    assert sorted(await keeper(database, "two").step(["a", "x"])) == ["a"]


async def test_a_write_of_one_that_takes_long_does_not_keep_others_from_their_claims(
    database: Database,
) -> None:
    one, two = keeper(database, "one"), keeper(database, "two")
    claim = (await one.step(["a"]))["a"]
    await two.step(["a", "b"])

    async with database.transaction() as connection:
        await claim.prove(connection)
        async with asyncio.timeout(PATIENCE_SECONDS):
            held = await two.step(["a", "b", "c", "d"])

    assert sorted(held) == ["b", "c"]


async def test_a_write_that_outlasts_its_claim_does_not_keep_others_from_theirs(
    database: Database,
) -> None:
    one, two = keeper(database, "one"), keeper(database, "two")
    claim = (await one.step(["a"]))["a"]
    await let_expire(database, "one")

    async with database.transaction() as connection:
        await claim.prove(connection)
        async with asyncio.timeout(PATIENCE_SECONDS):
            meanwhile = await two.step(["a", "b"])
    afterwards = await two.step(["a", "b"])

    assert sorted(meanwhile) == ["b"]
    assert sorted(afterwards) == ["a", "b"]


async def test_all_that_look_for_more_at_the_same_time_find_it(database: Database) -> None:
    one, two = keeper(database, "one"), keeper(database, "two")
    await one.step(["b"])
    await two.step(["a"])

    await asyncio.gather(one.step(["a", "b", "c", "d"]), two.step(["a", "b", "c", "d"]))
    held = [*await one.step(["a", "b", "c", "d"]), *await two.step(["a", "b", "c", "d"])]

    assert sorted(held) == ["a", "b", "c", "d"]
