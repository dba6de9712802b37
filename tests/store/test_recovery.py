"""Opening again what an earlier opening, or retention, left half done."""

from __future__ import annotations

import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from eruca.contract.names import EVENTS_TOPIC
from eruca.contract.properties import encode_properties
from eruca.contract.records import (
    Host,
    Record,
    decode_record,
    encode_record,
    encode_unstamped,
    layout_of,
)
from eruca_broker.core.batches.batch import batch_of_records
from eruca_broker.core.state.events import TopicPut
from eruca_broker.store.files.checkpoint import read_checkpoint
from eruca_broker.store.log.commit_log import CorruptLogError
from eruca_broker.store.message_store import MessageStore
from eruca_broker.store.projecting.dispatcher import Dispatcher
from eruca_broker.store.settings import StoreSettings
from eruca_chassis.clock import SystemClock
from support.rocketmq_stores import Stored, write_log, write_on
from support.stores import abandon, batch

pytestmark = pytest.mark.anyio

HOST = Host.parse("127.0.0.1", 10911)
SETTINGS = StoreSettings(
    store_host=HOST,
    segment_bytes=64 * 1024,
    queue_file_entries=100,
    index_slots=100,
    index_entries=400,
)
COUNT = 1_500  # messages: several segments, queue files and index files


class Killed(BaseException):
    """Stands for the end of the process."""


async def opened(directory: Path) -> MessageStore:
    return await MessageStore.open(directory, SETTINGS, SystemClock())


async def fill(directory: Path) -> None:
    store = await opened(directory)
    await store.change(TopicPut("orders", 1, 1, "rw"))
    for number in range(0, COUNT, 50):
        records = [
            encode_unstamped(
                Record(
                    topic="orders",
                    body=b"%d" % index,
                    properties=encode_properties({"KEYS": f"key-{index}"}),
                )
            )
            for index in range(number, number + 50)
        ]
        await store.append(batch_of_records("orders", 0, records), HOST)
    await store.close()


def key_count(store: MessageStore, number: int) -> int:
    found = store.log.by_key("orders", f"key-{number}", count_max=9, begin_ms=0, end_ms=2**62)
    return len(found)


