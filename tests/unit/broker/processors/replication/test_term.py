"""A term: what ends it, and when the in-sync set is changed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field, replace
from math import inf
from typing import cast

import pytest

from eruca.contract.broker_groups import BrokerGroupPut, Replica
from eruca.contract.errors import ConflictError, ErucaError, StoreFailedError
from eruca_broker.core.replication.broker_group import BrokerGroup, GroupChangeError, Member
from eruca_broker.core.replication.in_sync import Copies
from eruca_broker.core.replication.master_lease import LEASE_SECONDS
from eruca_broker.core.replication.roles import BEHIND_SECONDS, SILENCE_SECONDS, Turn
from eruca_broker.processors.replication.arbiter import Arbiter, GroupRow, _put_of
from eruca_broker.processors.replication.feed import Feed
from eruca_broker.processors.replication.term import PAUSED_SECONDS, Term
from eruca_broker.processors.replication.watched_row import WatchedRow
from eruca_broker.store.message_store import MessageStore
from support.arbiters import ManualArbiter
from support.clocks import ManualClock
from support.waiting import until

pytestmark = pytest.mark.anyio

ONE, TWO, THREE = Member(1, "a"), Member(2, "b"), Member(3, "c")
EPOCH = 4


@dataclass
class ManualFeed:
    """A feed whose replicas a test moves."""

    copies: Copies
    lease_until: float = inf
    heard: dict[Member, float] = field(default_factory=dict)
    caught_up: dict[Member, float] = field(default_factory=dict)
    level: list[Member] = field(default_factory=list)
    has_everything: bool = True
    epoch: int = EPOCH
    on_later_epoch: Callable[[], None] = lambda: None

    def heard_at(self) -> dict[Member, float]:
        return self.heard

    def caught_up_at(self) -> dict[Member, float]:
        return self.caught_up

    def keeping_up(self) -> list[Member]:
        return self.level

    async def have_everything(self, members: frozenset[Member], *, within_seconds: float) -> bool:
        assert self.copies.asked is not None
        assert members <= self.copies.asked, "rule 6"
        assert within_seconds > 0
        return self.has_everything or not members

    def asking(self, members: frozenset[Member]) -> None:
        self.copies = self.copies.asking(members)

    def answered(self, members: frozenset[Member]) -> None:
        self.copies = self.copies.answered(members)


@dataclass
class ManualStore:
    """A store that may refuse writes."""

    refusal: ErucaError | None = None


class Led:
    """A term under test, and all that it works with."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.controllers = ManualArbiter()
        arbiter = Arbiter(["http://one"], "broker-a", author="1", transport=self.controllers)
        self.row = WatchedRow(arbiter, lambda _before, _now: None)
        self.feed = ManualFeed(Copies(EPOCH, ONE, frozenset({ONE, TWO})))
        self.store = ManualStore()
        self.term = Term(
            cast(MessageStore, self.store), cast(Feed, self.feed), self.row, self.clock
        )

    async def begin(self) -> None:
        replicas = tuple(
            Replica(
                replica_id=member.replica_id,
                uid=member.uid,
                urls={"default": f"http://replica-{member.replica_id}:10911"},
            )
            for member in (ONE, TWO, THREE)
        )
        group = BrokerGroup(EPOCH, ONE, frozenset({ONE, TWO}))
        await self.row.swap(None, GroupRow(group, replicas), "for the test")

    def pass_time(self, seconds: float) -> None:
        """Let time pass, and look at the group as often as a running process does."""
        for _ in range(int(seconds / PAUSED_SECONDS) + 1):
            self.clock.advance(seconds / (int(seconds / PAUSED_SECONDS) + 1))
            assert self.term.look() is None

    @property
    def in_sync(self) -> frozenset[Member]:
        assert self.row.known is not None
        return self.row.known.group.in_sync


@pytest.fixture
async def led() -> AsyncIterator[Led]:
    led = Led()
    await led.begin()
    yield led
    await led.term.end()
    await led.row.stop()


