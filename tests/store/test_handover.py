"""RocketMQ's own rules for the notes on delayed messages in a store that it takes over."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
from pathlib import Path

import pytest

from eruca.contract.records import Record, encode_record
from eruca_broker.core.batches.batch import batch_of_records
from eruca_broker.core.records.scheduled import Destination, Wait, waiting
from eruca_broker.core.state.timers import Timer
from eruca_broker.core.state.timers_events import TimersCancelled
from eruca_broker.core.state.topic_events import TopicPut
from eruca_broker.processors.timers import Timers
from eruca_broker.store.files.checkpoint import read_checkpoint
from eruca_broker.store.message_store import MessageStore
from support.clocks import ManualClock
from support.rocketmq_timers import would_deliver
from support.stores import abandon, small_settings

SETTINGS = small_settings(segment_bytes=64 * 1024)
_RAW = encode_record(Record(topic="orders", body=b"body"))


class Store:
    """An open store with a clock of its own, and the ids of the timers by name."""

    def __init__(self, directory: Path, clock: ManualClock) -> None:
        self.directory = directory
        self.clock = clock
        self.ids: dict[str, int] = {}
        self.due_ms: dict[str, int] = {}

    async def open(self) -> None:
        self.store = await MessageStore.open(self.directory, SETTINGS, self.clock)

    async def delay(self, name: str, *, seconds: float = 0, level: int = 0) -> None:
        due_ms = self.clock.now_ms() + int(seconds * 1_000)
        wait = Wait(level=level) if level else Wait(deliver_at_ms=due_ms)
        record = waiting(_RAW, wait, Destination("orders", 0))
        receipt = await self.store.append(batch_of_records(*wait.place, [record]))
        self.ids[name] = receipt.log_offset
        self.due_ms[name] = wait.time_ms(receipt.store_timestamp)

    async def recall(self, name: str) -> None:
        held = self.store.timers.take([Timer(self.due_ms[name], self.ids[name])])
        await self.store.change(TimersCancelled([timer.id for timer in held]))

    async def fire(self, count: int) -> None:
        assert await Timers(self.store, self.clock).fire() == count

    def copy(self) -> Path:
        """Return a copy of the store, as a kill leaves it."""
        return Path(shutil.copytree(self.directory, f"{self.directory}-killed"))

    def names(self, log_offsets: list[int]) -> list[str]:
        by_id = {log_offset: name for name, log_offset in self.ids.items()}
        return [by_id[log_offset] for log_offset in log_offsets]

    def left(self, directory: Path | None = None) -> tuple[list[str], list[str]]:
        """Return what RocketMQ would deliver: of the delay levels, of the timer topic."""
        levels, timed = would_deliver(directory or self.directory)
        return self.names(levels), self.names(timed)


async def filled(directory: Path) -> Store:
    """Return a store where delayed messages have ended before, between and behind pending ones."""
    it = Store(directory, ManualClock())
    await it.open()
    await it.store.change(TopicPut("orders", 1, 1, "rw"))
    await it.delay("level over", level=1)
    await it.delay("time over", seconds=1)
    await it.delay("time pending", seconds=600.5)
    await it.delay("time over behind it", seconds=1)
    await it.delay("time recalled", seconds=600.25)
    await it.delay("time rolled", seconds=3 * 86_400)
    await it.delay("time pending at the same second", seconds=600.75)
    await it.delay("time recalled, the last", seconds=10)
    await it.delay("level recalled", level=2)
    await it.delay("level pending", level=9)
    it.clock.advance(2)
    await it.fire(3)
    for name in ("time recalled", "time recalled, the last", "level recalled"):
        await it.recall(name)
    return it


PENDING = ["time pending", "time rolled", "time pending at the same second"]


def test_rocketmq_delivers_what_is_pending_and_nothing_that_has_ended(tmp_path: Path) -> None:
    async def work() -> None:
        it = await filled(tmp_path)
        await it.store.close()

        assert it.left() == (["level pending"], PENDING)

    asyncio.run(work())


def test_after_a_kill_only_what_lies_behind_a_pending_message_is_delivered_again(
    tmp_path: Path,
) -> None:
    async def work() -> None:
        it = await filled(tmp_path)
        await it.store.upkeep.checkpoint()
        killed = it.copy()

        behind = ["time over behind it", "time recalled", "time recalled, the last"]
        levels, timed = it.left(killed)
        assert levels == ["level pending"]
        assert sorted(timed) == sorted(PENDING + behind)
        await it.store.close()

    asyncio.run(work())


def test_a_start_and_a_stop_after_a_kill_make_the_notes_exact(tmp_path: Path) -> None:
    async def work() -> None:
        it = await filled(tmp_path)
        await abandon(it.store)
        await it.open()
        await it.store.close()

        assert it.left() == (["level pending"], PENDING)

    asyncio.run(work())


def test_notes_of_an_earlier_stop_are_not_believed_after_a_later_kill(tmp_path: Path) -> None:
    """RocketMQ may deliver a message again then; it never leaves one out."""

    async def work() -> None:
        it = await filled(tmp_path)
        await it.store.close()
        (tmp_path / "timerwheel").write_bytes(b"RocketMQ's")
        await it.open()
        assert not (tmp_path / "timerlog").exists()
        assert not (tmp_path / "timerwheel").exists()
        it.clock.advance(600)
        await it.fire(3)
        await it.delay("time new", seconds=60)
        await it.store.upkeep.checkpoint()
        killed = it.copy()

        levels, timed = it.left(killed)
        assert levels == []
        assert timed[0] == "time rolled"
        assert "time new" in timed
        assert "time pending" not in timed
        await it.store.close()

    asyncio.run(work())


def test_where_nothing_is_pending_nothing_is_delivered_again_even_after_a_kill(
    tmp_path: Path,
) -> None:
    async def work() -> None:
        it = Store(tmp_path, ManualClock())
        await it.open()
        await it.store.change(TopicPut("orders", 1, 1, "rw"))
        for number in range(3):
            await it.delay(f"level {number}", level=1)
            await it.delay(f"time {number}", seconds=1)
        it.clock.advance(1)
        await it.fire(6)
        await it.store.upkeep.checkpoint()
        killed = it.copy()

        assert it.left(killed) == ([], [])
        await it.store.close()
        assert it.left() == ([], [])
        assert not (tmp_path / "timerlog").exists()

    asyncio.run(work())


def test_a_message_that_arrives_after_the_notes_were_taken_is_delivered(tmp_path: Path) -> None:
    async def work() -> None:
        it = await filled(tmp_path)
        await it.store.upkeep.checkpoint()
        await it.delay("time new", seconds=60)
        await it.delay("level new", level=1)
        killed = it.copy()

        levels, timed = it.left(killed)
        assert levels == ["level pending", "level new"]
        assert timed[-1] == "time new"
        await it.store.close()
        assert it.left() == (["level pending", "level new"], [*PENDING, "time new"])

    asyncio.run(work())


def test_a_delayed_queue_that_cannot_be_read_keeps_no_checkpoint_from_being_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = os.pread

    def refuses(descriptor: int, size: int, position: int) -> bytes:
        """The one thing that cannot be provoked: a file the disk has lost."""
        if "wheel_timer" in str(Path(f"/proc/self/fd/{descriptor}").readlink()):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return read(descriptor, size, position)

    async def work() -> None:
        it = await filled(tmp_path)
        monkeypatch.setattr(os, "pread", refuses)
        await it.store.upkeep.checkpoint()
        assert (checkpoint := read_checkpoint(tmp_path)) is not None
        assert checkpoint.flushed_offset == it.store.log_max_offset
        monkeypatch.undo()
        await it.store.upkeep.checkpoint()  # though nothing has been written or has ended since

        assert it.left(it.copy())[0] == ["level pending"]
        await it.store.close()
        assert it.left() == (["level pending"], PENDING)

    asyncio.run(work())


def test_a_recalled_message_of_a_level_that_rocketmq_would_deliver_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async def work() -> None:
        it = Store(tmp_path, ManualClock())
        await it.open()
        await it.store.change(TopicPut("orders", 1, 1, "rw"))
        await it.delay("level pending", level=9)
        await it.delay("level recalled", level=9)
        await it.recall("level recalled")
        await it.store.close()

        assert it.left() == (["level pending", "level recalled"], [])

    asyncio.run(work())

    said = capsys.readouterr().out
    assert "RocketMQ would deliver recalled messages" in said
    assert "count=1" in said.replace("\x1b[0m", "").replace("\x1b[35m", "").replace("\x1b[36m", "")
