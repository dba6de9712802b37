"""One segment: its length never changes, a full disk leaves no half write, a cut leaves nothing."""

from __future__ import annotations

import errno
import os
import random
import threading
from pathlib import Path

import pytest

from eruca_broker.store.log import segment as segments
from eruca_broker.store.log.segment import WARM_SIZE_MAX, Segment
from support.limits import file_size_limit
from support.waiting import wait_until

BASE, SIZE = 4_096, 64 * 1024
NAME = "00000000000000004096"


@pytest.fixture
def segment(tmp_path: Path) -> Segment:
    return Segment.create(tmp_path, BASE, SIZE)


def views(*parts: bytes) -> list[memoryview]:
    return [memoryview(part) for part in parts]


def test_a_segment_that_is_warmed_is_flushed_as_it_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or a gigabyte would wait, and the kernel would hold up writers meanwhile."""
    pwrite, fdatasync = os.pwrite, os.fdatasync
    waiting = [0]  # bytes, after each write and each flush

    def write(descriptor: int, data: bytes, position: int) -> int:
        written = pwrite(descriptor, data, position)
        waiting.append(waiting[-1] + written)
        return written

    def flush(descriptor: int) -> None:
        fdatasync(descriptor)
        waiting.append(0)

    monkeypatch.setattr("eruca_broker.store.log.segment.os.pwrite", write)
    monkeypatch.setattr("eruca_broker.store.log.segment.os.fdatasync", flush)

    segment = Segment.create(tmp_path, BASE, 3 * WARM_SIZE_MAX + 5)
    segment.warm()

    assert max(waiting) == WARM_SIZE_MAX
    assert waiting.count(0) == 1 + 3
    segment.close()


def test_a_segment_is_warmed_once_though_the_disk_fails(
    segment: Segment, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[int] = []

    def fail(_: int, data: bytes, position: int) -> int:
        written.append(position)
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr("eruca_broker.store.log.segment.os.pwrite", fail)
    with pytest.raises(OSError, match="Input/output"):
        segment.warm()

    segment.warm()

    assert written == [0]


def test_warming_ends_where_the_segment_is_taken_into_use_and_spares_what_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pwrite, written = os.pwrite, b"written" * 1_000
    warmed: list[int] = []

    def write(descriptor: int, data: bytes, position: int) -> int:
        warmed.append(position)
        return pwrite(descriptor, data, position)

    monkeypatch.setattr("eruca_broker.store.log.segment.os.pwrite", write)
    segment = Segment.create(tmp_path, BASE, 64 * 1024 * 1024)
    warming = threading.Thread(target=segment.warm)
    warming.start()
    while not warmed:
        pass

    segment.use()
    segment.write(views(written), 0)
    segment.write(views(written), segment.size - len(written))
    stopped_at = len(warmed)
    warming.join()

    assert len(warmed) == stopped_at < 64
    assert segment.buffer[: len(written)] == segment.buffer[-len(written) :] == written
    segment.close()


def test_who_takes_a_segment_into_use_waits_for_no_more_than_what_is_being_written_of_it(
    segment: Segment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Locks know no turns: the warming thread would have it again before the other wakes."""
    monkeypatch.setattr(segments, "_CHUNK_SIZE", SIZE // 16)
    pwrite = os.pwrite
    using = threading.Thread(target=segment.use)
    warmed: list[int] = []

    def write(descriptor: int, data: bytes, position: int) -> int:
        if not warmed:
            using.start()
            wait_until(lambda: segment._is_in_use)
        warmed.append(position)
        return pwrite(descriptor, data, position)

    monkeypatch.setattr("eruca_broker.store.log.segment.os.pwrite", write)

    segment.warm()

    using.join()
    assert warmed == [0]


def test_a_segment_that_is_closed_is_warmed_no_further(tmp_path: Path) -> None:
    segment = Segment.create(tmp_path, BASE, 64 * 1024 * 1024)
    segment.delete()
    (tmp_path / NAME).touch()

    segment.warm()

    assert (tmp_path / NAME).stat().st_size == 0


@pytest.mark.parametrize("is_warm", [False, True])
def test_a_new_segment_has_its_length_its_name_and_its_space(tmp_path: Path, is_warm: bool) -> None:
    segment = Segment.create(tmp_path, BASE, SIZE)
    if is_warm:
        segment.warm()

    [path] = tmp_path.iterdir()
    assert path.name == NAME
    assert path.read_bytes() == bytes(SIZE)
    assert path.stat().st_blocks * 512 >= SIZE
    assert (segment.base_offset, segment.end_offset) == (BASE, BASE + SIZE)


def test_a_segment_is_never_made_over_another(tmp_path: Path, segment: Segment) -> None:
    segment.write(views(b"kept"), 0)

    with pytest.raises(FileExistsError):
        Segment.create(tmp_path, BASE, SIZE)

    assert (tmp_path / NAME).read_bytes().startswith(b"kept")


def test_without_room_no_file_is_left_behind(tmp_path: Path) -> None:
    with file_size_limit(SIZE - 1), pytest.raises(OSError, match="too large") as failure:
        Segment.create(tmp_path, BASE, SIZE)

    assert failure.value.errno == errno.EFBIG
    assert list(tmp_path.iterdir()) == []


def test_what_is_written_is_read_through_the_mapping_and_after_opening_again(
    tmp_path: Path, segment: Segment
) -> None:
    segment.write(views(b"one", b"", b"two"), 10)
    segment.write(views(b"three"), 16)

    assert segment.buffer[9:22] == b"\0onetwothree\0"[:13]
    segment.flush()
    segment.close()
    assert Segment.open(tmp_path / NAME).buffer[10:21] == b"onetwothree"


def test_more_buffers_than_the_kernel_takes_at_once_are_written_all_the_same(
    segment: Segment,
) -> None:
    parts = [b"%d," % number for number in range(2_500)]

    segment.write(views(*parts), 100)

    whole = b"".join(parts)
    assert segment.buffer[100 : 100 + len(whole)] == whole


def test_a_write_across_the_end_of_the_disk_fails_and_can_be_cut(segment: Segment) -> None:
    segment.write(views(b"fits"), 0)

    with file_size_limit(10), pytest.raises(OSError, match="too large"):
        segment.write(views(b"also", b"does not fit"), 4)
    segment.cut_tail(4)

    assert segment.buffer[:] == b"fits" + bytes(SIZE - 4)
    segment.write(views(b"again"), 4)
    assert segment.buffer[:9] == b"fitsagain"


@pytest.mark.parametrize("position", [0, 1, 4_095, 4_096, 4_097, SIZE - 1, SIZE])
def test_a_cut_leaves_only_zeros_and_neither_length_nor_space_change(
    tmp_path: Path, segment: Segment, position: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segments, "_CHUNK_SIZE", 5_000)  # several chunks, across pages
    content = os.urandom(SIZE // 2) + bytes(SIZE // 4) + os.urandom(SIZE // 4)
    segment.write(views(content), 0)
    blocks = (tmp_path / NAME).stat().st_blocks

    segment.cut_tail(position)

    assert (tmp_path / NAME).read_bytes() == content[:position] + bytes(SIZE - position)
    assert (tmp_path / NAME).stat().st_blocks == blocks


def test_a_file_of_holes_is_cut_like_any_other(tmp_path: Path) -> None:
    path = tmp_path / NAME
    with path.open("wb") as file:
        file.truncate(SIZE)
        file.seek(SIZE // 2)
        file.write(b"behind a hole")
    segment = Segment.open(path)

    segment.cut_tail(7)

    assert path.read_bytes() == bytes(SIZE)


def test_a_segment_that_is_too_short_gets_its_length_and_keeps_what_it_holds(
    tmp_path: Path,
) -> None:
    path = tmp_path / NAME
    path.write_bytes(b"a record")

    segment = Segment.open(path).extend(SIZE)

    assert segment.buffer[:] == b"a record" + bytes(SIZE - 8)
    assert path.stat().st_size == segment.size == SIZE


def test_a_deleted_segment_that_is_let_go_stays_readable_for_who_has_some_of_it(
    tmp_path: Path, segment: Segment
) -> None:
    segment.write(views(b"read"), 0)
    some = memoryview(segment.buffer)[:4]
    (tmp_path / NAME).unlink()

    segment.let_go()

    assert bytes(some) == b"read"
    with pytest.raises(OSError, match="Bad file descriptor"):
        segment.modified_at()


def test_what_is_written_again_is_what_it_was(tmp_path: Path) -> None:
    segment = Segment.create(tmp_path, 0, 3 * 1024 * 1024)
    content = random.Random(7).randbytes(segment.size - 5)
    segment.write([memoryview(content)], 0)

    segment.rewrite(1, len(content) - 1)

    assert (tmp_path / f"{0:020d}").read_bytes() == content + bytes(5)
    segment.close()


def test_a_deleted_segment_stays_readable_for_who_has_it(tmp_path: Path, segment: Segment) -> None:
    segment.write(views(b"still there"), 0)
    view = memoryview(segment.buffer)[:11]

    segment.delete()

    assert list(tmp_path.iterdir()) == []
    assert bytes(view) == b"still there"
