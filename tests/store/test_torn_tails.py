"""The log after a crash: a torn tail is cut, whatever tore it; durable damage is refused.

Each case is a copy of one store that was killed, with a file of its log changed.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

import anyio
import pytest

from eruca.contract.properties import UNIQ_KEY
from eruca.contract.records import LAYOUT_V4, Record, RecordLayout
from eruca_broker.core.state.events import TopicPut
from eruca_broker.store.log.commit_log import CorruptLogError
from eruca_broker.store.message_store import MessageStore
from eruca_broker.store.settings import StoreSettings
from support.clocks import ManualClock
from support.log_model import read_log
from support.stores import abandon, batch, small_settings
from support.torn_logs import kill_amid_a_write

pytestmark = pytest.mark.anyio

SEGMENT_SIZE = 4 * 1024
SETTINGS = small_settings(segment_bytes=SEGMENT_SIZE)


@dataclass(frozen=True)
class Left:
    """A store that was killed."""

    directory: Path
    records: list[Record]
    flushed_offset: int
    last_file: str  # of the log

    @property
    def in_doubt(self) -> list[Record]:
        """The records that were not flushed."""
        return [record for record in self.records if record.log_offset >= self.flushed_offset]


async def killed(directory: Path, *, flushed: int, unflushed: int) -> Left:
    store = await MessageStore.open(directory, SETTINGS, ManualClock())
    await store.change(TopicPut("orders", 1, 1, "rw"))

    async def send(count: int) -> None:
        for number in range(count):
            keys = {"unique_key": f"{number:032X}", "tag": "red"}
            await store.append(batch("orders", 0, [b"body %d" % number * 9], **keys))

    await send(flushed)
    await store.upkeep.checkpoint()
    flushed_offset = store.flushed_offset
    await send(unflushed)
    await abandon(store)
    last_file = max(path.name for path in (directory / "commitlog").iterdir())
    return Left(directory, list(read_log(directory)), flushed_offset, last_file)


@pytest.fixture(scope="module", params=[3, 36], ids=["only segment", "last of several"])
def left(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Left:
    async def make() -> Left:
        return await killed(tmp_path_factory.mktemp("left"), flushed=request.param, unflushed=4)

    made = anyio.run(make)
    assert (len(list((made.directory / "commitlog").iterdir())) == 1) == (request.param == 3)
    assert made.in_doubt[0].log_offset >= int(made.last_file)
    assert made.flushed_offset > int(made.last_file)
    return made


@pytest.fixture
def copied(left: Left, tmp_path: Path) -> Callable[[], Left]:
    def copy() -> Left:
        directory = tmp_path / "store"
        shutil.rmtree(directory, ignore_errors=True)
        return replace(left, directory=Path(shutil.copytree(left.directory, directory)))

    return copy


def log_files(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (directory / "commitlog").iterdir()}


async def bodies_in(directory: Path, settings: StoreSettings = SETTINGS) -> list[bytes]:
    """Open the store, see that it takes messages, and return the bodies that were in it."""
    store = await MessageStore.open(directory, settings, ManualClock())
    offset = store.queues.range("orders", 0)[1]
    receipt = await store.append(batch("orders", 0, [b"behind the tail"]))
    assert receipt.queue_offset == offset
    await store.close()
    found = [record.body for record in read_log(directory) if record.topic == "orders"]
    assert found.pop() == b"behind the tail"
    assert len(found) == offset
    return found


def bodies(records: Iterable[Record]) -> list[bytes]:
    return [record.body for record in records if record.topic == "orders"]


def cut(path: Path, position: int) -> None:
    os.truncate(path, position)


def fill_with_zeros(path: Path, position: int) -> None:
    size = path.stat().st_size
    os.truncate(path, position)
    os.truncate(path, size)


def lose_a_sector(path: Path, position: int) -> None:
    """Lose what lies between *position* and the next multiple of 512; the rest was written."""
    data = bytearray(path.read_bytes())
    end = (position // 512 + 1) * 512
    data[position:end] = bytes(end - position)
    path.write_bytes(data)


def fill_with_garbage(path: Path, position: int) -> None:
    data = path.read_bytes()
    path.write_bytes(data[:position] + Random(3).randbytes(len(data) - position))


def places(record: Record) -> Iterable[int]:
    """Yield positions in a record: where fields begin, in their midst, and right before its end."""
    fields = (0, 2, 4, 8, RecordLayout.QUEUE_ID, RecordLayout.LOG_OFFSET, LAYOUT_V4.store_timestamp)
    yield from (record.log_offset + field for field in fields)
    yield from (record.log_offset + LAYOUT_V4.body_size, record.log_offset + LAYOUT_V4.body)
    yield record.log_offset + LAYOUT_V4.body + len(record.body) // 2
    yield record.log_offset + LAYOUT_V4.body + len(record.body)
    yield record.log_offset + record.size - len(record.properties) - 5  # in the topic
    yield record.log_offset + record.size - len(record.properties)
    yield record.log_offset + record.size - len(record.properties) // 2
    yield record.log_offset + record.size - 1


@pytest.mark.parametrize("tear", [cut, fill_with_zeros])
async def test_a_torn_tail_is_cut_wherever_it_was_torn(
    copied: Callable[[], Left], tear: Callable[[Path, int], None]
) -> None:
    left = copied()
    offsets = [place for record in left.in_doubt for place in places(record)]
    end = left.records[-1].log_offset + left.records[-1].size
    for offset in [*offsets, end, end + 1, int(left.last_file) + SEGMENT_SIZE - 1]:
        left = copied()
        file = left.directory / "commitlog" / left.last_file
        tear(file, offset - int(left.last_file))

        whole = [r for r in left.records if r.log_offset + r.size <= offset]
        assert await bodies_in(left.directory) == bodies(whole), offset
        assert {len(data) for data in log_files(left.directory).values()} == {SEGMENT_SIZE}


@pytest.mark.parametrize("tear", [lose_a_sector, fill_with_garbage])
async def test_what_is_behind_a_hole_or_garbage_is_given_up(
    copied: Callable[[], Left], tear: Callable[[Path, int], None]
) -> None:
    for record in copied().in_doubt:
        for place in (0, 4, 8, RecordLayout.LOG_OFFSET, LAYOUT_V4.body):
            left = copied()
            file = left.directory / "commitlog" / left.last_file
            tear(file, record.log_offset + place - int(left.last_file))

            whole = [r for r in left.records if r.log_offset < record.log_offset]
            assert await bodies_in(left.directory) == bodies(whole), record.log_offset + place


@pytest.mark.parametrize("size", [100, 12_300], ids=["in one segment", "across two"])
async def test_a_batch_that_a_kill_interrupts_is_there_as_a_whole_or_not_at_all(
    tmp_path: Path, size: int
) -> None:
    settings = small_settings(segment_bytes=24 * 1024)
    store = await MessageStore.open(tmp_path, settings, ManualClock())
    await store.change(TopicPut("orders", 1, 1, "rw"))
    whole = b"w" * size
    await store.append(batch("orders", 0, [whole]))
    await store.close()

    kill_amid_a_write(tmp_path, settings, "orders", [b"interrupted" * 10] * 100, 1_000)

    assert await bodies_in(tmp_path, settings) == [whole]


def leave_a_prepared_segment(left: Left, size: int) -> None:
    following = f"{int(left.last_file) + SEGMENT_SIZE:020d}"
    (left.directory / "commitlog" / following).write_bytes(bytes(size))


@pytest.mark.parametrize("size", [0, 1, SEGMENT_SIZE - 1, SEGMENT_SIZE])
@pytest.mark.parametrize("is_torn", [False, True])
async def test_a_segment_left_prepared_is_no_part_of_the_log(
    copied: Callable[[], Left], size: int, is_torn: bool
) -> None:
    left = copied()
    leave_a_prepared_segment(left, size)
    expected = left.records
    if is_torn:
        tear = left.in_doubt[1].log_offset
        fill_with_zeros(left.directory / "commitlog" / left.last_file, tear - int(left.last_file))
        expected = [record for record in left.records if record.log_offset < tear]

    assert await bodies_in(left.directory) == bodies(expected)


async def test_a_short_segment_with_another_behind_it_is_no_work_of_a_crash(
    copied: Callable[[], Left],
) -> None:
    left = copied()
    leave_a_prepared_segment(left, SEGMENT_SIZE)
    os.truncate(left.directory / "commitlog" / left.last_file, SEGMENT_SIZE - 1)
    before = log_files(left.directory)

    with pytest.raises(CorruptLogError, match="does not follow"):
        await MessageStore.open(left.directory, SETTINGS, ManualClock())

    assert log_files(left.directory) == before


def damaged_places(left: Left) -> Iterable[int]:
    """Yield places in flushed records of the last segment that the records themselves prove."""
    for record in left.records:
        if int(left.last_file) <= record.log_offset < left.flushed_offset:
            yield from (record.log_offset + field for field in (0, 5, 9, RecordLayout.LOG_OFFSET))
            yield record.log_offset + LAYOUT_V4.body


async def test_damage_to_what_was_flushed_is_refused_and_left_alone(
    copied: Callable[[], Left],
) -> None:
    left = copied()
    file = left.directory / "commitlog" / left.last_file
    whole = file.read_bytes()
    for offset in damaged_places(left):
        damaged = bytearray(whole)
        damaged[offset - int(left.last_file)] ^= 0x40
        file.write_bytes(damaged)
        before = log_files(left.directory)

        with pytest.raises(CorruptLogError, match="ERUCA_BROKER_CUT_DAMAGE=true") as refusal:
            await MessageStore.open(left.directory, SETTINGS, ManualClock())

        assert f"durable up to {left.flushed_offset}" in str(refusal.value)
        assert log_files(left.directory) == before

    file.write_bytes(whole)  # as restored from a backup
    assert await bodies_in(left.directory) == bodies(left.records)


async def test_damage_is_cut_when_that_is_asked_for(copied: Callable[[], Left]) -> None:
    for offset in damaged_places(copied()):
        left = copied()
        file = left.directory / "commitlog" / left.last_file
        damaged = bytearray(file.read_bytes())
        damaged[offset - int(left.last_file)] ^= 0x40
        file.write_bytes(damaged)
        sound = [r for r in left.records if r.log_offset + r.size <= offset]
        if not bodies(sound):
            continue  # the record that makes the topic is gone as well

        found = await bodies_in(left.directory, replace(SETTINGS, is_damage_cut=True))

        assert found == bodies(sound)
        reopened = await bodies_in(left.directory)
        assert reopened == [*found, b"behind the tail"]


@pytest.mark.parametrize("is_lost", [False, True], ids=["cut", "lost"])
async def test_a_last_segment_without_what_was_flushed_is_refused(
    copied: Callable[[], Left], is_lost: bool
) -> None:
    left = copied()
    file = left.directory / "commitlog" / left.last_file
    if is_lost:
        file.unlink()
    else:
        os.truncate(file, left.flushed_offset - int(left.last_file) - 1)
    before = log_files(left.directory)

    with pytest.raises(CorruptLogError, match="acknowledged messages are damaged"):
        await MessageStore.open(left.directory, SETTINGS, ManualClock())

    assert log_files(left.directory) == before


async def test_a_segment_missing_in_the_middle_is_refused(tmp_path: Path) -> None:
    left = await killed(tmp_path, flushed=60, unflushed=2)
    missing = left.directory / "commitlog" / f"{SEGMENT_SIZE:020d}"
    missing.rename(tmp_path / "kept")
    before = log_files(left.directory)

    with pytest.raises(CorruptLogError, match="a file of the log is missing"):
        await MessageStore.open(left.directory, SETTINGS, ManualClock())

    assert log_files(left.directory) == before
    (tmp_path / "kept").rename(missing)
    assert await bodies_in(left.directory) == bodies(left.records)


async def test_a_missing_first_segment_is_as_if_retention_had_deleted_it(tmp_path: Path) -> None:
    left = await killed(tmp_path, flushed=60, unflushed=2)
    (left.directory / "commitlog" / f"{0:020d}").unlink()
    kept = [r for r in left.records if r.log_offset >= SEGMENT_SIZE and r.topic == "orders"]

    store = await MessageStore.open(left.directory, SETTINGS, ManualClock())

    assert store.queues.range("orders", 0) == (kept[0].queue_offset, kept[-1].queue_offset + 1)
    key = kept[0].property_map()[UNIQ_KEY]
    found = store.log.by_key("orders", key, count_max=9, begin_ms=0, end_ms=2**62)
    assert kept[0] in found
    await store.close()


async def test_after_an_orderly_stop_a_log_that_is_too_short_is_refused(tmp_path: Path) -> None:
    store = await MessageStore.open(tmp_path, SETTINGS, ManualClock())
    await store.change(TopicPut("orders", 1, 1, "rw"))
    await store.append(batch("orders", 0, [b"a", b"b", b"c"]))
    end = store.log_max_offset
    await store.close()
    [file] = (tmp_path / "commitlog").iterdir()
    os.truncate(file, end - 1)

    with pytest.raises(CorruptLogError, match="acknowledged messages are damaged"):
        await MessageStore.open(tmp_path, SETTINGS, ManualClock())

    assert file.stat().st_size == end - 1
