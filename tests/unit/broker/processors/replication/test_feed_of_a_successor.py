"""The feed of a master that succeeds another, or itself after a restart.

Its log has records that nobody has confirmed, and its replicas' logs end where those of another
master's runs did, or where a kill left them.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from eruca.contract.errors import ForeignReplicaError
from eruca.contract.replication import LineageAnswer, LineageRequest, LineageTail
from eruca_broker.core.batches.batch import Batch
from eruca_broker.core.replication.broker_group import Member
from eruca_broker.core.state.epoch_events import EpochBegan
from eruca_broker.core.state.timers_events import TimersFired
from eruca_broker.processors.replication.feed import Feed
from eruca_broker.processors.replication.fetches import Fetch, Run
from eruca_broker.processors.replication.lineage import digest_of, log_epochs
from eruca_broker.store.message_store import MessageStore
from support.clocks import ManualClock
from support.stores import abandon, batch, small_settings
from support.waiting import until

pytestmark = pytest.mark.anyio

ONE, TWO, THREE = Member(1, "a"), Member(2, "b"), Member(3, "c")
ALL = frozenset({ONE, TWO, THREE})
CLOCK = ManualClock()


class Leader:
    """A store that leads an epoch; no replica has acknowledged anything."""

    def __init__(self, store: MessageStore, epoch: int, member: Member) -> None:
        self.store = store
        self.epoch = epoch
        self.begun = store.role.lead(EpochBegan(epoch, *member, "10.0.0.1:10911", 0))
        self.feed = Feed(store, epoch=epoch, master=member, known=ALL, clock=CLOCK, shown_offset=0)

    async def written(self) -> int:
        """Return the log's end once everything is written."""
        await until(lambda: self.store._log.end_offset == self.store.durable_offset > 0)
        return self.store.log_max_offset

    async def append(self, *batches: Batch, head: TimersFired | None = None) -> int:
        """Append batches as one; return the log's end, which nobody has confirmed."""
        self.store.append_group(batches, head).add_done_callback(lambda done: done.exception())
        return await self.written()

    def prove(self, member: Member, end: int) -> LineageAnswer:
        """Let a replica that has the same log up to *end* prove its lineage."""
        first = self._asked(member, end, None)
        if first.proved:
            return first
        tail = LineageTail(
            begin=first.tail_begin,
            end=first.cut_to,
            digest=digest_of(self.store.log.pieces(first.tail_begin, first.cut_to)),
        )
        return self._asked(member, end, tail)

    def _asked(self, member: Member, end: int, tail: LineageTail | None) -> LineageAnswer:
        store = self.store
        epochs = [epoch for epoch in log_epochs(store.role.epochs()) if epoch.begun_at < end]
        return self.feed.prove(
            LineageRequest(
                replica_id=member.replica_id,
                uid=member.uid,
                epoch=self.epoch,
                epochs=epochs,
                min_offset=0,
                end=end,
                segment_bytes=store.segment_bytes,
                tail=tail,
            )
        )

    def fetch(self, member: Member, from_offset: int, bytes_max: int = 1 << 20) -> Run:
        """Let a replica acknowledge what is before *from_offset*, and fetch what follows."""
        fetch = Fetch(member, self.epoch, from_offset, 0, 0.0, bytes_max)
        self.feed.acknowledge(fetch)
        run = self.feed.run(fetch)
        self.feed.confirm()
        return run

    def end(self) -> None:
        self.feed.close()
        self.store.role.follow()


