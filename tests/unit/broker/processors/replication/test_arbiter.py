"""The arbiter's client: any controller will do, and a lost answer is no answer."""

from __future__ import annotations

import pytest

from eruca.contract.broker_groups import Replica
from eruca.contract.errors import TransportError
from eruca_broker.core.replication.broker_group import BrokerGroup, Member, founded
from eruca_broker.processors.replication.arbiter import (
    Arbiter,
    GroupRow,
    StaleVersionError,
    UnansweredError,
)
from support.arbiters import ManualArbiter

pytestmark = pytest.mark.anyio

ONE, TWO = Member(1, "a"), Member(2, "b")
URLS = ["http://one", "http://two"]


def listed(member: Member) -> Replica:
    urls = {"default": f"http://replica-{member.replica_id}:10911"}
    return Replica(replica_id=member.replica_id, uid=member.uid, urls=urls)


ROW = GroupRow(founded(ONE), (listed(ONE),), min_in_sync=1, flush_mode="sync")


@pytest.fixture
def controllers() -> ManualArbiter:
    return ManualArbiter()


def client(controllers: ManualArbiter, author: str = "replica 1") -> Arbiter:
    return Arbiter(URLS, "broker-a", author=author, transport=controllers)


async def test_a_row_is_read_as_it_was_written(controllers: ManualArbiter) -> None:
    arbiter = client(controllers)
    assert await arbiter.read() is None

    written = await arbiter.swap(None, ROW, reason="the first store")

    assert written == await arbiter.read()
    assert written.row == ROW
    assert written.row.urls_of(ONE) == {"default": "http://replica-1:10911"}
    assert written.row.urls_of(Member(1, "another disk")) == {}
    assert arbiter.is_ours(written)
    assert not client(controllers, "replica 2").is_ours(written)


async def test_a_change_from_another_version_is_refused(controllers: ManualArbiter) -> None:
    arbiter = client(controllers)
    first = await arbiter.swap(None, ROW, reason="the first store")
    unclean = GroupRow(ROW.group.forced(TWO), (listed(ONE), listed(TWO)))
    second = await arbiter.swap(first.version, unclean, reason="an operator")
    assert second.group == BrokerGroup(2, TWO, frozenset({TWO}), is_unclean=True)

    for expected in (None, first.version):
        with pytest.raises(StaleVersionError):
            await arbiter.swap(expected, ROW, reason="too late")

    assert await arbiter.read() == second


async def test_the_next_controller_is_asked_and_then_stays_the_first(
    controllers: ManualArbiter,
) -> None:
    arbiter = client(controllers)
    controllers.down.add("http://one")

    await arbiter.swap(None, ROW, reason="the first store")
    await arbiter.read()

    assert controllers.asked == [
        ("PUT", "http://one"), ("PUT", "http://two"), ("GET", "http://two"),
    ]  # fmt: skip


async def test_a_lost_answer_is_neither_success_nor_failure(controllers: ManualArbiter) -> None:
    """The repeated request is refused, as the first one was done; the row tells by whom."""
    arbiter = client(controllers)
    controllers.deaf, controllers.down = {"http://one"}, {"http://two"}

    with pytest.raises(UnansweredError) as unanswered:
        await arbiter.swap(None, ROW, reason="the first store")
    assert unanswered.value.was_sent
    assert not arbiter.is_answering

    controllers.deaf.clear()
    with pytest.raises(StaleVersionError):
        await arbiter.swap(None, ROW, reason="the first store")
    row = await arbiter.read()
    assert row is not None
    assert arbiter.is_ours(row)
    assert arbiter.is_answering


async def test_a_request_that_nobody_received_may_be_given_up(controllers: ManualArbiter) -> None:
    controllers.down = {*URLS}
    with pytest.raises(UnansweredError) as unanswered:
        await client(controllers).swap(None, ROW, reason="the first store")
    assert not unanswered.value.was_sent


async def test_a_known_row_is_waited_for_to_change(controllers: ManualArbiter) -> None:
    arbiter = client(controllers)
    first = await arbiter.swap(None, ROW, reason="the first store")
    assert await arbiter.read(known=first, wait_seconds=5) is first

    second = await arbiter.swap(first.version, ROW.with_replica(listed(TWO)), reason="it is new")

    assert await arbiter.read(known=first, wait_seconds=5) == second
    assert [replica.replica_id for replica in second.row.replicas] == [1, 2]
    renamed = second.row.with_replica(listed(TWO._replace(uid="new")))
    assert [replica.uid for replica in renamed.replicas] == ["a", "new"]


async def test_a_row_that_breaks_the_rules_is_not_taken(controllers: ManualArbiter) -> None:
    arbiter = client(controllers)
    await arbiter.swap(None, ROW, reason="the first store")
    assert controllers.row is not None
    controllers.row["master"] = {"replica_id": 9, "uid": "x"}

    with pytest.raises(TransportError, match="invalid"):
        await arbiter.read()
