"""The message store: what fits into a segment, and the segment behind it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from eruca.contract.errors import TooLargeError
from eruca.contract.names import EVENTS_TOPIC
from eruca_broker.core.state.events import TopicPut
from eruca_broker.core.state.group_events import GroupSubscribed, Subscribed
from eruca_broker.store.message_store import MessageStore
from eruca_broker.store.settings import FlushMode
from support.limits import file_size_limit
from support.log_model import LogModel, read_log
from support.message_stores import BOTH_MODES, ORDERS, bodies, opened, send
from support.stores import (
    abandon,
    all_answers,
    delete_oldest_segments,
    scratch_directory,
    small_settings,
)

pytestmark = pytest.mark.anyio


@BOTH_MODES
async def test_a_batch_larger_than_a_segment_changes_nothing(
    store: MessageStore, tmp_path: Path
) -> None:
    await send(store, b"small")
    files = list((tmp_path / "commitlog").iterdir())
    for size in (store.segment_bytes - 50, store.segment_bytes, 3 * store.segment_bytes):
        with pytest.raises(TooLargeError, match="do not fit into a segment"):
            await send(store, b"x" * size)

    assert list((tmp_path / "commitlog").iterdir()) == files
    assert (await send(store, b"next")).queue_offset == 1


@BOTH_MODES
async def test_a_batch_with_no_room_beside_the_snapshot_gets_a_segment_of_its_own(
    store: MessageStore, tmp_path: Path
) -> None:
    receipts = [await send(store, b"%d" % n * (store.segment_bytes - 300)) for n in range(3)]

    assert [receipt.log_offset % store.segment_bytes for receipt in receipts] == [0, 0, 0]
    assert [receipt.queue_offset for receipt in receipts] == [0, 1, 2]
    *_, min_offset = await delete_oldest_segments(store, 9)
    assert min_offset == receipts[2].log_offset - store.segment_bytes  # its snapshot is there
    await store.close()
    reopened = await opened(tmp_path)
    assert reopened.state.topics.keys() == {"orders", EVENTS_TOPIC}
    await reopened.close()


@BOTH_MODES
async def test_a_state_larger_than_a_segment_is_written_in_parts(
    tmp_path: Path, mode: FlushMode
) -> None:
    settings = small_settings(flush_mode=mode, segment_bytes=16 * 1024)
    store = await opened(tmp_path, settings)
    for number in range(200):
        await store.change(TopicPut(f"topic-{number}", 1, 1, "rw"))
    await store.change(ORDERS)
    for _ in range(60):
        await send(store, b"x" * 400)
    before = all_answers(store)
    await store.close()

    assert LogModel(read_log(tmp_path)).topics.keys() >= {"topic-0", "topic-199"}
    store = await opened(tmp_path, settings)
    assert all_answers(store) == before
    assert await delete_oldest_segments(store, 1_000)
    await store.close()
    store = await opened(tmp_path, settings)
    assert store.state.topics.keys() == before["topics"].keys()  # type: ignore[attr-defined]
    await store.close()


@BOTH_MODES
async def test_parts_of_the_state_fit_into_segments_whatever_their_encoding_takes(
    tmp_path: Path, mode: FlushMode
) -> None:
    """A control character takes six bytes of JSON."""
    settings = small_settings(flush_mode=mode, segment_bytes=64 * 1024)
    store = await opened(tmp_path, settings)
    await store.change(ORDERS)
    subscribed = Subscribed("orders", f"a = '{chr(1) * 4_080}'", "sql92")
    groups = {f"group-{number}" for number in range(10)}
    for group in groups:
        await store.change(GroupSubscribed(group, (subscribed,)))
    for number in range(12):
        await send(store, b"%d" % number * 20_000)
    before = all_answers(store)
    await abandon(store)

    store = await opened(tmp_path, settings)

    assert all_answers(store) == before
    assert store.state.groups.keys() == groups
    assert {group.subscriptions for group in store.state.groups.values()} == {(subscribed,)}
    await store.close()


async def test_a_state_that_no_segment_can_hold_begins_no_segment(tmp_path: Path) -> None:
    store = await opened(tmp_path)
    await store.change(ORDERS)
    await send(store, b"before")
    store.state.apply(
        GroupSubscribed("large", (Subscribed("orders", "x" * store.segment_bytes, "tag"),)), 0
    )

    with pytest.raises(TooLargeError, match="a part of the state"):
        await send(store, b"x" * (store.segment_bytes - 600))

    assert store.segment_count == 1
    await send(store, b"after")
    await abandon(store)
    reopened = await opened(tmp_path)
    assert bodies(reopened) == [b"before", b"after"]
    await reopened.close()


@BOTH_MODES
@pytest.mark.parametrize("kept", [0, 1])
async def test_a_segment_whose_snapshot_a_crash_prevented_gets_another(
    tmp_path: Path, mode: FlushMode, kept: int
) -> None:
    settings = small_settings(flush_mode=mode)
    store = await opened(tmp_path, settings)
    await store.change(ORDERS)
    while store.segment_count == 1:
        await send(store, b"x" * 700)
    base = (store.segment_count - 1) * store.segment_bytes
    await abandon(store)
    last = max((tmp_path / "commitlog").iterdir())
    (tmp_path / "checkpoint").unlink()
    last.write_bytes(last.read_bytes()[:kept].ljust(settings.segment_bytes, b"\0"))

    store = await opened(tmp_path, settings)

    snapshot = store.log.record(base)
    assert json.loads(snapshot.body)["event"] == "snapshot"
    await store.close()
    for path in sorted((tmp_path / "commitlog").iterdir())[:-1]:
        path.unlink()
    store = await opened(tmp_path, settings)
    assert store.state.topics.keys() == {"orders", EVENTS_TOPIC}
    assert store.queues.range("orders", 0)[1] > 0
    await store.close()


async def test_a_prepared_segment_is_used_and_not_left_behind() -> None:
    directory = scratch_directory()
    store = await opened(directory)
    await store.change(ORDERS)
    while 2 * store.log_max_offset <= store.segment_bytes:
        await send(store, b"x" * 700)
    await store.upkeep.prepare_next_segment()
    assert len(list((directory / "commitlog").iterdir())) == 2
    assert store.segment_count == 1

    await store.close()

    assert len(list((directory / "commitlog").iterdir())) == 1


async def test_without_room_for_the_next_segment_the_current_one_is_filled(tmp_path: Path) -> None:
    store = await opened(tmp_path)
    await store.change(ORDERS)
    with file_size_limit(store.segment_bytes - 1):
        while 3 * store.log_max_offset <= 2 * store.segment_bytes:
            await send(store, b"x" * 700)
            await store.upkeep.prepare_next_segment()

    assert store.refusal is None
    assert [path.name for path in (tmp_path / "commitlog").iterdir()] == [f"{0:020d}"]
    await store.close()
