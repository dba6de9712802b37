"""All consume queues of a store: found again, deleted, expired, cut and flushed."""

from __future__ import annotations

import errno
import os
import time
import tracemalloc
from pathlib import Path
from unittest.mock import Mock

import pytest

from support.limits import open_files_limit
from support.queue_files import LOG_END, A, B, C, closed, fill, filled, open_queues, path_of


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


def test_deleted_queues_leave_no_file_and_may_start_over(tmp_path: Path) -> None:
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
    """Thousands of files take longer than the deletion of a topic may."""
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
def test_a_queue_begun_again_has_nothing_of_its_predecessor(
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
    last.symlink_to(last)  # opening it is an error that names no damage

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
