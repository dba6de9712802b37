"""Lineage over HTTP: logs that diverge are cut at their common end, foreign ones are refused."""

from __future__ import annotations

import asyncio
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from eruca_broker.core.replication.following import FollowState
from support.brokers import broker_of, open_broker
from support.brokers import client_of as in_process
from support.replication_pairs import (
    BOTH,
    MASTER,
    SECOND,
    SEGMENT_SIZE,
    Replica,
    client_of,
    equal,
    following,
    leading,
    log_of,
    replica_settings,
    send,
    standing_by,
)
from support.stores import delete_oldest_segments
from support.waiting import until

pytestmark = pytest.mark.anyio


async def forked(directory: Path) -> int:
    """Let two members share a log, and then write to the first one's alone; return the fork."""
    async with (
        leading(directory / "first", in_sync=BOTH) as master,
        standing_by(directory / "second") as replica,
        client_of(master) as client,
    ):
        replica.follow(master.url)
        await send(client, 30)
        await equal(master, replica)
        await replica.stop_following()
        fork = master.store.log_max_offset
        sending = asyncio.create_task(send(client, 40))
        await until(lambda: master.store.durable_offset > fork)
        sending.cancel()
    return fork


async def test_a_former_master_cuts_what_its_successor_does_not_have(tmp_path: Path) -> None:
    """Rules 3 and 9; nothing that was confirmed goes."""
    fork = await forked(tmp_path)
    async with (
        leading(tmp_path / "second", epoch=2, member=SECOND) as master,
        standing_by(tmp_path / "first", MASTER) as replica,
        client_of(master) as client,
    ):
        await send(client, 3)
        before = log_of(replica.store)
        assert replica.store.log_max_offset > fork

        replica.follow(master.url, epoch=2)
        await until(lambda: replica.cuts == [fork])

        assert replica.follower.state is FollowState.CUTTING
        assert log_of(replica.store) == before, "its role cuts, not the follower"
        assert log_of(master.store)[:fork] == before[:fork]

        await replica.cut()
        replica.follow(master.url, epoch=2)
        await send(client, 3)
        await equal(master, replica)
        assert replica.cuts == [fork]


async def test_a_cut_below_what_was_shown_is_refused(tmp_path: Path) -> None:
    """Rule 9."""
    fork = await forked(tmp_path)
    async with (
        leading(tmp_path / "second", epoch=2, member=SECOND) as master,
        standing_by(tmp_path / "first", MASTER) as replica,
    ):
        replica.follow(master.url, epoch=2, shown_offset=fork + 1)
        await until(lambda: replica.follower.state is FollowState.REFUSED)

        assert f"has confirmed records up to {fork + 1}" in (replica.follower.reason or "")
        assert replica.cuts == []


async def test_a_cut_below_what_was_shown_is_made_behind_an_unclean_master(tmp_path: Path) -> None:
    fork = await forked(tmp_path)
    async with (
        leading(tmp_path / "second", epoch=2, member=SECOND, unclean=True) as master,
        standing_by(tmp_path / "first", MASTER) as replica,
    ):
        replica.follow(master.url, epoch=2, shown_offset=fork + 1)
        await until(lambda: replica.cuts == [fork])
        assert replica.follower.confirmed == fork, "the rest is shown no longer"


async def refused(replica: Replica) -> str:
    """Wait until the replica is refused, and nothing of it has changed; return the reason."""
    before = log_of(replica.store)
    try:
        await until(lambda: replica.follower.state is FollowState.REFUSED)
    except TimeoutError:
        raise AssertionError(replica.follower.status()) from None
    assert log_of(replica.store) == before
    assert replica.cuts == []
    return replica.follower.reason or ""


async def test_another_groups_log_is_refused(tmp_path: Path) -> None:
    for name in ("first", "other"):
        async with leading(tmp_path / name) as master, client_of(master) as client:
            await send(client, 10)
    async with (
        leading(tmp_path / "first", epoch=2) as master,
        standing_by(tmp_path / "other") as replica,
    ):
        replica.follow(master.url, epoch=2)

        assert "expected log" in await refused(replica)


