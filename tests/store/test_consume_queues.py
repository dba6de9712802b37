"""All consume queues of a store: found again, bounded in open files, and damage found by name."""

from __future__ import annotations

import errno
import os
import shutil
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from unittest.mock import Mock

import pytest

from eruca_broker.core.consume_queue_entry import ENTRY_SIZE, encode_entry
from eruca_broker.store.queues import queue_check
from eruca_broker.store.queues.consume_queue import ConsumeQueue
from eruca_broker.store.queues.consume_queues import ConsumeQueues
from eruca_broker.store.queues.queue_check import QueueDigest
from eruca_broker.store.queues.queue_files import DamagedQueueError, QueueFiles
from support.limits import open_files_limit

PER_FILE = 5
FILE_SIZE = PER_FILE * ENTRY_SIZE
LOG_END = 1_000_000
A, B, C = ("orders", 0), ("orders", 1), ("%RETRY%group", 0)


def open_queues(root: Path) -> ConsumeQueues:
    return ConsumeQueues(root / "consumequeue", entries_per_file=PER_FILE, open_files_max=3)


def fill(queues: ConsumeQueues, key: tuple[str, int], first: int, last: int) -> None:
    queue = queues.queue(*key)
    for offset in range(first, last):
        queue.put(offset, 1000 + 100 * offset, 100, offset)


def filled(root: Path) -> ConsumeQueues:
    """Return queues A (three files), B (padded at its front) and C (one entry)."""
    queues = open_queues(root)
    fill(queues, A, 0, 12)
    fill(queues, B, 7, 13)
    fill(queues, C, 0, 1)
    return queues


def closed(root: Path) -> list[QueueDigest]:
    queues = filled(root)
    queues.take_unflushed().sync()
    digests = queues.digests()
    queues.close()
    return digests


def path_of(root: Path, key: tuple[str, int], number: int = 0) -> Path:
    return root / "consumequeue" / key[0] / str(key[1]) / f"{number * FILE_SIZE:020d}"


def overwrite(path: Path, position: int, data: bytes) -> None:
    content = bytearray(path.read_bytes())
    content[position : position + len(data)] = data
    path.write_bytes(content)


def test_queues_are_found_again_by_topic_and_number(tmp_path: Path) -> None:
    filled(tmp_path).close()

    queues = open_queues(tmp_path)

    assert sorted(queues) == sorted([A, B, C])
    assert len(queues) == 3
    ranges = {(t, i): (queue.min_offset, queue.max_offset) for t, i, queue in queues.items()}
    assert ranges == {A: (0, 12), B: (7, 13), C: (0, 1)}
    queues.close()


def test_asking_whether_a_queue_exists_makes_none(tmp_path: Path) -> None:
    queues = filled(tmp_path)

    assert queues.existing("orders", 2) is None
    assert queues.existing(*A) is queues.queue(*A)
    assert len(queues) == 3
    queues.close()


def test_what_is_no_queue_is_passed_over(tmp_path: Path) -> None:
    filled(tmp_path).close()
    root = tmp_path / "consumequeue"
    (root / "a file").touch()
    (root / "orders" / "x1").mkdir()
    (root / "orders" / "007").mkdir()

    assert sorted(open_queues(tmp_path)) == sorted([A, B, C])


def test_few_descriptors_serve_many_queues(tmp_path: Path) -> None:
    queues = open_queues(tmp_path)
    for number in range(50):
        fill(queues, ("orders", number), 0, 7)

    open_now = [os.path.realpath(link) for link in Path("/proc/self/fd").iterdir()]
    assert sum(path.startswith(str(tmp_path)) for path in open_now) == 3
    for number in range(50):
        queue = queues.queue("orders", number)
        assert queue.entries(0, 7)["tags_code"].tolist() == list(range(7))
    queues.close()


