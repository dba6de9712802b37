"""A master and a replica over HTTP: two real stores, the real feed and follower, no arbiter."""

from __future__ import annotations

import asyncio
import os
import shutil
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from random import Random

import httpx
import pytest

from eruca.contract.errors import StaleEpochError
from eruca_broker.core.state.epoch_events import EpochBegan
from eruca_broker.store.settings import FlushMode
from support.brokers import broker_of
from support.clocks import ManualClock
from support.lively_brokers import live
from support.message_stores import is_of
from support.patience import PATIENCE_SECONDS
from support.replication_pairs import (
    BOTH,
    MASTER,
    SECOND,
    SEGMENT_SIZE,
    THIRD,
    Master,
    Replica,
    client_of,
    equal,
    following,
    leading,
    send,
    standing_by,
)
from support.stores import batch
from support.waiting import stays, until

pytestmark = pytest.mark.anyio

BOTH_MODES = pytest.mark.parametrize("flush_mode", FlushMode)


async def grown(master: Master, size: int) -> None:
    """Wait until the master's log has grown by so many bytes."""
    end = master.store.log_max_offset + size
    await until(lambda: master.store.log_max_offset >= end, within_seconds=60)


@BOTH_MODES
@pytest.mark.parametrize("seed", [1, 2])
async def test_records_of_every_kind_are_copied_while_they_are_written(
    tmp_path: Path, flush_mode: FlushMode, seed: int
) -> None:
    """The replica is killed again and again; the master waits for it each time."""
    clock, random = ManualClock(), Random(seed)
    async with (
        leading(tmp_path / "master", in_sync=BOTH, clock=clock, flush_mode=flush_mode) as master,
        standing_by(tmp_path / "replica", flush_mode=flush_mode) as replica,
        client_of(master) as client,
    ):
        replica.follow(master.url)

        async def kill() -> None:
            while True:
                await grown(master, random.randrange(30_000))
                await replica.kill()
                await replica.open()
                replica.follow(master.url)

        killing = asyncio.create_task(kill())
        await live(client, broker_of(master.app).timers, clock, Random(seed))
        killing.cancel()
        await asyncio.wait([killing])
        if not replica.is_open:
            await replica.open()
        await replica.stop_following()
        replica.follow(master.url)
        await equal(master, replica)
        assert replica.cuts == []


@pytest.fixture
async def pair(tmp_path: Path) -> AsyncIterator[tuple[Master, Replica, httpx.AsyncClient]]:
    """A master whose only other member follows."""
    async with (
        leading(tmp_path / "master", in_sync=BOTH) as master,
        standing_by(tmp_path / "replica") as replica,
        client_of(master) as client,
    ):
        replica.follow(master.url)
        await following(replica)
        yield master, replica, client


@BOTH_MODES
async def test_a_replica_becomes_equal_and_stays_equal(
    tmp_path: Path, flush_mode: FlushMode
) -> None:
    async with (
        leading(tmp_path / "master", flush_mode=flush_mode) as master,
        standing_by(tmp_path / "replica", flush_mode=flush_mode) as replica,
        client_of(master) as client,
    ):
        for _ in range(12):
            await send(client, 20)
        assert master.store.segment_count > 3
        replica.follow(master.url)
        await equal(master, replica)
        await until(lambda: master.feed.keeping_up() == [SECOND])

        master.feed.asking(BOTH)
        assert await master.feed.have_everything(frozenset({SECOND}), within_seconds=30)
        master.feed.answered(BOTH)
        await asyncio.gather(*(send(client, 3) for _ in range(40)))
        await equal(master, replica)
        if flush_mode is FlushMode.SYNC:
            assert replica.store.flushed_offset == master.store.log_max_offset


async def test_nothing_is_visible_while_a_member_is_away(tmp_path: Path) -> None:
    """Rules 6 and 7: confirmed never moves without a member, connected or not."""
    async with (
        leading(tmp_path / "master", in_sync=BOTH) as master,
        standing_by(tmp_path / "replica") as replica,
        client_of(master) as client,
    ):
        store, confirmed = master.store, master.store.confirmed_offset
        sending = asyncio.create_task(send(client))
        await until(lambda: store.durable_offset == store.log_max_offset > confirmed)
        assert store.confirmed_offset == confirmed, "not even the epoch has begun"
        assert not sending.done()

        replica.follow(master.url)
        await sending
        await equal(master, replica)

        await replica.stop_following()
        end = store.log_max_offset
        sending = asyncio.create_task(send(client))
        await until(lambda: store.durable_offset > end)
        assert store.confirmed_offset == end
        assert not sending.done()

        master.feed.asking(frozenset({MASTER}))
        assert store.confirmed_offset == end, "the arbiter has not answered"
        master.feed.answered(frozenset({MASTER}))
        await sending
        assert store.confirmed_offset == store.log_max_offset


