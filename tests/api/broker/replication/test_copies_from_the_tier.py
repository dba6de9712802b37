"""A replica that is far behind copies segments from the tier: the same bytes, whatever fails."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest

from eruca.contract.errors import ForeignReplicaError, TransportError
from eruca.objects.repositories import Repository
from eruca_broker.core.replication.following import FollowState
from eruca_broker.opening import open_tier
from eruca_broker.processors.replication import catching_up, feed, run_fetcher
from eruca_broker.processors.replication.lineage import CommonPart
from eruca_broker.processors.replication.run_fetcher import RUN_SIZE_MIN, RunFetcher
from eruca_broker.settings import BrokerSettings
from eruca_broker.store.log.segment import Segment
from eruca_broker.store.tiering.copying import TierCopies
from eruca_broker.store.tiering.place import TierPlace
from eruca_broker.store.tiering.tiering import Tiering, TierSettings
from eruca_chassis.clock import SystemClock
from support.replication_pairs import (
    SEGMENT_SIZE,
    Master,
    Replica,
    client_of,
    equal,
    leading,
    log_of,
    send,
    standing_by,
)
from support.stores import all_answers, delete_oldest_segments
from support.tiers import brought_up, tiering_of
from support.waiting import until

pytestmark = pytest.mark.anyio
SEGMENTS = 12


@pytest.fixture(autouse=True)
def small_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a replica copy a segment at a time, as it does with large ones."""
    monkeypatch.setattr(run_fetcher, "RUN_SIZE_DEFAULT", RUN_SIZE_MIN)
    monkeypatch.setattr(run_fetcher, "RUN_SIZE_MAX", RUN_SIZE_MIN)


@pytest.fixture
async def master(tmp_path: Path) -> AsyncIterator[Master]:
    async with leading(
        tmp_path / "master", tier_url=str(tmp_path / "tier"), tier_upload_rate_max=0
    ) as master:
        yield master


@pytest.fixture
async def client(master: Master) -> AsyncIterator[httpx.AsyncClient]:
    async with client_of(master) as client:
        yield client


async def fill(master: Master, client: httpx.AsyncClient) -> None:
    """Write some segments, and bring them into the tier."""
    end = master.store.segment_count + SEGMENTS
    while master.store.segment_count < end:
        await send(client, 20)
    await master.store.upkeep.flush()
    await brought_up(tiering_of(master.app))


async def delete_most(master: Master) -> None:
    """Delete at the master what its retention would: all that the tier has but its last segment."""
    manifest = tiering_of(master.app).manifest
    assert manifest is not None
    await delete_oldest_segments(master.store, len(manifest.segments) - 1)


@asynccontextmanager
async def tier_of(
    replica: Replica, master: Master, repository: Repository | None = None
) -> AsyncIterator[TierCopies]:
    """Yield the replica's view of the master's tier."""
    settings = master.app.parts[BrokerSettings]
    place = repository or open_tier(settings)
    assert place is not None
    tiering = Tiering(
        replica.store,
        place,
        TierSettings(settings.cluster, settings.name, cache_bytes_max=1 << 24),
        SystemClock(),
        is_master=False,
    )
    await tiering.open()
    yield TierCopies(replica.store, tiering)
    await tiering.close()


@asynccontextmanager
async def left_behind(
    tmp_path: Path, master: Master, client: httpx.AsyncClient
) -> AsyncIterator[Replica]:
    """Yield a replica whose log ends before its master's disk begins."""
    for _ in range(2):
        await send(client, 40)
    async with standing_by(tmp_path / "second") as replica:
        replica.follow(master.url)
        await equal(master, replica)
        await replica.stop_following()
        end = replica.store.log_max_offset
        await fill(master, client)
        await delete_most(master)
        assert master.store.log_min_offset > end
        yield replica


def from_the_tier(replica: Replica) -> int:
    return replica.follower.status().tier_bytes


async def test_a_new_replica_copies_closed_segments_from_the_tier(
    tmp_path: Path, master: Master, client: httpx.AsyncClient
) -> None:
    await fill(master, client)
    async with standing_by(tmp_path / "second") as replica, tier_of(replica, master) as tier:
        replica.follow(master.url, tier=tier)
        await equal(master, replica)

        closed = master.store.log_max_offset // SEGMENT_SIZE * SEGMENT_SIZE
        assert from_the_tier(replica) >= closed - 3 * SEGMENT_SIZE
        assert replica.follower.copied_bytes <= 3 * SEGMENT_SIZE + RUN_SIZE_MIN
        assert replica.follower.state is FollowState.FOLLOWING
        await send(client, 5)
        await equal(master, replica)


