"""Open files: never more than the limit, and what was written stays."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from eruca_broker.store.files.open_files import OpenFiles
from support.limits import file_size_limit


def descriptors_of(directory: Path) -> int:
    """Return how many files in *directory* this process has open."""
    links = Path("/proc/self/fd").iterdir()
    return sum(os.path.realpath(link).startswith(f"{directory}/") for link in links)


def test_no_more_files_are_open_than_the_limit_says(tmp_path: Path) -> None:
    files = OpenFiles(3)

    for number in range(10):
        os.pwrite(files.create(f"{tmp_path}/{number}", 8), b"%d" % number, 0)
        assert descriptors_of(tmp_path) == len(files) == min(number + 1, 3)

    for number in range(10):
        assert os.pread(files.descriptor(f"{tmp_path}/{number}"), 8, 0) == b"%d" % number + bytes(7)
    files.close()
    assert descriptors_of(tmp_path) == 0


def test_the_file_used_least_recently_is_closed_first(tmp_path: Path) -> None:
    files = OpenFiles(2)
    first = files.create(f"{tmp_path}/first", 1)
    files.create(f"{tmp_path}/second", 1)

    assert files.descriptor(f"{tmp_path}/first") == first
    files.create(f"{tmp_path}/third", 1)

    assert files.descriptor(f"{tmp_path}/first") == first
    assert {os.path.basename(os.path.realpath(f"/proc/self/fd/{first}"))} == {"first"}  # noqa: PTH119
    files.close()


def test_a_missing_file_is_not_made_by_asking_for_it(tmp_path: Path) -> None:
    files = OpenFiles(2)

    with pytest.raises(FileNotFoundError):
        files.descriptor(f"{tmp_path}/missing")

    assert list(tmp_path.iterdir()) == []
    assert len(files) == 0


def test_a_file_takes_no_room_before_it_is_written(tmp_path: Path) -> None:
    files = OpenFiles(1)

    files.create(f"{tmp_path}/sparse", 100_000_000)

    status = (tmp_path / "sparse").stat()
    assert (status.st_size, status.st_blocks) == (100_000_000, 0)
    files.close()


def test_a_creation_that_failed_is_completed_by_the_next(tmp_path: Path) -> None:
    files = OpenFiles(1)
    with file_size_limit(10), pytest.raises(OSError, match="too large"):
        files.create(f"{tmp_path}/file", 20)

    files.create(f"{tmp_path}/file", 20)

    assert (tmp_path / "file").stat().st_size == 20
    files.close()


def test_forgotten_files_are_closed_and_others_stay_open(tmp_path: Path) -> None:
    files = OpenFiles(9)
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        files.create(f"{tmp_path}/{name}/1", 1)
        files.create(f"{tmp_path}/{name}/2", 1)

    files.forget(f"{tmp_path}/a/1")
    files.forget(f"{tmp_path}/a/1")
    files.forget_below(f"{tmp_path}/b")

    assert descriptors_of(tmp_path / "a") == len(files) == 1
    assert descriptors_of(tmp_path / "b") == 0
    files.close()
