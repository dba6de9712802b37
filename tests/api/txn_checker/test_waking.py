"""Events alone move checks on: polls are an hour apart here, so that nothing is due to them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Final

import httpx
import pytest
from sqlalchemy import create_engine, event, text

from eruca_postgres.broker_shares import BrokerShares
from eruca_postgres.database import Database
from eruca_postgres.notices import Notices
from eruca_postgres.settings import sqlalchemy_url
from eruca_txn_checker.checking.broker_work import TransactionWork
from eruca_txn_checker.checking.producers import Producers
from eruca_txn_checker.checking.questions import Questions
from eruca_txn_checker.projection.tables import SCHEMA
from support.checkers import Checked, checked_by
from support.in_process_cluster import InProcessCluster
from support.waiting import until

pytestmark = pytest.mark.anyio

NEVER: Final = 3_600.0  # seconds; no test waits that long
LISTENING: Final = (
    f"application_name = 'eruca {SCHEMA}' AND query LIKE 'LISTEN %'"  # of pg_stat_activity
)


@dataclass
class Pair:
    """Two instances over one database: one works on the broker, the other does not."""

    working: Checked
    other: Checked


async def listening(checked: Checked) -> None:
    await until(lambda: checked.app.parts[Notices].is_listening)


@pytest.fixture
async def pair(cluster: InProcessCluster, database_url: str) -> AsyncIterator[Pair]:
    async with AsyncExitStack() as stack:
        both = [
            await stack.enter_async_context(
                checked_by(
                    cluster, database_url, name=name, idle_poll_seconds=NEVER, claim_seconds=30
                )
            )
            for name in ("one", "two")
        ]
        await until(lambda: any(it.app.parts[BrokerShares[TransactionWork]].work for it in both))
        for checked in both:
            await listening(checked)
        both.sort(key=lambda it: not it.app.parts[BrokerShares[TransactionWork]].work)
        assert not both[1].app.parts[BrokerShares[TransactionWork]].work
        yield Pair(*both)


async def waiting(checked: Checked, group: str) -> asyncio.Task[list[dict[str, Any]]]:
    """Have a producer of *group* wait at *checked*, and return once it does."""
    producers = checked.app.parts[Producers]
    before = producers.waiting_count
    task = asyncio.create_task(checked.take(group=group, wait_seconds=30))
    await until(lambda: task.done() or producers.waiting_count > before)
    return task


async def test_a_check_wakes_producers_at_every_instance(pair: Pair) -> None:
    for checked, group in ((pair.working, "here"), (pair.other, "there")):
        producer = await waiting(checked, group)
        transaction_id = await pair.working.begin(producer_group=group)

        (check,) = await producer

        assert (check["transaction_id"], check["number"]) == (transaction_id, 1)


async def test_the_next_check_comes_when_it_is_due(pair: Pair) -> None:
    """Nothing happens between the two but time."""
    await pair.working.begin(producer_group="silent")

    numbers = [(await pair.other.take(group="silent"))[0]["number"] for _ in range(3)]

    assert numbers == [1, 2, 3]


async def test_a_check_that_one_instance_gives_back_is_taken_at_the_other(pair: Pair) -> None:
    await pair.working.begin(producer_group="moving", message={"body": {"text": "x"}})
    questions = pair.working.app.parts[Questions]
    producer = await waiting(pair.other, "other-group")
    (check,) = await pair.working.take(group="moving")
    moved = await waiting(pair.other, "moving")

    await questions.give_back([check["check_id"]])

    assert [again["check_id"] for again in await moved] == [check["check_id"]]
    producer.cancel()


async def test_a_webhook_that_is_deleted_at_one_instance_frees_its_checks_for_the_other(
    pair: Pair,
) -> None:
    hook = "/v1/producer-groups/hooked/webhook"
    settings = {"url": "http://127.0.0.1:9/", "enabled": True}
    put = await pair.working.http.put(hook, json=settings)
    assert put.status_code == httpx.codes.CREATED, put.text
    producer = await waiting(pair.other, "hooked")

    deleted = await pair.working.http.delete(hook)
    assert deleted.status_code == httpx.codes.NO_CONTENT
    await pair.working.begin(producer_group="hooked")

    assert [check["producer_group"] for check in await producer] == ["hooked"]


async def test_a_group_that_can_be_reached_again_is_checked(
    cluster: InProcessCluster, database_url: str
) -> None:
    async with checked_by(
        cluster, database_url, idle_poll_seconds=NEVER, counts_unreachable=False
    ) as checked:
        await listening(checked)
        transaction_id = await checked.begin(producer_group="late")
        await checked.seen(transaction_id)

        (check,) = await checked.take(group="late")

        assert check["transaction_id"] == transaction_id


async def test_a_lost_connection_costs_no_check_and_is_replaced(
    pair: Pair, database_url: str
) -> None:
    notices = pair.other.app.parts[Notices]
    producer = await waiting(pair.other, "lost")

    assert end_listening(database_url) == 2
    await pair.working.begin(producer_group="lost")
    assert len(await producer) == 1

    for checked in (pair.working, pair.other):
        await listening(checked)
    assert notices.is_listening
    producer = await waiting(pair.other, "found")
    await pair.working.begin(producer_group="found")
    assert len(await producer) == 1


def end_listening(url: str) -> int:
    """End every instance's listening connection; return how many there were."""
    engine = create_engine(sqlalchemy_url(url))
    with engine.begin() as connection:
        ended = connection.execute(
            text(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {LISTENING}")
        ).all()
    engine.dispose()
    return len(ended)


@contextmanager
def statements(checked: Checked) -> Iterator[list[str]]:
    """Give a list to which every statement of *checked* is added."""
    engine = checked.app.parts[Database].engine.sync_engine
    seen: list[str] = []

    def add(_connection: object, _cursor: object, statement: str, *_more: object) -> None:
        seen.append(statement)

    event.listen(engine, "before_cursor_execute", add)
    try:
        yield seen
    finally:
        event.remove(engine, "before_cursor_execute", add)


async def test_who_has_nothing_to_do_asks_nothing_of_checks_and_transactions(pair: Pair) -> None:
    """Counted from look to look at the database, which is every second, idle or not."""
    producer = await waiting(pair.other, "idle")
    with statements(pair.working) as here, statements(pair.other) as there:
        for counted in (here, there):
            await looked(counted, 2)  # what went before is over
            counted.clear()
            await looked(counted, 4)

            asked = [it for it in counted if "checks" in it or "transactions" in it]
            assert asked == []
    producer.cancel()


async def looked(counted: list[str], times: int) -> None:
    """Wait until the database was looked at, which decides on readiness."""
    await until(lambda: sum("transaction_read_only" in it for it in counted) >= times)
