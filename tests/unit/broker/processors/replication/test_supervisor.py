"""The supervisor in one process: a real store, an arbiter and peers that the test speaks for."""

from __future__ import annotations

import errno
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import cast

import pytest

from eruca.aio.http.transport import HttpResponse, NotConnectedError
from eruca.contract.broker_groups import BrokerGroupPut, Replica
from eruca.contract.errors import DiskFullError
from eruca.contract.records import Buffer
from eruca.contract.replication import ReplicationStatus
from eruca.services.http import HttpTransport
from eruca_broker.core.replication.appointments import author_of
from eruca_broker.core.replication.broker_group import BrokerGroup, Change, Member, founded
from eruca_broker.core.replication.master_lease import PROMISE_SECONDS
from eruca_broker.core.replication.roles import Role
from eruca_broker.core.state.epoch_events import EpochBegan
from eruca_broker.processors.replication.arbiter import Arbiter, GroupRow, _put_of
from eruca_broker.processors.replication.candidacy import ReplicaFacts
from eruca_broker.processors.replication.door import RoleDoor
from eruca_broker.processors.replication.replication import Replication
from eruca_broker.processors.replication.supervisor import Supervisor
from eruca_broker.store.identity import remember_row
from eruca_broker.store.log.segment import Segment
from eruca_broker.store.message_store import MessageStore
from support.arbiters import ManualArbiter
from support.clocks import ManualClock
from support.stores import batch, small_settings
from support.waiting import stays, until

pytestmark = pytest.mark.anyio

TWO = Member(2, "two")
THREE = Member(3, "three")
ROOM = 100  # bytes left in the log's last segment: a term's first record needs another one


@dataclass
class Peers:
    """The other replicas: each answers with its status, or not at all."""

    statuses: dict[str, ReplicationStatus] = field(default_factory=dict)  # by URL

    async def request(
        self,
        method: str,
        url: str,
        target: str,
        *,
        headers: Sequence[tuple[str, str]] = (),
        body: Sequence[Buffer] = (),
        timeout: float,
    ) -> HttpResponse:
        status = self.statuses.get(url)
        if status is None or target != "/v1/replication/status":
            raise NotConnectedError(f"{url}: refused")
        return HttpResponse(200, {}, status.model_dump_json().encode())

    async def close(self) -> None:
        """Nothing is open."""


class Broker:
    """One replica, whose id is 1, before an arbiter and peers."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.clock = ManualClock()
        self.arbiter = ManualArbiter()
        self.peers = Peers()
        self.settings = replace(small_settings(), is_replica=True, replica_id=1)
        self.door = RoleDoor(self.clock.boottime)
        self.supervisor = self.another()

    def another(self) -> Supervisor:
        """Return the supervisor of another process over the same store."""
        return Supervisor(
            self,
            Arbiter(
                ["http://controller"],
                "broker-a",
                author=author_of("broker-a", 1, "1"),
                transport=self.arbiter,
            ),
            self.door,
            facts=ReplicaFacts(
                urls={"default": url_of(1)},
                store_host="10.0.0.1:10911",
                priority=0,
                min_in_sync=1,
                flush_mode="async",
                keep_bytes=0,
                recovery_wait_seconds=30.0,
            ),
            transport=cast(HttpTransport, self.peers),
            clock=self.clock,
        )

    async def open_store(self, cut_to: int | None) -> MessageStore:
        settings = replace(self.settings, cut_to=cut_to)
        return await MessageStore.open(self.directory, settings, self.clock)

    def working(
        self, store: MessageStore, replication: Replication, *, is_master: bool
    ) -> AbstractAsyncContextManager[None]:
        return self._working()

    @asynccontextmanager
    async def _working(self) -> AsyncIterator[None]:
        yield

    def remember_row(self, known: Change) -> None:
        remember_row(self.directory, known)

    def place_changed(self) -> None:
        """There is no name server."""

    def put(self, group: BrokerGroup, *others: Member, by: str = "operator") -> None:
        """Let the arbiter have a row that this replica has not asked for."""
        members = [self.supervisor.member, *others]
        replicas = [
            Replica(replica_id=one.replica_id, uid=one.uid, urls={"default": url_of(one[0])})
            for one in members
        ]
        self.arbiter.put(_put_of(GroupRow(group, tuple(replicas)), by=by, reason="the test"))

    def report(self, member: Member, *, last_epoch: int, end: int = 1, **facts: object) -> None:
        """Let a peer answer with its status."""
        named: dict[str, object] = {
            "role": "standby", "replica_id": member.replica_id, "uid": member.uid, "epoch": 0,
            "last_epoch": last_epoch, "min_offset": 0, "end": end, "durable": end, "confirmed": end,
            "in_sync": [], "sole_master_seconds": None, "replicas": [], "following": None,
        }  # fmt: skip
        self.peers.statuses[url_of(member.replica_id)] = ReplicationStatus.model_validate(
            named | facts
        )

    async def has_seen(self, *, epoch: int) -> None:
        """Wait until the replica has given that epoch's master its time."""
        await until(lambda: self.supervisor._known_epoch == epoch)

    @property
    def refused(self) -> str | None:
        """The reason why the replica has refused the row."""
        candidacy = self.supervisor._candidacy
        return None if candidacy is None else candidacy.refused

    @property
    def has_lost_places(self) -> bool:
        """True once every member is known to have lost its place."""
        candidacy = self.supervisor._candidacy
        return candidacy is not None and candidacy.lost_since is not None

    @property
    def row(self) -> BrokerGroup | None:
        """The row that the replica knows."""
        known = self.supervisor._row
        return None if known is None else known.group


