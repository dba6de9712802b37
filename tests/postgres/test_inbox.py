"""The inbox where it counts: in PostgreSQL, with every kind of connection, and two at once."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import timedelta
from typing import Any

import psycopg
import psycopg2
import pytest
from sqlalchemy import NullPool, create_engine
from sqlalchemy.ext.asyncio import async_sessionmaker, create_async_engine
from sqlalchemy.orm import sessionmaker

import eruca
from eruca.inbox import AsyncInbox, Inbox
from support.inboxes import received
from support.patience import PATIENCE_SECONDS
from support.waiting import wait_until

TABLE = "inbox_test.inbox"


@pytest.fixture
def url(postgres_url: str) -> Iterator[str]:
    with psycopg.connect(postgres_url) as connection:
        connection.execute("CREATE SCHEMA inbox_test")
        connection.execute("CREATE TABLE inbox_test.done (what text)")
        Inbox("billing", table=TABLE).create_table(connection)
    yield postgres_url
    with psycopg.connect(postgres_url) as connection:
        connection.execute("DROP SCHEMA inbox_test CASCADE")


def done(url: str) -> int:
    return number(url, "SELECT count(*) FROM inbox_test.done")


def number(url: str, query: Any) -> int:  # noqa: ANN401
    with psycopg.connect(url) as connection:
        row = connection.execute(query).fetchone()
    assert row is not None
    count: int = row[0]
    return count


def openers(url: str, alchemy_url: str) -> dict[str, Callable[[], Any]]:
    engine = create_engine(alchemy_url, poolclass=NullPool)
    return {
        "psycopg": lambda: psycopg.connect(url),
        "psycopg2": lambda: psycopg2.connect(url),
        "engine": engine.begin,
        "engine of psycopg2": create_engine(over_psycopg2(alchemy_url), poolclass=NullPool).begin,
        "session": sessionmaker(engine).begin,
    }


def over_psycopg2(alchemy_url: str) -> str:
    return alchemy_url.replace("+psycopg:", "+psycopg2:")


def test_messages_may_be_known_for_longer_than_the_database_can_count(url: str) -> None:
    inbox = Inbox("billing", table=TABLE, keep=timedelta.max)

    with psycopg.connect(url) as connection:
        assert inbox.accept(connection, received())  # the first call deletes old rows, too
        assert not inbox.accept(connection, received())


@pytest.mark.parametrize(
    "odd",
    ["order\0" + "17", "order\ud800", random.randbytes(8_000).hex()],
    ids=["NUL", "half", "long"],
)
@pytest.mark.parametrize("kind", ["psycopg", "psycopg2", "engine"])
def test_an_id_is_known_whatever_its_producer_has_written(
    url: str, alchemy_url: str, kind: str, odd: str
) -> None:
    ran = []

    @Inbox("billing", table=TABLE).once(openers(url, alchemy_url)[kind])
    def handle(message: eruca.ReceivedMessage, _within: object) -> None:
        ran.append(message.message_id)

    ids = [odd, odd.replace("\0", "\ufffd").replace("\ud800", "\ufffd") + "8", odd[:-1]]
    for message_id in [*ids, *ids]:
        handle(received(message_id))

    assert ran == ids


@pytest.mark.parametrize("kind", ["psycopg", "psycopg2", "engine", "engine of psycopg2", "session"])
def test_a_handler_runs_once_whatever_it_is_connected_with(
    url: str, alchemy_url: str, kind: str
) -> None:
    fails = [True, False]

    @Inbox("billing", table=TABLE).once(openers(url, alchemy_url)[kind])
    def handle(message: eruca.ReceivedMessage, within: Any) -> None:  # noqa: ANN401
        insert(within)
        if fails.pop():
            raise ValueError("after the work")

    fails.reverse()
    with pytest.raises(ValueError, match="after the work"):
        handle(received())
    assert done(url) == 0
    handle(received())
    handle(received())

    assert (done(url), fails) == (1, [])


def insert(within: Any) -> Any:  # noqa: ANN401 - an awaitable in the async half
    from sqlalchemy import text

    sql = "INSERT INTO inbox_test.done VALUES ('x')"
    if isinstance(within, psycopg2.extensions.connection):
        with within.cursor() as cursor:
            return cursor.execute(sql)
    return within.execute(sql if hasattr(within, "pgconn") else text(sql))


@pytest.mark.anyio
@pytest.mark.parametrize("kind", ["psycopg", "engine", "session"])
async def test_an_async_handler_runs_once_whatever_it_is_connected_with(
    url: str, alchemy_url: str, kind: str
) -> None:
    engine = create_async_engine(alchemy_url, poolclass=NullPool)
    opens: dict[str, Callable[[], Any]] = {
        "psycopg": lambda: psycopg.AsyncConnection.connect(url),
        "engine": engine.begin,
        "session": async_sessionmaker(engine).begin,
    }
    inbox = AsyncInbox("billing", table=TABLE)
    fails = [False, True]

    @inbox.once(opens[kind])
    async def handle(message: eruca.ReceivedMessage, within: Any) -> None:  # noqa: ANN401
        await insert(within)
        if fails.pop():
            raise ValueError("after the work")

    with pytest.raises(ValueError, match="after the work"):
        await handle(received())
    await handle(received())
    await handle(received())

    assert (done(url), fails) == (1, [])
    async with await psycopg.AsyncConnection.connect(url) as connection:
        await inbox.create_table(connection)  # which is there already
        assert await inbox.forget(connection, received())
        assert await inbox.accept(connection, received())


@pytest.mark.parametrize(("first_commits", "second_runs"), [(True, False), (False, True)])
@pytest.mark.parametrize("driver", [psycopg, psycopg2], ids=["psycopg", "psycopg2"])
def test_of_two_at_once_the_second_waits_for_what_becomes_of_the_first(
    url: str,
    driver: Any,  # noqa: ANN401 - its module
    first_commits: bool,
    second_runs: bool,
) -> None:
    inbox = Inbox("billing", table=TABLE)
    with (
        closing(driver.connect(url)) as first,
        closing(driver.connect(url)) as second,
        ThreadPoolExecutor(1) as threads,
    ):
        assert inbox.accept(first, received())
        waiting = threads.submit(inbox.accept, second, received())
        wait_until_blocked(url, second.info.backend_pid)
        assert not waiting.done()
        if first_commits:
            first.commit()
        else:
            first.rollback()

        assert waiting.result(PATIENCE_SECONDS) is second_runs


def wait_until_blocked(url: str, process: int) -> None:
    query = f"SELECT cardinality(pg_blocking_pids({process}))"
    wait_until(lambda: number(url, query))


def test_batches_that_overlap_do_not_wait_for_each_other_in_a_circle(url: str) -> None:
    inbox = Inbox("billing", table=TABLE)
    batch = [received(f"id-{number}") for number in range(50)]
    together = threading.Barrier(4)

    @inbox.once(lambda: psycopg.connect(url))
    def handle(messages: list[eruca.ReceivedMessage], within: psycopg.Connection) -> None:
        for _ in messages:
            insert(within)

    def member(turn: int) -> None:
        together.wait(PATIENCE_SECONDS)
        handle(batch[turn * 5 :] + batch[: turn * 5] if turn % 2 else batch[::-1])

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(member, range(4)))

    assert done(url) == 50


def test_many_may_create_the_table_at_once(postgres_url: str) -> None:
    together = threading.Barrier(6)

    def create(_: int) -> None:
        with psycopg.connect(postgres_url) as connection:
            together.wait(PATIENCE_SECONDS)
            Inbox("billing", table="made_by_many").create_table(connection)

    with ThreadPoolExecutor(6) as threads:
        list(threads.map(create, range(6)))

    assert number(postgres_url, "SELECT count(*) FROM made_by_many") == 0


def test_old_rows_go_and_those_that_another_deletes_are_left_to_it(url: str) -> None:
    inbox = Inbox("billing", table=TABLE)
    with psycopg.connect(url) as connection:
        inbox.accept_all(connection, [received("old"), received("held")])
        connection.execute("UPDATE inbox_test.inbox SET done_at = done_at - interval '8 days'")
    with psycopg.connect(url) as other, psycopg.connect(url) as connection:
        other.execute("DELETE FROM inbox_test.inbox WHERE message_id = 'held'")

        assert Inbox("billing", table=TABLE).accept(connection, received("new"))

        other.rollback()
    assert number(url, "SELECT count(*) FROM inbox_test.inbox") == 2  # the new one, and the held


def test_autocommit_is_refused_unless_a_transaction_was_begun(url: str, alchemy_url: str) -> None:
    inbox = Inbox("billing", table=TABLE)
    engine = create_engine(alchemy_url, poolclass=NullPool, isolation_level="AUTOCOMMIT")
    with psycopg.connect(url, autocommit=True) as connection, engine.connect() as of_engine:
        for each in (connection, of_engine):
            with pytest.raises(eruca.ValidationError, match="commits each statement itself"):
                inbox.accept(each, received())
        with connection.transaction():
            assert inbox.accept(connection, received())


def test_autocommit_of_psycopg2_is_refused_unless_a_transaction_was_begun(
    url: str, alchemy_url: str
) -> None:
    inbox = Inbox("billing", table=TABLE)
    engine = create_engine(
        over_psycopg2(alchemy_url), poolclass=NullPool, isolation_level="AUTOCOMMIT"
    )
    with closing(psycopg2.connect(url)) as connection, engine.connect() as of_engine:
        connection.autocommit = True
        for each in (connection, of_engine):
            with pytest.raises(eruca.ValidationError, match="commits each statement itself"):
                inbox.accept(each, received())
        with connection, connection.cursor() as cursor:
            cursor.execute("SELECT")  # a block begins its transaction with the first statement
            assert inbox.accept(connection, received())
        assert not inbox.forget(connection, received("another"))
        assert inbox.forget(connection, received())


def test_psycopg2_runs_of_a_batch_what_is_not_done(url: str) -> None:
    inbox = Inbox("billing", table=TABLE)
    with closing(psycopg2.connect(url)) as connection:
        inbox.create_table(connection)  # which is there already
        first, second = received("first 100%"), received("second 'quoted' %(x)s")
        assert inbox.accept_all(connection, [first]) == [first]
        connection.commit()

        assert inbox.accept_all(connection, [first, second, second]) == [second]


@pytest.mark.anyio
async def test_autocommit_is_refused_of_async_connections_too(url: str, alchemy_url: str) -> None:
    inbox = AsyncInbox("billing", table=TABLE)
    engine = create_async_engine(alchemy_url, poolclass=NullPool, isolation_level="AUTOCOMMIT")
    async with (
        await psycopg.AsyncConnection.connect(url, autocommit=True) as connection,
        engine.connect() as of_engine,
    ):
        for each in (connection, of_engine):
            with pytest.raises(eruca.ValidationError, match="commits each statement itself"):
                await inbox.accept(each, received())


@pytest.mark.anyio
async def test_async_members_at_once_run_a_message_once(url: str) -> None:
    inbox = AsyncInbox("billing", table=TABLE)

    @inbox.once(lambda: psycopg.AsyncConnection.connect(url))
    async def handle(message: eruca.ReceivedMessage, within: psycopg.AsyncConnection[Any]) -> None:
        await insert(within)

    await asyncio.gather(*(handle(received()) for _ in range(8)))

    assert done(url) == 1