async def test_a_silent_member_is_removed_by_the_arbiter(led: Led) -> None:
    """Rule 6: it is waited for until the arbiter has answered."""
    led.pass_time(SILENCE_SECONDS)
    assert led.feed.copies.asked is None

    led.pass_time(0.1)

    await until(lambda: led.in_sync == {ONE})
    await until(lambda: led.feed.copies.known == {ONE})
    assert led.feed.copies.asked is None


async def test_a_member_that_is_heard_and_does_not_catch_up_is_removed(led: Led) -> None:
    """Rule 6."""
    led.feed.heard = {TWO: inf}
    led.feed.caught_up = {TWO: led.clock.boottime()}
    led.pass_time(BEHIND_SECONDS)
    assert led.feed.copies.asked is None

    led.pass_time(0.1)

    await until(lambda: led.feed.copies.known == led.in_sync == {ONE})


async def test_a_change_that_may_have_been_received_is_waited_for_until_the_end(led: Led) -> None:
    """Rule 6: the process ends, and the row may name the newcomer."""
    led.term.is_confirmed = True
    led.feed.level, led.feed.heard = [THREE], {TWO: led.clock.boottime()}
    led.controllers.deaf = {"http://one"}
    assert led.term.look() is None
    await until(lambda: led.controllers.version == 2)

    await led.row.stop()
    await until(lambda: led.term._changing is not None and led.term._changing.done())

    assert led.feed.copies.waited_for == {ONE, TWO, THREE}


async def test_a_pause_of_the_master_itself_is_no_silence_of_others(led: Led) -> None:
    led.clock.advance(8)  # it was stopped, and looks at nothing meanwhile
    assert led.term.look() is None
    assert led.feed.copies.asked is None


async def test_a_request_of_a_later_epoch_ends_the_term_once_the_row_confirms_it(
    led: Led,
) -> None:
    """Rule 12; nobody watches the row here."""
    led.feed.on_later_epoch()
    await until(lambda: len(led.controllers.asked) == 2)
    assert led.term.look() is None  # the row has no later epoch

    assert led.row.known is not None
    later = replace(led.row.known.row, group=led.row.known.group.next_term(TWO))
    other = Arbiter(["http://one"], "broker-a", author="2", transport=led.controllers)
    await other.swap(led.row.known.version, later, reason="for the test")
    assert led.term.look() is None
    led.feed.on_later_epoch()

    await until(lambda: led.term.look() is Turn.SUPERSEDED)


async def test_a_newcomer_is_waited_for_before_the_arbiter_can_name_it(led: Led) -> None:
    """Rule 6; and not before the term has begun for certain."""
    led.feed.level = [THREE, Member(9, "in no row")]
    led.feed.heard = {TWO: led.clock.boottime()}
    assert led.term.look() is None
    assert led.feed.copies.asked is None

    led.term.is_confirmed = True
    led.controllers.deaf_count = 1  # the change is done, and its answer is lost
    assert led.term.look() is None

    await until(lambda: led.feed.copies.asked == frozenset({ONE, TWO, THREE}))
    await until(lambda: led.feed.copies.known == {ONE, TWO, THREE})
    assert led.in_sync == {ONE, TWO, THREE}


async def test_a_newcomer_that_stays_behind_is_not_named(led: Led) -> None:
    led.feed.level, led.feed.has_everything = [THREE], False
    led.feed.heard = {TWO: led.clock.boottime()}
    led.term.is_confirmed = True

    assert led.term.look() is None
    assert led.feed.copies.asked is None
    await until(lambda: led.term._changing is not None and led.term._changing.done())

    assert led.feed.copies.asked is None
    assert led.in_sync == led.feed.copies.known == {ONE, TWO}