def url_of(replica_id: int) -> str:
    return f"http://replica-{replica_id}:10911"


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    """A replica whose log has epoch 5; it is open, and has not begun."""
    broker = Broker(tmp_path)
    store = await broker.open_store(None)
    store.role.on_durable = store.role.confirm
    await store.role.lead(EpochBegan(5, 1, "one", "10.0.0.1:10911", 0))
    size = store._log.room - batch("orders", 0, [b""]).size
    await store.append(batch("orders", 0, [b"x" * (size - ROOM)]))
    await store.close()
    await broker.supervisor.open()
    yield broker
    await broker.supervisor.stop()


async def test_a_master_of_an_older_row_takes_no_term_if_another_log_is_later(
    broker: Broker,
) -> None:
    """Rule 13: its own log does not show that the arbiter has lost changes."""
    me = broker.supervisor.member
    broker.put(BrokerGroup(5, me, frozenset({me, TWO})), TWO)
    broker.report(TWO, last_epoch=7)
    broker.supervisor.start()
    await until(lambda: broker.refused is not None)
    await stays(lambda: broker.arbiter.version == 1)

    broker.report(TWO, last_epoch=5)  # another log after all

    await until(lambda: broker.supervisor.epoch == 6)
    assert broker.row is not None
    assert broker.row.master == me


async def test_a_member_of_an_older_row_is_not_elected_if_another_log_is_later(
    broker: Broker,
) -> None:
    """Rule 13: perhaps the lost changes had removed it from the in-sync set."""
    me = broker.supervisor.member
    broker.put(BrokerGroup(5, TWO, frozenset({me, TWO})), TWO)
    broker.report(TWO, last_epoch=7)
    broker.supervisor.start()
    await broker.has_seen(epoch=5)
    broker.clock.advance(PROMISE_SECONDS + 1)
    await until(lambda: broker.refused is not None)
    await stays(lambda: broker.arbiter.version == 1)

    # A foreign store at the replica's address says nothing about this group.
    broker.report(Member(2, "foreign"), last_epoch=99)

    await until(lambda: broker.supervisor.epoch == 6)
    assert broker.row is not None
    assert broker.row.master == me


async def test_a_row_that_another_replica_knows_to_be_forgotten_elects_nobody(
    broker: Broker,
) -> None:
    """Rule 13, within one epoch; the master is silent, and the other replica knows a later row."""
    me = broker.supervisor.member
    broker.put(BrokerGroup(5, TWO, frozenset({me, TWO, THREE})), TWO, THREE)
    broker.report(THREE, last_epoch=5, known_epoch=5, known_number=2, damaged=True)
    broker.supervisor.start()
    await broker.has_seen(epoch=5)
    broker.clock.advance(PROMISE_SECONDS + 1)
    await until(lambda: broker.refused is not None)
    await stays(lambda: broker.arbiter.version == 1)

    broker.report(THREE, last_epoch=5, known_epoch=5, known_number=1, damaged=True)

    await until(lambda: broker.supervisor.epoch == 6)