def test_a_queue_object_takes_little_memory(tmp_path: Path) -> None:
    """A hundred thousand queues must be affordable: here two thousand are measured."""
    queues = open_queues(tmp_path)
    tracemalloc.start()
    for number in range(2_000):
        queues.queue("orders", number)
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert size < 2_000 * 1024
    queues.close()


def test_deleted_queues_leave_no_file_and_may_begin_anew(tmp_path: Path) -> None:
    queues = filled(tmp_path)

    queues.delete_topic("orders")
    queues.delete(*C)
    queues.delete("never", 0)

    assert list(queues) == []
    assert not (tmp_path / "consumequeue" / "orders").exists()
    assert not (tmp_path / "consumequeue" / C[0] / "0").exists()
    queues.take_unflushed().sync()
    fill(queues, A, 0, 3)
    assert queues.queue(*A).max_offset == 3
    queues.close()


def test_a_deleted_topic_s_files_are_freed_apart_from_its_deletion(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Thousands of files take their time, which whoever deletes a topic does not have."""
    queues = filled(tmp_path)
    aside = tmp_path / "consumequeue.deleted"
    with monkeypatch.context() as patch:
        for name in ("unlink", "rmdir"):
            patch.setattr(os, name, lambda *_, **__: pytest.fail("a file is freed"))
        queues.delete_topic("orders")
        fill(queues, A, 0, 3)
        queues.delete_topic("orders")
    assert not (tmp_path / "consumequeue" / "orders").exists()
    assert len(list(aside.iterdir())) == 2

    queues.free_deleted()

    assert not aside.exists()
    queues.delete_topic(C[0])
    assert aside.exists()
    queues.close()
    open_queues(tmp_path).close()  # as after a crash in between
    assert not aside.exists()


@pytest.mark.parametrize("whole_topic", [False, True])
def test_a_queue_begun_anew_has_nothing_of_its_predecessor(
    tmp_path: Path, *, whole_topic: bool
) -> None:
    """Neither open files nor digests."""
    digests = closed(tmp_path)
    queues = open_queues(tmp_path)
    queues.verify(digests, log_end=LOG_END)
    assert len(queues.queue(*A).entries(0, 12)) == 12

    if whole_topic:
        queues.delete_topic("orders")
    else:
        queues.delete(*A)
    for offset in range(12):
        queues.queue(*A).put(offset, 5000 + 100 * offset, 100, offset)
    digests = queues.digests()
    queues.close()

    queues = open_queues(tmp_path)
    assert queues.verify(digests, log_end=LOG_END) == []
    assert queues.queue(*A).entry(3).log_offset == 5300
    queues.close()


def test_no_file_stays_open(tmp_path: Path) -> None:
    digests = closed(tmp_path)
    queues = open_queues(tmp_path)
    queues.verify(digests, log_end=LOG_END)
    queues.verify(None, log_end=LOG_END)
    queues.take_unflushed().sync()

    queues.close()

    open_now = [os.path.realpath(link) for link in Path("/proc/self/fd").iterdir()]
    assert not any(path.startswith(str(tmp_path)) for path in open_now)


def test_a_cut_and_an_expiry_reach_every_queue(tmp_path: Path) -> None:
    queues = filled(tmp_path)

    queues.truncate(1900)
    assert [queues.queue(*key).max_offset for key in (A, B, C)] == [9, 9, 1]
    deleted = sum(queues.delete_expired(1700))

    assert deleted == 1
    assert [queues.queue(*key).min_offset for key in (A, B, C)] == [7, 7, 1]
    queues.close()


def test_a_queue_that_cannot_be_read_keeps_no_other_from_expiring(tmp_path: Path) -> None:
    queues = filled(tmp_path)
    fill(queues, C, 1, 12)  # the limit of open files closes those of A
    last = path_of(tmp_path, A, 2)
    last.unlink()
    last.symlink_to(last)  # whoever opens it gets an error that names no damage

    assert sum(queues.delete_expired(2000)) > 0

    assert list(queues.distrusted) == [A]
    assert os.strerror(errno.ELOOP) in queues.distrusted[A]
    assert [queues.queue(*key).min_offset for key in (A, B, C)] == [0, 10, 10]
    queues.close()


def test_where_descriptors_are_short_no_queue_is_taken_for_damaged(tmp_path: Path) -> None:
    queues = filled(tmp_path)
    fill(queues, C, 1, 12)

    with open_files_limit(0), pytest.raises(OSError, match=os.strerror(errno.EMFILE)):
        sum(queues.delete_expired(2000))

    assert not queues.distrusted
    assert sum(queues.delete_expired(2000)) > 0
    queues.close()


def test_untouched_queues_verify_and_keep_their_digests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    digests = closed(tmp_path)
    queues = open_queues(tmp_path)

    assert queues.verify(digests, log_end=LOG_END) == []

    monkeypatch.delattr(queue_check, "_digest")  # nothing needs to be read again
    assert queues.digests() == digests
    queues.close()


def test_only_files_that_changed_are_read_for_new_digests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    digests = closed(tmp_path)
    queues = open_queues(tmp_path)
    queues.verify(digests, log_end=LOG_END)
    fill(queues, A, 12, 13)
    read = []
    read_and_digest = queue_check._digest

    def digest(files: QueueFiles, number: int, end: int) -> int:
        read.append((files.directory, number))
        return read_and_digest(files, number, end)

    monkeypatch.setattr(queue_check, "_digest", digest)

    changed = queues.digests()

    directory = str(tmp_path / "consumequeue" / "orders" / "0")
    assert read == [(directory, 2)]
    queues.close()
    assert open_queues(tmp_path).verify(changed, log_end=LOG_END) == []


@pytest.mark.parametrize(
    "change",
    [
        lambda queue: queue.truncate(1300),
        lambda queue: queue.delete_expired(1700),
        lambda queue: queue.put(12, 2200, 100, 0),
        lambda queue: queue.put_run(12, encode_entry(2200, 100, 0)),
        lambda queue: queue.recover(1300),
    ],
    ids=["cut", "expiry", "entry", "run", "recovery"],
)
def test_whatever_changes_a_queue_changes_its_digest(
    tmp_path: Path, change: Callable[[ConsumeQueue], object]
) -> None:
    digests = closed(tmp_path)
    queues = open_queues(tmp_path)
    queues.verify(digests, log_end=LOG_END)
    change(queues.queue(*A))

    changed = queues.digests()

    assert [new for new in changed if new not in digests] == [d for d in changed if d[:2] == A]
    queues.close()
    assert open_queues(tmp_path).verify(changed, log_end=LOG_END) == []


def test_digests_after_a_cut_are_taken_anew(tmp_path: Path) -> None:
    digests = closed(tmp_path)
    queues = open_queues(tmp_path)
    queues.verify(digests, log_end=LOG_END)
    queues.truncate(1300)
    queue = queues.queue(*A)
    for offset in range(3, 12):
        queue.put(offset, 5000 + 100 * offset, 100, 0)

    changed = queues.digests()
    queues.close()

    assert open_queues(tmp_path).verify(changed, log_end=LOG_END) == []


Damage = Callable[[Path], object]
DAMAGES: dict[str, Damage] = {
    "an entry changed": lambda root: overwrite(path_of(root, A, 1), 47, b"\x01"),
    "padding changed": lambda root: overwrite(path_of(root, B, 1), 3, b"\x01"),
    "an entry more": lambda root: overwrite(path_of(root, C), 20, encode_entry(9999, 100, 0)),
    "something in the tail": lambda root: overwrite(path_of(root, C), 99, b"\x01"),
    "an entry less": lambda root: overwrite(path_of(root, A, 2), 20, bytes(20)),
    "the last file missing": lambda root: path_of(root, A, 2).unlink(),
    "a middle file missing": lambda root: path_of(root, A, 1).unlink(),
    "the first file missing": lambda root: path_of(root, A, 0).unlink(),
    "a file too long": lambda root: os.truncate(path_of(root, A, 1), FILE_SIZE + 20),
    "a file too short": lambda root: os.truncate(path_of(root, A, 1), FILE_SIZE - 20),
    "the last file too short": lambda root: os.truncate(path_of(root, A, 2), 30),
    "a file more": lambda root: path_of(root, A, 3).write_bytes(bytes(FILE_SIZE)),
    "a foreign file": lambda root: path_of(root, A).with_name("notes.txt").touch(),
    "all files missing": lambda root: shutil.rmtree(path_of(root, B).parent),
}
HIT = {"padding changed": B, "all files missing": B, "an entry more": C, "something in the tail": C}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_after_an_orderly_close_is_found_and_only_it(tmp_path: Path, damage: str) -> None:
    digests = closed(tmp_path)
    DAMAGES[damage](tmp_path)
    queues = open_queues(tmp_path)

    damaged = queues.verify(digests, log_end=LOG_END)

    assert [(topic, queue_id) for topic, queue_id, _ in damaged] == [HIT.get(damage, A)]
    key = HIT.get(damage, A)
    queues.delete(*key)
    first, last = {A: (0, 12), B: (7, 13), C: (0, 1)}[key]
    fill(queues, key, first, last)
    assert sorted(queues.digests()) == sorted(digests)
    queues.close()


def test_queues_that_came_or_went_are_damage(tmp_path: Path) -> None:
    digests = [digest for digest in closed(tmp_path) if digest[:2] != C]
    queues = open_queues(tmp_path)
    queues.delete_topic("orders")

    damaged = queues.verify(digests, log_end=LOG_END)

    assert {(topic, queue_id) for topic, queue_id, _ in damaged} == {A, B, C}
    queues.close()


STRUCTURAL: dict[str, Damage] = {
    "entries that go back": lambda root: overwrite(
        path_of(root, A, 1), 20, encode_entry(1000, 100, 0)
    ),
    "entries that overlap": lambda root: overwrite(
        path_of(root, A, 0), 20, encode_entry(1100, 101, 0)
    ),
    "an entry that goes back into the file before": lambda root: overwrite(
        path_of(root, A, 1), 0, encode_entry(1399, 100, 0)
    ),
    "a hole": lambda root: overwrite(path_of(root, A, 1), 20, bytes(20)),
    "a hole at a file's start": lambda root: overwrite(path_of(root, A, 1), 0, bytes(20)),
    "padding behind the front": lambda root: overwrite(
        path_of(root, A, 1), 20, path_of(root, B, 1).read_bytes()[:20]
    ),
    "an entry behind the log's end": lambda root: overwrite(
        path_of(root, A, 2), 20, encode_entry(LOG_END, 100, 0)
    ),
    "something in the tail": lambda root: overwrite(path_of(root, A, 2), 99, b"\x01"),
    "a missing file": lambda root: path_of(root, A, 1).unlink(),
}


@pytest.mark.parametrize("damage", STRUCTURAL)
def test_without_digests_entries_that_make_no_sense_are_found(tmp_path: Path, damage: str) -> None:
    filled(tmp_path).close()
    assert open_queues(tmp_path).verify(None, log_end=LOG_END) == []
    STRUCTURAL[damage](tmp_path)

    damaged = open_queues(tmp_path).verify(None, log_end=LOG_END)

    assert [(topic, queue_id) for topic, queue_id, _ in damaged] == [A]


def test_the_unwritten_part_of_a_file_is_looked_at_without_reading_its_holes(
    tmp_path: Path,
) -> None:
    for position in (20, 4_095, 4_096, 2_000_000, 5_999_999):
        root = tmp_path / str(position)
        queues = ConsumeQueues(root / "consumequeue")
        fill(queues, A, 0, 1)
        queues.close()
        path = root / "consumequeue" / "orders" / "0" / f"{0:020d}"
        assert ConsumeQueues(root / "consumequeue").verify(None, log_end=LOG_END) == []

        with path.open("rb+") as file:
            file.seek(position)
            file.write(b"\x01")

        damaged = ConsumeQueues(root / "consumequeue").verify(None, log_end=LOG_END)
        assert [(topic, queue_id) for topic, queue_id, _ in damaged] == [A]


def test_the_unwritten_parts_of_many_files_are_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    queues = ConsumeQueues(tmp_path / "consumequeue")
    for number in range(300):
        fill(queues, ("orders", number), 0, 1)
    digests = queues.digests()
    queues.close()
    read = Mock(side_effect=os.pread)
    monkeypatch.setattr(os, "pread", read)

    assert ConsumeQueues(tmp_path / "consumequeue").verify(digests, log_end=LOG_END) == []

    assert 300 <= read.call_count <= 4 * 300


def test_without_digests_long_queues_are_checked_piece_by_piece(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pieces may have any size; one may end between padding and entries."""
    filled(tmp_path).close()
    for count in range(1, 9):
        monkeypatch.setattr(queue_check, "_CHUNK_COUNT", count)
        assert open_queues(tmp_path).verify(None, log_end=LOG_END) == []
        assert len(open_queues(tmp_path).verify(None, log_end=1500)) == 2


def test_without_digests_a_file_made_and_not_written_to_is_no_damage(tmp_path: Path) -> None:
    queues = open_queues(tmp_path)
    fill(queues, A, 0, 5)
    queues.close()
    path_of(tmp_path, A, 1).write_bytes(bytes(FILE_SIZE))

    assert open_queues(tmp_path).verify(None, log_end=LOG_END) == []


def test_a_queue_of_nothing_but_padding_makes_sense(tmp_path: Path) -> None:
    queues = filled(tmp_path)
    queues.truncate(0)
    queues.close()

    assert open_queues(tmp_path).verify(None, log_end=0) == []


def test_after_a_crash_every_queue_is_cut_and_the_damaged_are_named(tmp_path: Path) -> None:
    filled(tmp_path).close()
    path_of(tmp_path, B, 1).unlink()
    path_of(tmp_path, B, 4).write_bytes(bytes(FILE_SIZE))
    queues = open_queues(tmp_path)

    damaged = queues.recover_all(1850)

    assert [(topic, queue_id) for topic, queue_id, _ in damaged] == [B]
    assert [queues.queue(*key).max_offset for key in (A, C)] == [9, 1]
    with pytest.raises(DamagedQueueError):
        queues.queue(*B)
    queues.delete(*B)
    assert queues.verify(None, log_end=1900) == []
    queues.close()


def test_what_was_taken_for_flushing_can_be_flushed_elsewhere(tmp_path: Path) -> None:
    queues = filled(tmp_path)

    taken = queues.take_unflushed()
    queues.delete_topic("orders")
    queues.close()
    taken.sync()

    assert not taken
    root = str(tmp_path / "consumequeue")
    assert queues.take_unflushed().directories == {root}


def test_what_a_flush_left_undone_is_part_of_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    queues = filled(tmp_path)
    taken = queues.take_unflushed()
    everything = set(taken.files), set(taken.directories)
    with monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", Mock(side_effect=OSError(errno.EIO, "lost pages")))
        with pytest.raises(OSError, match="lost pages"):
            taken.sync()

    again = queues.take_unflushed()

    assert (again.files, again.directories) == everything
    queues.take_unflushed().sync()
    assert not queues.take_unflushed()
    queues.close()


def test_many_queues_are_listed_quickly(tmp_path: Path) -> None:
    root = tmp_path / "consumequeue"
    for topic in range(20):
        for number in range(100):
            (root / f"topic{topic}" / str(number)).mkdir(parents=True)
    started = time.process_time()

    assert len(open_queues(tmp_path)) == 2_000

    assert time.process_time() - started < 1
