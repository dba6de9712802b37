"""The watched row: changes are carried to their end, whatever becomes of requests and answers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from eruca.aio.http.transport import HttpResponse
from eruca.contract.broker_groups import Replica
from eruca_broker.core.replication.broker_group import Member, founded
from eruca_broker.core.replication.roles import Outcome
from eruca_broker.processors.replication.arbiter import Arbiter, GroupRow, KnownRow
from eruca_broker.processors.replication.watched_row import WatchedRow
from support.arbiters import ManualArbiter
from support.waiting import until

pytestmark = pytest.mark.anyio

ONE, TWO, THREE = Member(1, "a"), Member(2, "b"), Member(3, "c")
URL = "http://one"
ROW = GroupRow(
    replace(founded(ONE), in_sync=frozenset({ONE, TWO, THREE})),
    (Replica(replica_id=1, uid="a", urls={"default": "http://replica-1:10911"}),),
)


class Watcher:
    """A replica's view of one arbiter."""

    def __init__(self, controllers: ManualArbiter, author: str) -> None:
        self.seen: list[tuple[KnownRow | None, KnownRow | None]] = []
        arbiter = Arbiter([URL], "broker-a", author=author, transport=controllers)
        self.row = WatchedRow(arbiter, lambda before, now: self.seen.append((before, now)))


@pytest.fixture
def controllers() -> ManualArbiter:
    return ManualArbiter()


@pytest.fixture
async def replica(controllers: ManualArbiter) -> AsyncIterator[Watcher]:
    replica = Watcher(controllers, "replica 1")
    await replica.row.swap(None, ROW, "for the test")
    yield replica
    await replica.row.stop()


def version_of(replica: Watcher) -> str:
    assert replica.row.known is not None
    return replica.row.known.version


async def test_a_term_whose_answers_are_lost_is_won_if_the_row_says_so(
    controllers: ManualArbiter, replica: Watcher
) -> None:
    asked = replace(ROW, group=ROW.group.next_term(ONE))
    controllers.deaf_count = 2  # the request was done; its repetition finds a later version

    assert await replica.row.settle_term(version_of(replica), asked, "it is silent") is Outcome.WON

    assert [method for method, _ in controllers.asked[1:]] == ["PUT", "PUT", "PUT", "GET"]


async def test_a_term_that_another_replica_has_won_is_lost(
    controllers: ManualArbiter, replica: Watcher
) -> None:
    version, other = version_of(replica), Watcher(controllers, "replica 2")
    theirs = replace(ROW, group=ROW.group.next_term(TWO))
    assert await other.row.settle_term(version, theirs, "silent") is Outcome.WON

    ours = replace(ROW, group=ROW.group.next_term(ONE))
    assert await replica.row.settle_term(version, ours, "silent") is Outcome.LOST

    assert replica.row.known is not None
    assert replica.row.known.group.master == TWO  # it has read the row that it lost to


async def test_a_term_that_nobody_was_asked_for_is_given_up(
    controllers: ManualArbiter, replica: Watcher
) -> None:
    controllers.down = {URL}
    asked = replace(ROW, group=ROW.group.next_term(ONE))
    assert await replica.row.settle_term(version_of(replica), asked, "silent") is Outcome.LOST
    assert controllers.version == 1


async def test_a_change_that_lost_adopts_the_set_of_its_epoch(
    controllers: ManualArbiter, replica: Watcher
) -> None:
    """Rule 12: 412 is no failure as long as the epoch is the same."""
    version, other = version_of(replica), Watcher(controllers, "replica 3")
    left = replace(ROW, group=replace(ROW.group, in_sync=frozenset({ONE, TWO})))
    await other.row.swap(version, left, "replica 3 stops")

    asked = replace(ROW, group=ROW.group.without(ONE, TWO))
    assert await replica.row.settle_change(1, version, asked, "silent") is Outcome.WON

    assert replica.row.known is not None
    assert replica.row.known.group.in_sync == {ONE, TWO}


async def test_a_change_yields_to_a_later_epoch(
    controllers: ManualArbiter, replica: Watcher
) -> None:
    """Rule 12."""
    version, other = version_of(replica), Watcher(controllers, "replica 2")
    await other.row.swap(version, replace(ROW, group=ROW.group.next_term(TWO)), "silent")

    asked = replace(ROW, group=ROW.group.without(ONE, TWO))

    assert await replica.row.settle_change(1, version, asked, "silent") is Outcome.SUPERSEDED


async def test_changes_of_others_are_noticed(controllers: ManualArbiter, replica: Watcher) -> None:
    other = Watcher(controllers, "replica 2")
    replica.row.start()
    theirs = replace(ROW, group=ROW.group.next_term(TWO))
    await other.row.swap(version_of(replica), theirs, "silent")

    await until(lambda: replica.row.known is not None and replica.row.known.group.epoch == 2)

    before, now = replica.seen[-1]
    assert before is not None
    assert now is not None
    assert (before.group.master, now.group.master) == (ONE, TWO)


class Slow(ManualArbiter):
    """An arbiter whose next answer to a read is late, and then older than other answers."""

    def __init__(self) -> None:
        super().__init__()
        self.is_slow = False
        self.may_arrive = asyncio.Event()

    async def request(self, method: str, *args: Any, **options: Any) -> HttpResponse:  # noqa: ANN401
        answer = await super().request(method, *args, **options)
        if method == "GET" and self.is_slow:
            self.is_slow = False
            await self.may_arrive.wait()
        return answer


async def test_an_answer_that_is_older_than_the_known_row_is_dropped() -> None:
    """Rule 6: the master has let a replica join, and waits for it from then on."""
    controllers = Slow()
    master = Watcher(controllers, "replica 1")
    await master.row.swap(None, replace(ROW, group=founded(ONE)), "for the test")
    controllers.is_slow = True
    master.row.look_again()
    await until(lambda: not controllers.is_slow)
    joined = replace(ROW, group=founded(ONE).with_member(ONE, TWO))
    await master.row.swap(version_of(master), joined, "it has everything")

    controllers.may_arrive.set()
    await until(lambda: [method for method, _ in controllers.asked].count("GET") == 2)
    await until(lambda: master.row._looking is not None and master.row._looking.done())

    assert [now.group.in_sync for _, now in master.seen if now] == [{ONE}, {ONE, TWO}]
    await master.row.stop()