async def test_a_newcomer_is_waited_for_before_the_arbiter_is_asked(
    pair: tuple[Master, Replica, httpx.AsyncClient],
) -> None:
    """Rule 6."""
    master, replica, client = pair
    await send(client)
    master.feed.asking(BOTH | {THIRD})
    end = master.store.log_max_offset

    sending = asyncio.create_task(send(client))
    await until(lambda: replica.store.log_max_offset > end)
    await until(lambda: dict(master.feed.copies.held)[SECOND] > end)

    assert master.store.confirmed_offset == end
    master.feed.answered(BOTH)
    await sending


async def test_a_hand_over_waits_for_the_acknowledgement_of_the_target(
    pair: tuple[Master, Replica, httpx.AsyncClient],
) -> None:
    master, replica, client = pair
    await send(client, 5)
    end = master.store.log_max_offset

    await master.feed.acknowledged(SECOND, end)
    await master.feed.confirmed(end)

    assert replica.store.log_max_offset == end
    waiting = asyncio.create_task(master.feed.acknowledged(SECOND, end + 1))
    await asyncio.sleep(0)
    master.feed.close()
    with pytest.raises(StaleEpochError):
        await waiting


async def test_a_replica_learns_of_the_last_confirmation_without_another_write(
    pair: tuple[Master, Replica, httpx.AsyncClient],
) -> None:
    master, replica, client = pair
    await send(client)

    await equal(master, replica)
    assert replica.follower.behind_bytes == 0
    assert replica.follower.status().reason is None


@BOTH_MODES
async def test_a_replica_that_was_killed_goes_on_where_its_log_ends(
    tmp_path: Path, flush_mode: FlushMode
) -> None:
    async with (
        leading(tmp_path / "master", flush_mode=flush_mode) as master,
        standing_by(tmp_path / "replica", flush_mode=flush_mode) as replica,
        client_of(master) as client,
    ):
        replica.follow(master.url)
        for _ in range(3):
            await send(client, 20)
            await until(lambda: replica.store.log_max_offset > SEGMENT_SIZE // 8)
            await replica.kill()
            await send(client, 5)
            await replica.open()
            replica.follow(master.url)
        await equal(master, replica)
        assert replica.cuts == []


async def test_a_replica_follows_the_same_master_in_its_next_term(tmp_path: Path) -> None:
    async with standing_by(tmp_path / "replica") as replica:
        for epoch in (1, 2, 3):
            async with (
                leading(tmp_path / "master", epoch=epoch, in_sync=BOTH) as master,
                client_of(master) as client,
            ):
                replica.follow(master.url, epoch=epoch)
                await send(client, 7)
                await equal(master, replica)
                assert replica.store.role.epochs().last == epoch
                await replica.stop_following()
        assert replica.cuts == []


async def test_a_master_without_connections_to_its_replicas_confirms_again_once_they_return(
    pair: tuple[Master, Replica, httpx.AsyncClient],
) -> None:
    """The failures in between are the replica's reason, and no line of its log."""
    master, replica, client = pair
    await replica.stop_following()
    sending = asyncio.create_task(send(client))
    await until(lambda: master.store.log_max_offset > master.store.confirmed_offset)

    replica.follow("http://127.0.0.1:9")  # the discard port: nobody listens
    await until(lambda: "127.0.0.1:9" in (replica.follower.reason or ""))
    assert not sending.done()
    await replica.stop_following()
    replica.follow(master.url)

    await sending
    await equal(master, replica)


async def test_a_former_master_acknowledges_its_last_writes_once_they_are_flushed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_end, real = threading.Event(), os.fdatasync

    def flush(descriptor: int) -> None:
        if is_of(descriptor, tmp_path / "former"):
            assert may_end.wait(PATIENCE_SECONDS)
        real(descriptor)

    async with standing_by(tmp_path / "former", flush_mode=FlushMode.SYNC) as former:
        store = former.store
        store.role.on_durable = lambda _: None
        store.role.lead(EpochBegan(1, SECOND.replica_id, SECOND.uid, "10.0.0.2:10911", 0))
        await until(lambda: 0 < store.durable_offset == store.log_max_offset)
        durable = store.durable_offset
        monkeypatch.setattr("eruca_broker.store.log.segment.os.fdatasync", flush)
        store.append(batch("orders", 0, [b"x"]))
        await until(lambda: store.log_max_offset > durable)
        store.role.follow()
        log = tmp_path / "former" / "commitlog"
        shutil.copytree(log, tmp_path / "master" / "commitlog")
        async with leading(tmp_path / "master", epoch=2, in_sync=BOTH) as master:
            former.follow(master.url, epoch=2)
            await following(former)
            await stays(lambda: former.is_following and store.durable_offset == durable)
            assert master.feed.copies.confirmed <= durable

            may_end.set()
            await equal(master, former)