async def test_a_replica_is_bridged_to_a_master_that_has_less_on_its_disk(
    tmp_path: Path, master: Master, client: httpx.AsyncClient
) -> None:
    async with left_behind(tmp_path, master, client) as replica:
        replica.follow(master.url)
        await until(lambda: replica.follower.state is FollowState.REFUSED)
        assert "nothing in common" in (replica.follower.reason or "")
        await replica.stop_following()
        async with tier_of(replica, master) as tier:
            replica.follow(master.url, tier=tier)
            await until(lambda: replica.store.confirmed_offset == master.store.log_max_offset)

            assert from_the_tier(replica) > (SEGMENTS - 2) * SEGMENT_SIZE
            assert log_of(replica.store).endswith(log_of(master.store))
            assert replica.store.log_min_offset == 0
            await replica.stop_following()


async def test_a_bridged_replica_whose_disk_is_full_reads_no_more_of_the_tier_until_there_is_room(
    tmp_path: Path, master: Master, client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with left_behind(tmp_path, master, client) as replica, tier_of(replica, master) as tier:
        reads, read, write = list[str](), TierPlace.read, Segment.write

        async def counted(place: TierPlace, path: str, begin: int, end: int) -> bytes:
            reads.append(path)
            return await read(place, path, begin, end)

        def full(segment: Segment, *args: object) -> None:
            if segment.path.is_relative_to(replica.directory):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            write(segment, *args)  # type: ignore[arg-type]  # passed on

        monkeypatch.setattr(TierPlace, "read", counted)
        with monkeypatch.context() as disk:
            disk.setattr(Segment, "write", full)
            replica.follow(master.url, tier=tier)
            await until(lambda: replica.follower.state is FollowState.HALTED)
            assert "disk" in (replica.follower.reason or "")
            await replica.stop_following()

            count = len(reads)
            replica.follow(master.url, tier=tier)  # in another term: nothing is looked at again
            await until(lambda: replica.follower.state is FollowState.HALTED)
            assert len(reads) == count
        await replica.store.upkeep.probe_disk()

        await until(lambda: replica.store.confirmed_offset == master.store.log_max_offset)
        assert log_of(replica.store).endswith(log_of(master.store))
        await replica.stop_following()


async def test_a_log_that_is_refused_for_another_reason_is_not_bridged(
    tmp_path: Path, master: Master, client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tier would continue it, but the master says that it is not its own."""
    async with left_behind(tmp_path, master, client) as replica, tier_of(replica, master) as tier:
        before, end = log_of(replica.store), replica.store.confirmed_offset

        def foreign(*_: object, **__: object) -> CommonPart:
            raise ForeignReplicaError("expected log A, found log B")

        monkeypatch.setattr(feed, "check_lineage", foreign)
        replica.follow(master.url, tier=tier)
        await until(lambda: replica.follower.state is FollowState.REFUSED)

        assert log_of(replica.store) == before
        assert replica.store.confirmed_offset == end
        assert from_the_tier(replica) == 0
        await replica.stop_following()


async def test_a_log_that_is_not_the_tiers_is_not_bridged(
    tmp_path: Path, master: Master, client: httpx.AsyncClient
) -> None:
    async with leading(tmp_path / "other") as other, client_of(other) as others_client:
        for _ in range(2):
            await send(others_client, 40)
    await fill(master, client)
    await delete_most(master)
    async with standing_by(tmp_path / "other") as replica, tier_of(replica, master) as tier:
        before = log_of(replica.store)
        replica.follow(master.url, tier=tier)
        await until(lambda: replica.follower.state is FollowState.REFUSED)

        assert log_of(replica.store) == before
        await replica.stop_following()


async def test_a_tier_that_is_away_leaves_the_masters_log(
    tmp_path: Path, master: Master, client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill(master, client)
    async with standing_by(tmp_path / "second") as replica, tier_of(replica, master) as tier:

        async def away(*_: object, **__: object) -> dict[str, int]:
            raise TransportError("the object store is away", fix="wait")

        monkeypatch.setattr(TierPlace, "sizes", away)
        replica.follow(master.url, tier=tier)
        await equal(master, replica)

        assert from_the_tier(replica) == 0
        await replica.stop_following()


async def test_a_damaged_object_leaves_the_masters_log_for_the_rest(
    tmp_path: Path, master: Master, client: httpx.AsyncClient
) -> None:
    await fill(master, client)
    path = sorted((tmp_path / "tier").rglob("*.log"))[SEGMENTS // 2]
    data = bytearray(path.read_bytes())
    data[SEGMENT_SIZE // 2] ^= 1
    path.write_bytes(data)
    async with standing_by(tmp_path / "second") as replica, tier_of(replica, master) as tier:
        replica.follow(master.url, tier=tier)
        await equal(master, replica)

        assert 0 < from_the_tier(replica) <= SEGMENTS // 2 * SEGMENT_SIZE
        assert replica.follower.refused_runs == 0
        await replica.stop_following()


async def test_a_master_that_misses_one_request_ends_no_copy_from_the_tier(
    tmp_path: Path, master: Master, client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill(master, client)
    monkeypatch.setattr(catching_up, "BEAT_SECONDS", 0.05)
    async with standing_by(tmp_path / "second") as replica, tier_of(replica, master) as tier:
        read, missed, beats = TierPlace.read, asyncio.Event(), list[int]()

        async def slow(place: TierPlace, path: str, begin: int, end: int) -> bytes:
            if from_the_tier(replica) > 2 * SEGMENT_SIZE:
                await missed.wait()
            return await read(place, path, begin, end)

        fetch = RunFetcher.fetch

        async def refused(self: RunFetcher, *request: int) -> object:
            if from_the_tier(replica) > 2 * SEGMENT_SIZE and not missed.is_set():
                beats.append(from_the_tier(replica))
                if beats[-3:] == beats[-1:] * 3:  # nothing is appended: it waits for the tier
                    missed.set()
                    raise TransportError("the master did not answer in time")
            return await fetch(self, *request)

        monkeypatch.setattr(TierPlace, "read", slow)
        monkeypatch.setattr(RunFetcher, "fetch", refused)
        replica.follow(master.url, tier=tier)
        await equal(master, replica)

        closed = master.store.log_max_offset // SEGMENT_SIZE * SEGMENT_SIZE
        assert missed.is_set()
        assert from_the_tier(replica) >= closed - 3 * SEGMENT_SIZE
        await replica.stop_following()


async def test_a_replica_that_is_killed_goes_on_where_it_was(
    tmp_path: Path, master: Master, client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill(master, client)
    monkeypatch.setattr(catching_up, "BEAT_SECONDS", 0.0)
    async with standing_by(tmp_path / "second") as replica:
        kills = 0
        while True:
            begin = replica.store.log_max_offset
            async with tier_of(replica, master) as tier:
                replica.follow(master.url, tier=tier)
                await until(
                    lambda begin=begin: (  # type: ignore[misc]
                        replica.store.log_max_offset > begin + 2 * SEGMENT_SIZE
                        or replica.store.confirmed_offset == master.store.log_max_offset
                    )
                )
                if replica.store.confirmed_offset == master.store.log_max_offset:
                    break
                kills += 1
                await replica.kill()
            await replica.open()
        assert kills > 1
        assert log_of(replica.store) == log_of(master.store)
        assert all_answers(replica.store) == all_answers(master.store)
        await replica.stop_following()


async def test_a_member_is_alive_for_its_master_while_the_tier_hangs(
    tmp_path: Path, master: Master, client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill(master, client)
    monkeypatch.setattr(catching_up, "BEAT_SECONDS", 0.01)
    async with standing_by(tmp_path / "second") as replica, tier_of(replica, master) as tier:
        looking = asyncio.Event()

        async def hanging() -> bool:
            looking.set()
            await asyncio.Event().wait()
            return True

        monkeypatch.setattr(tier, "look", hanging)
        replica.follow(master.url, tier=tier)
        await looking.wait()
        [seen] = master.feed.heard_at().values()

        await until(lambda: next(iter(master.feed.heard_at().values())) > seen + 0.1)

        await replica.stop_following()