async def test_a_replica_remembers_the_latest_row_through_a_restart(broker: Broker) -> None:
    """Rule 13: it has left the set, which the arbiter has forgotten."""
    me, supervisor = broker.supervisor.member, broker.supervisor
    row = BrokerGroup(5, TWO, frozenset({me, TWO}))
    broker.put(row, TWO)
    assert broker.arbiter.row is not None
    before = BrokerGroupPut.model_validate(broker.arbiter.row)
    broker.put(replace(row, in_sync=frozenset({TWO})), TWO)
    supervisor.start()
    await broker.has_seen(epoch=5)
    await supervisor.stop()

    broker.arbiter.restored(before, 1)
    broker.supervisor = again = broker.another()
    await again.open()
    again.start()
    await until(lambda: again.epoch == 5)
    broker.clock.advance(PROMISE_SECONDS + 1)

    await until(lambda: broker.refused is not None)
    await stays(lambda: broker.arbiter.version == 1)


async def test_a_term_that_has_no_room_is_left_to_others_until_there_is(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rule 3: nothing is appended without its epoch; and later the replica tries again."""

    def full(*_args: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    me, supervisor = broker.supervisor.member, broker.supervisor
    store = supervisor.store
    with monkeypatch.context() as disk:
        disk.setattr(Segment, "create", full)
        broker.put(BrokerGroup(5, me, frozenset({me})))
        supervisor.start()
        await until(lambda: broker.supervisor.epoch == 6 and supervisor.role is Role.STANDBY)
        await stays(lambda: broker.supervisor.epoch == 6 and supervisor.role is Role.STANDBY)
        assert isinstance(store.refusal, DiskFullError)

    await store.upkeep.probe_disk()  # as the upkeep of a standby does

    await until(lambda: supervisor.role is Role.MASTER)
    assert broker.row == BrokerGroup(7, me, frozenset({me}))


@pytest.mark.parametrize("is_unclean", [False, True])
async def test_a_replica_that_an_operator_appoints_keeps_its_promise_first(
    broker: Broker, *, is_unclean: bool
) -> None:
    """Rule 10: its former master may not know of it, and still have its lease."""
    me, supervisor = broker.supervisor.member, broker.supervisor
    broker.put(BrokerGroup(5, TWO, frozenset({TWO})), TWO)
    supervisor.start()
    await broker.has_seen(epoch=5)
    broker.put(BrokerGroup(6, me, frozenset({me}), is_unclean), TWO)
    await until(lambda: supervisor.epoch == 6)
    await stays(lambda: supervisor.epoch == 6)

    broker.clock.advance(PROMISE_SECONDS)

    await until(lambda: supervisor.role is Role.MASTER)
    assert broker.row == replace(founded(me), epoch=7, is_unclean=is_unclean)


async def test_a_master_that_hands_over_releases_its_successor(broker: Broker) -> None:
    me, supervisor = broker.supervisor.member, broker.supervisor
    broker.put(BrokerGroup(5, TWO, frozenset({me, TWO})), TWO)
    supervisor.start()
    await broker.has_seen(epoch=5)

    broker.put(BrokerGroup(6, me, frozenset({me})), TWO, by=author_of("broker-a", 2, "f0"))

    await until(lambda: supervisor.role is Role.MASTER)
    assert broker.row == replace(founded(me), epoch=7)


async def test_all_members_that_have_lost_records_twice_find_a_master(broker: Broker) -> None:
    """Rule 8: the row names uids before those that the last start gave up."""
    me, supervisor = broker.supervisor.member, broker.supervisor
    broker.put(BrokerGroup(5, Member(2, "a"), frozenset({Member(2, "a"), Member(1, "b")})), TWO)
    assert supervisor.store.identity is not None
    supervisor.store.identity = replace(supervisor.store.identity, former_uids=("c", "b"))
    broker.report(TWO, last_epoch=4, former_uids=["later", "a"])
    supervisor.start()
    await broker.has_seen(epoch=5)
    broker.clock.advance(PROMISE_SECONDS + 1)
    await until(lambda: broker.has_lost_places)
    broker.clock.advance(30.0)

    await until(lambda: supervisor.role is Role.MASTER)
    assert broker.row == replace(founded(me), epoch=6, is_unclean=True)
