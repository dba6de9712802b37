"""While a broker is being forgotten nobody follows it, whatever he has had or wants to have."""

from __future__ import annotations

import asyncio

import pytest
from sqlalchemy import text

from eruca_postgres.claims import ClaimKeeper, ClaimLostError
from eruca_postgres.database import Database
from eruca_postgres.forgetting import begin_forgetting, being_forgotten, end_forgetting
from eruca_postgres.positions import read_positions, write_position
from support.clocks import ManualClock
from support.waiting import until_told

pytestmark = pytest.mark.anyio
_WAITING = text("SELECT count(*) FROM pg_locks WHERE NOT granted")


def keeper(database: Database, name: str) -> ClaimKeeper:
    return ClaimKeeper(database, name, seconds=600.0, clock=ManualClock())


async def begin(database: Database) -> None:
    async with database.transaction() as connection:
        await begin_forgetting(connection, "a")


async def test_it_is_nobodys_until_nothing_is_left_of_it(database: Database) -> None:
    one, two = keeper(database, "one"), keeper(database, "two")
    stale = (await one.step(["a"]))["a"]

    await begin(database)
    meanwhile = [await one.step(["a"]), await two.step(["a"])]
    await one.leave()
    with pytest.raises(ClaimLostError):
        async with database.transaction() as connection:
            await stale.prove(connection)
    async with database.transaction() as connection:
        names = list(await connection.scalars(being_forgotten()))
        await end_forgetting(connection, "a")
    after = await two.step(["a"])

    assert meanwhile == [{}, {}]
    assert names == ["a"]
    assert after["a"].fence > stale.fence


async def test_what_is_being_written_is_waited_for_and_forgotten_with_the_rest(
    database: Database,
) -> None:
    claim = (await keeper(database, "one").step(["a"]))["a"]

    async def waiting() -> int | None:
        async with database.transaction() as connection:
            count: int | None = await connection.scalar(_WAITING)
        return count

    async with database.transaction() as connection:
        await claim.prove(connection)
        forgetting = asyncio.create_task(begin(database))
        await until_told(waiting, bool)
        await write_position(connection, "a", 7, end_offset=7)
    await forgetting

    async with database.transaction() as connection:
        assert await read_positions(connection) == {}


async def test_where_nobody_follows_it_nobody_begins_to_while_it_is_forgotten(
    database: Database,
) -> None:
    async with database.transaction() as connection:
        await begin_forgetting(connection, "a")
        claiming = asyncio.create_task(keeper(database, "one").step(["a"]))

        async def waiting() -> int | None:
            async with database.transaction() as other:
                count: int | None = await other.scalar(_WAITING)
            return count

        await until_told(waiting, bool)

    assert await claiming == {}