async def test_a_kill_amid_the_rebuild_of_a_damaged_queue_leads_to_a_whole_rebuild(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill(tmp_path)
    damaged = sorted((tmp_path / "consumequeue" / "orders" / "0").iterdir())[3]
    damaged.write_bytes(b"\xff" * damaged.stat().st_size)
    calls = iter(range(COUNT))
    rebuild = Dispatcher.rebuild

    def killed_at_the_third(self: Dispatcher, *arguments: object) -> None:
        if next(calls) == 2:
            raise Killed
        rebuild(self, *arguments)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(Dispatcher, "rebuild", killed_at_the_third)
        with pytest.raises(Killed):
            await opened(tmp_path)

    store = await opened(tmp_path)
    assert store.queues.range("orders", 0) == (0, COUNT)
    assert {key_count(store, number) for number in range(0, COUNT, 100)} == {1}
    await store.close()


async def test_queues_begin_where_the_log_does_after_a_restart(tmp_path: Path) -> None:
    await fill(tmp_path)
    first, second, *_ = sorted((tmp_path / "commitlog").iterdir())
    first.unlink()

    store = await opened(tmp_path)

    low, high = store.queues.range("orders", 0)
    assert 0 < low < high == COUNT
    assert store.places.stored_at_ms("orders", 0, low) is not None
    assert store.queues.read("orders", 0, low, count_max=1, bytes_max=1).next_offset == low + 1
    assert store.log.record(int(second.name)).log_offset == int(second.name)
    await store.close()


async def test_an_open_store_promises_no_index_until_its_next_checkpoint(tmp_path: Path) -> None:
    await fill(tmp_path)
    closed = read_checkpoint(tmp_path)
    store = await opened(tmp_path)
    opening = read_checkpoint(tmp_path)
    await store.close()

    assert closed is not None
    assert opening is not None
    assert closed.index_timestamp > opening.index_timestamp == 0
    assert opening.flushed_offset == closed.flushed_offset


async def test_what_a_killed_process_had_not_flushed_is_flushed_before_it_counts_as_durable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await opened(tmp_path)
    await store.change(TopicPut("orders", 1, 1, "rw"))
    await store.upkeep.checkpoint()
    for _ in range(6):
        await store.append(batch("orders", 0, [b"x" * 30_000]))
    assert store.segment_count > 2
    await abandon(store)
    flushed: set[str] = set()
    fdatasync = os.fdatasync

    def flush(descriptor: int) -> None:
        fdatasync(descriptor)
        flushed.add(Path(f"/proc/self/fd/{descriptor}").readlink().name)

    monkeypatch.setattr(os, "fdatasync", flush)
    store = await opened(tmp_path)

    assert store.flushed_offset == store.log_max_offset
    assert flushed >= {path.name for path in (tmp_path / "commitlog").iterdir()}
    await store.close()


def flip(directory: Path, text: bytes) -> None:
    """Change one bit of *text* in the log, or change it back."""
    [segment] = (directory / "commitlog").iterdir()
    data = segment.read_bytes()
    at = data.index(text[1:]) - 1
    segment.write_bytes(data[:at] + bytes((data[at] ^ 1,)) + data[at + 1 :])


async def test_a_damaged_record_of_the_state_is_found_after_an_orderly_stop_too(
    tmp_path: Path,
) -> None:
    store = await opened(tmp_path)
    for name in ("orders", "damaged", "later"):
        await store.change(TopicPut(name, 1, 1, "rw"))
    end = store.log_max_offset
    await store.close()
    flip(tmp_path, b"damaged")

    with pytest.raises(CorruptLogError, match=f"but was durable up to {end}"):
        await opened(tmp_path)

    flip(tmp_path, b"damaged")
    restored = await opened(tmp_path)
    assert restored.state.topics.keys() == {EVENTS_TOPIC, "orders", "damaged", "later"}
    await restored.close()
    flip(tmp_path, b"damaged")
    settings = replace(SETTINGS, is_damage_cut=True)
    cut = await MessageStore.open(tmp_path, settings, SystemClock())
    assert cut.state.topics.keys() == {EVENTS_TOPIC, "orders"}
    await cut.close()


def misplace(directory: Path, body: bytes, place: int) -> None:
    """Let a record in the log, which is sound, tell another place in its queue."""
    for segment in sorted((directory / "commitlog").iterdir()):
        data = bytearray(segment.read_bytes())
        if (at := data.find(body)) >= 0:
            at -= layout_of(0).body
            record = decode_record(data, at)
            properties = encode_properties(record.property_map())
            data[at : at + record.size] = encode_record(
                replace(record, queue_offset=place, properties=properties), with_checksum=True
            )
            segment.write_bytes(data)
            return
    raise AssertionError(body)


@pytest.mark.parametrize("place", [0, 1, 3, 2**40])
async def test_a_record_in_the_wrong_place_is_damage_that_can_be_given_up(
    tmp_path: Path, place: int
) -> None:
    store = await opened(tmp_path)
    await store.change(TopicPut("orders", 2, 2, "rw"))
    for body in (b"first", b"second", b"misplaced", b"fourth"):
        await store.append(batch("orders", 0, [body]))
        await store.append(batch("orders", 1, [b"other"]))
    await store.upkeep.checkpoint()
    end = store.flushed_offset
    await abandon(store)
    misplace(tmp_path, b"misplaced", place)

    with pytest.raises(CorruptLogError, match=f"durable up to {end}.*ERUCA_BROKER_CUT_DAMAGE"):
        await opened(tmp_path)

    cut = await MessageStore.open(tmp_path, replace(SETTINGS, is_damage_cut=True), SystemClock())
    assert cut.queues.range("orders", 0) == (0, 2)
    # Nothing in front of it is given up, in whichever queue.
    assert cut.queues.range("orders", 1) == (0, 2)
    await cut.append(batch("orders", 0, [b"third"]))
    assert cut.queues.range("orders", 0) == (0, 3)
    await cut.close()
    again = await opened(tmp_path)
    assert again.queues.range("orders", 0) == (0, 3)
    await again.close()


async def test_a_record_in_the_wrong_place_is_found_by_a_rebuild_for_the_sake_of_a_lost_queue(
    tmp_path: Path,
) -> None:
    await fill(tmp_path)
    store = await opened(tmp_path)
    await store.append(batch("orders", 0, [b"last"]))
    await store.upkeep.checkpoint()
    await abandon(store)
    shutil.rmtree(tmp_path / "consumequeue" / "orders")
    misplace(tmp_path, b"7\x06orders", 0)

    for _ in range(2):  # it looks for the lost queue, and then walks all of the log
        with pytest.raises(CorruptLogError, match="ERUCA_BROKER_CUT_DAMAGE"):
            await opened(tmp_path)

    cut = await MessageStore.open(tmp_path, replace(SETTINGS, is_damage_cut=True), SystemClock())
    assert cut.queues.range("orders", 0) == (0, 7)
    await cut.close()


async def test_damage_amid_a_log_of_which_nothing_else_is_left_gives_up_no_segment(
    tmp_path: Path,
) -> None:
    await fill(tmp_path)
    whole, commitlog = tmp_path / "commitlog", tmp_path / "restored" / "commitlog"
    shutil.copytree(whole, commitlog)
    [first, *_] = names = sorted(path.name for path in commitlog.iterdir())
    content = (commitlog / first).read_bytes()
    (commitlog / first).write_bytes(content.replace(b"7\x06orders", b"8\x06orders", 1))

    for _ in range(2):  # a refused start leaves nothing that would let the next one cut it
        with pytest.raises(CorruptLogError, match="ERUCA_BROKER_CUT_DAMAGE"):
            await opened(tmp_path / "restored")

    assert sorted(path.name for path in commitlog.iterdir()) == names
    (commitlog / first).write_bytes(content)
    restored = await opened(tmp_path / "restored")
    assert restored.queues.range("orders", 0) == (0, COUNT)
    await restored.close()


async def test_damage_to_a_log_that_was_restored_and_opened_once_gives_up_no_record(
    tmp_path: Path,
) -> None:
    await fill(tmp_path)
    commitlog = tmp_path / "restored" / "commitlog"
    shutil.copytree(tmp_path / "commitlog", commitlog)
    await abandon(await opened(tmp_path / "restored"))  # before its first checkpoint
    last = sorted(commitlog.iterdir())[-1]
    content = last.read_bytes()
    last.write_bytes(content.replace(b"1400\x06orders", b"1499\x06orders", 1))

    with pytest.raises(CorruptLogError, match="ERUCA_BROKER_CUT_DAMAGE"):
        await opened(tmp_path / "restored")

    last.write_bytes(content)
    restored = await opened(tmp_path / "restored")
    assert restored.queues.range("orders", 0) == (0, COUNT)
    await restored.close()


async def test_damage_that_was_given_up_is_not_missed_by_the_start_after_a_kill(
    tmp_path: Path,
) -> None:
    await fill(tmp_path)
    last = sorted((tmp_path / "commitlog").iterdir())[-1]
    last.write_bytes(last.read_bytes().replace(b"1400\x06orders", b"1499\x06orders", 1))
    (tmp_path / "abort").touch()
    with pytest.raises(CorruptLogError, match="ERUCA_BROKER_CUT_DAMAGE"):
        await opened(tmp_path)
    cut = await MessageStore.open(tmp_path, replace(SETTINGS, is_damage_cut=True), SystemClock())
    await cut.append(batch("orders", 0, [b"later"]), HOST)
    await abandon(cut)  # before its first checkpoint

    store = await opened(tmp_path)

    assert store.queues.range("orders", 0) == (0, 1_401)
    await store.close()


async def test_what_a_start_has_flushed_is_durable_for_the_next_one(tmp_path: Path) -> None:
    store = await opened(tmp_path)
    await store.change(TopicPut("orders", 1, 1, "rw"))
    await store.upkeep.checkpoint()
    await store.append(batch("orders", 0, [b"a message"]), HOST)
    await abandon(store)
    await abandon(await opened(tmp_path))  # before its first checkpoint
    [segment] = (tmp_path / "commitlog").iterdir()
    segment.write_bytes(segment.read_bytes().replace(b"a message", b"b message", 1))

    with pytest.raises(CorruptLogError, match="ERUCA_BROKER_CUT_DAMAGE"):
        await opened(tmp_path)


async def test_a_topic_that_rocketmq_made_again_has_its_new_messages_and_no_others(
    tmp_path: Path,
) -> None:
    now_ms = SystemClock().now_ms()
    write_log(tmp_path, [Stored("orders", body=b"old")] * 5, now_ms)
    write_on(tmp_path, [Stored("orders", body=b"new")] * 3, now_ms, deleted={"orders"})

    for _ in range(2):
        store = await opened(tmp_path)
        read = store.queues.read("orders", 0, 0, count_max=9, bytes_max=9_999)
        assert store.queues.range("orders", 0) == (0, 3)
        assert [bytes(raw).count(b"new") for raw in read.raws()] == [1, 1, 1]
        await store.close()
        shutil.rmtree(tmp_path / "consumequeue")
