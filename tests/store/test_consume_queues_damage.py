"""Damaged consume queues: digests and a look at the entries find the damage and only it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from unittest.mock import Mock

import pytest

from eruca_broker.core.consume_queue_entry import encode_entry
from eruca_broker.store.queues import queue_check
from eruca_broker.store.queues.consume_queue import ConsumeQueue
from eruca_broker.store.queues.consume_queues import ConsumeQueues
from eruca_broker.store.queues.queue_files import DamagedQueueError, QueueFiles
from support.queue_files import (
    FILE_SIZE,
    LOG_END,
    A,
    B,
    C,
    closed,
    fill,
    filled,
    open_queues,
    path_of,
)


def overwrite(path: Path, position: int, data: bytes) -> None:
    content = bytearray(path.read_bytes())
    content[position : position + len(data)] = data
    path.write_bytes(content)


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


def test_digests_after_a_cut_are_computed_again(tmp_path: Path) -> None:
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