async def test_equal_epochs_with_other_bytes_are_refused(tmp_path: Path) -> None:
    """Somebody has copied a store, and written to both in one epoch."""
    async with leading(tmp_path / "first"):
        pass
    shutil.copytree(tmp_path / "first", tmp_path / "copy")
    ends = []
    for name in ("first", "copy"):
        async with (
            open_broker(tmp_path / name, segment_bytes=SEGMENT_SIZE) as app,
            in_process(app) as client,
        ):
            await send(client, 10, text=name)
            ends.append(broker_of(app).store.log_max_offset)
    async with (
        leading(tmp_path / "first", epoch=2) as master,
        standing_by(tmp_path / "copy") as replica,
    ):
        replica.follow(master.url, epoch=2)

        assert f"to {min(ends)} differ" in await refused(replica)


async def test_segments_of_another_length_are_refused(tmp_path: Path) -> None:
    async with leading(tmp_path / "first", segment_bytes=2 * SEGMENT_SIZE) as master:
        pass
    shutil.copytree(tmp_path / "first", tmp_path / "copy")
    for directory, size in (("first", 2 * SEGMENT_SIZE), ("copy", SEGMENT_SIZE)):
        for path in (tmp_path / directory / "commitlog").iterdir():
            with path.open("r+b") as file:
                file.truncate(size)
    async with (
        leading(tmp_path / "first", epoch=2, segment_bytes=2 * SEGMENT_SIZE) as master,
        standing_by(tmp_path / "copy") as replica,
    ):
        replica.follow(master.url, epoch=2)

        assert f"expected segments of {2 * SEGMENT_SIZE} bytes" in await refused(replica)


async def test_a_master_with_an_older_epoch_than_the_log_is_not_followed(tmp_path: Path) -> None:
    """Rule 13."""
    await forked(tmp_path)
    async with leading(tmp_path / "second", epoch=7, member=SECOND):
        pass
    async with (
        leading(tmp_path / "first", epoch=3) as master,
        standing_by(tmp_path / "second") as replica,
    ):
        replica.follow(master.url, epoch=3)

        assert "older than epoch 7 of this log" in await refused(replica)


async def test_an_empty_replica_begins_where_the_log_begins(tmp_path: Path) -> None:
    async with leading(tmp_path / "first") as master, client_of(master) as client:
        for _ in range(8):
            await send(client, 20)
        await master.store.upkeep.checkpoint()
        assert await delete_oldest_segments(master.store, 2)
        begin = master.store.log_min_offset
        async with standing_by(tmp_path / "second") as replica:
            replica.follow(master.url)
            await until(
                lambda: replica.store.confirmed_offset == master.store.log_max_offset > begin
            )

            assert replica.store.log_min_offset == begin
            assert log_of(replica.store) == log_of(master.store)
            assert replica.follower.min_offset == begin


async def test_a_replica_whose_log_ends_before_the_masters_begins_is_refused(
    tmp_path: Path,
) -> None:
    async with leading(tmp_path / "first", in_sync=BOTH) as master, client_of(master) as client:
        async with standing_by(tmp_path / "second") as replica:
            replica.follow(master.url)
            await send(client)
            await equal(master, replica)
        master.feed.answered(frozenset({MASTER}))
        for _ in range(8):
            await send(client, 20)
        await master.store.upkeep.checkpoint()
        assert await delete_oldest_segments(master.store, 2)
        async with standing_by(tmp_path / "second") as replica:
            replica.follow(master.url)

            assert "have nothing in common" in await refused(replica)


async def test_an_empty_replica_takes_the_masters_segment_length(tmp_path: Path) -> None:
    async with (
        leading(tmp_path / "first") as master,
        client_of(master) as client,
    ):
        replica = Replica(
            tmp_path / "second", SECOND, replace(replica_settings(), segment_bytes=2 * SEGMENT_SIZE)
        )
        await replica.open()
        replica.follow(master.url)
        await following(replica)
        await send(client, 20)

        await equal(master, replica)
        await replica.close()