class Stores:
    """Stores of replicas, closed at the end."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.open: list[MessageStore] = []

    async def opened(self, name: str) -> MessageStore:
        settings = replace(small_settings(), is_replica=True)
        store = await MessageStore.open(self._directory / name, settings, CLOCK)
        self.open.append(store)
        return store

    async def killed(self, store: MessageStore) -> None:
        self.open.remove(store)
        await abandon(store)


@pytest.fixture
async def stores(tmp_path: Path) -> AsyncIterator[Stores]:
    stores = Stores(tmp_path)
    yield stores
    for store in stores.open:
        await store.close()


async def copied(replica: MessageStore, run: Run) -> int:
    """Append a run to a replica; return its end."""
    await replica.role.copy(memoryview(b"".join(run.pieces)), replica.log_max_offset)
    return replica.log_max_offset


async def test_a_restarted_master_tells_nobody_that_what_it_found_is_confirmed(
    stores: Stores,
) -> None:
    """Rule 7: a start publishes all that the log holds; here nobody else has had any of it."""
    store = await stores.opened("one")
    former = Leader(store, 1, ONE)
    end = await former.append(batch("orders", 0, [b"never confirmed"]))
    assert store.confirmed_offset == 0
    await stores.killed(store)

    store = await stores.opened("one")
    assert store.confirmed_offset == end, "it has no other way to be ready at once"
    successor = Leader(store, 2, ONE)
    await successor.written()

    assert successor.prove(TWO, 0).confirmed == 0
    assert successor.fetch(TWO, 0, bytes_max=1).confirmed == 0
    assert successor.fetch(TWO, end).confirmed == 0, "replica 3 has nothing yet"
    successor.prove(THREE, 0)
    for member in (TWO, THREE):
        successor.fetch(member, store.log_max_offset)
    assert successor.fetch(TWO, store.log_max_offset).confirmed == store.log_max_offset
    successor.end()


async def test_a_replica_that_was_killed_amid_a_write_goes_on_there(stores: Stores) -> None:
    """Rule 5: nobody has confirmed the write, and nobody will without this replica."""
    leader = Leader(await stores.opened("one"), 1, ONE)
    begin = await leader.written()
    end = await leader.append(batch("orders", 0, [b"x" * 100, b"y" * 100]))
    amid = (begin + end) // 2

    assert leader.prove(TWO, amid).proved
    run = leader.fetch(TWO, amid)

    assert b"".join(run.pieces) == b"".join(leader.store.log.pieces(amid, end))
    assert dict(leader.feed.copies.held)[TWO] == amid
    for offset in (begin + 1, amid - 1, end - 1):
        with pytest.raises(ForeignReplicaError):
            leader.fetch(TWO, offset)
    leader.end()


async def test_the_runs_of_the_last_master_end_elsewhere_than_those_of_its_successor(
    stores: Stores,
) -> None:
    """Rule 5: replica 3 has acknowledged a part of what replica 2 has copied as one run.

    It must not lose that, for both have acknowledged it.
    """
    former = Leader(await stores.opened("one"), 1, ONE)
    begin = await former.written()
    two, three = await stores.opened("two"), await stores.opened("three")
    for member, its in ((TWO, two), (THREE, three)):
        its.role.begin_at(0, segment_bytes=former.store.segment_bytes)
        former.prove(member, 0)
        assert await copied(its, former.fetch(member, 0)) == begin
    first = await former.append(batch("orders", 0, [b"acknowledged by all"]))
    former.fetch(THREE, await copied(three, former.fetch(THREE, begin)))
    await former.append(batch("orders", 0, [b"only at replica 2"]))
    former.fetch(TWO, await copied(two, former.fetch(TWO, begin)))
    assert former.feed.copies.confirmed == first == three.log_max_offset < two.log_max_offset
    former.end()

    successor = Leader(two, 2, TWO)
    end = await successor.written()
    answer = successor.prove(THREE, first)
    assert answer.proved
    assert answer.cut_to == first
    assert await copied(three, successor.fetch(THREE, first)) == end
    successor.prove(ONE, 0)
    for member in (ONE, THREE):
        successor.fetch(member, end)

    assert two.confirmed_offset == end
    await successor.begun
    successor.end()


async def test_no_replica_acknowledges_a_part_of_a_group(stores: Stores) -> None:
    """Rule 4: a replica that became master with it would publish the part."""
    leader = Leader(await stores.opened("one"), 1, ONE)
    begin = await leader.written()
    fired = batch("orders", 0, [b"x" * 100, b"y" * 100])
    end = await leader.append(fired, head=TimersFired([1, 2], fired.size))
    behind = await leader.append(batch("orders", 0, [b"z"]))
    leader.prove(TWO, begin)

    for offset in (end - fired.size, end - fired.size // 2):
        assert leader.store._log_reader.begins_at(offset), "a record begins there"
        with pytest.raises(ForeignReplicaError, match="group"):
            leader.fetch(TWO, offset)

    leader.fetch(TWO, end)
    leader.fetch(TWO, behind)
    leader.end()


async def test_a_store_that_was_restored_does_not_pass_for_the_one_that_acknowledged(
    stores: Stores,
) -> None:
    """Rule 1: the master would confirm what this member has not, and it could be elected."""
    leader = Leader(await stores.opened("one"), 1, ONE)
    begin = await leader.written()
    end = await leader.append(batch("orders", 0, [b"acknowledged"]))
    leader.prove(TWO, begin)
    leader.fetch(TWO, end)
    silent_since = leader.feed.silent_since(TWO)

    CLOCK.advance(1)
    with pytest.raises(ForeignReplicaError, match="restored from an older copy"):
        leader.prove(TWO, begin)
    assert leader.feed.silent_since(TWO) == silent_since, "it is about to leave the set"
    leader.feed.asking(frozenset({ONE, THREE}))
    leader.feed.answered(frozenset({ONE, THREE}))

    assert leader.prove(TWO, begin).proved
    assert dict(leader.feed.copies.held)[TWO] == 0
    assert leader.prove(TWO, begin).proved
    leader.end()