async def test_a_change_that_nobody_received_is_given_up(led: Led) -> None:
    led.controllers.down = {"http://one"}
    led.pass_time(SILENCE_SECONDS + 0.1)

    await until(lambda: led.feed.copies.asked is None)

    assert led.feed.copies.known == {ONE, TWO}


async def test_a_set_that_another_replica_has_changed_is_adopted(led: Led) -> None:
    assert led.row.known is not None
    known = led.row.known
    left = replace(known.row, group=replace(known.group, in_sync=frozenset({ONE})))
    await led.row.swap(known.version, left, "replica 2 stops")

    assert led.term.look() is None

    assert led.feed.copies.known == {ONE}


async def test_a_later_epoch_ends_the_term(led: Led) -> None:
    """Rule 12."""
    assert led.row.known is not None
    known = led.row.known
    later = replace(known.row, group=known.group.next_term(TWO))
    await led.row.swap(known.version, later, "silent")

    assert led.term.look() is Turn.SUPERSEDED


async def test_a_lease_that_is_over_for_long_ends_a_term_that_has_begun(led: Led) -> None:
    """Rule 10."""
    led.feed.heard = {TWO: inf}
    led.feed.lease_until = led.clock.boottime()
    led.pass_time(LEASE_SECONDS + 0.1)  # nobody has heard of it yet

    led.term.is_confirmed = True

    assert led.term.look() is Turn.LEASE_LOST


async def test_a_failed_disk_ends_a_term_if_another_member_can_lead(led: Led) -> None:
    led.store.refusal = StoreFailedError("the disk has failed")
    assert led.term.look() is Turn.DISK_FAILED

    led.feed.copies = Copies(EPOCH, ONE, frozenset({ONE}))
    led.row.known = None

    assert led.term.look() is None  # it serves reads


async def test_only_a_member_that_is_alive_can_succeed(led: Led) -> None:
    with pytest.raises(ConflictError):
        led.term.successor(None)

    led.feed.copies = led.feed.copies.proved(TWO).proved(THREE)
    led.feed.heard = {TWO: led.clock.boottime(), THREE: led.clock.boottime()}

    assert led.term.successor(None) == led.term.successor(2) == TWO
    with pytest.raises(ConflictError, match="replica 3"):
        led.term.successor(3)  # it is not in sync


async def shrunk(led: Led) -> BrokerGroupPut:
    """Let the master remove replica 2; return the row before that."""
    assert led.row.known is not None
    before = _put_of(led.row.known.row, by="1", reason="for the test")
    led.pass_time(SILENCE_SECONDS + 0.1)
    await until(lambda: led.feed.copies.known == {ONE})
    return before


async def test_a_set_that_the_arbiter_has_forgotten_is_stated_again(led: Led) -> None:
    """Rule 13, within one epoch: the row names a member again that may lack confirmed records."""
    before = await shrunk(led)

    led.controllers.restored(before, version=1)
    await led.row.read()
    assert led.in_sync == {ONE, TWO}
    assert led.term.look() is None

    await until(lambda: led.term.look() is Turn.SUPERSEDED)  # it takes the next term
    assert led.row.known is not None
    assert led.row.known.group == BrokerGroup(EPOCH + 1, ONE, frozenset({ONE}))
    assert led.feed.copies.known == {ONE}


async def test_a_change_from_a_forgotten_row_changes_nothing(led: Led) -> None:
    before = await shrunk(led)
    led.controllers.restored(before, version=1)
    led.term.is_confirmed = True
    led.feed.level = [THREE]

    assert led.term.look() is None  # it asks from version 2

    await until(lambda: led.feed.copies.asked is None)
    assert led.feed.copies.known == {ONE}


async def test_a_successor_is_appointed_with_the_set_that_the_arbiter_has_forgotten(
    led: Led,
) -> None:
    before = await shrunk(led)
    led.controllers.restored(before, version=1)
    await led.row.read()

    with pytest.raises(GroupChangeError):
        await led.term.appoint(TWO, is_leaving=True)
