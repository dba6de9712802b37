"""A lake's files on this machine."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from eruca_spark.lake_files import LakeBusyError, LocalFiles

HOLD = """
import sys
from pathlib import Path
from eruca_spark.lake_files import LocalFiles
with LocalFiles(Path(sys.argv[1])).locked():
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def files(tmp_path: Path) -> LocalFiles:
    return LocalFiles(tmp_path)


def test_a_file_is_read_as_it_was_written(files: LocalFiles, tmp_path: Path) -> None:
    files.write("_manifest/1.json", "one")
    files.write("_manifest/1.json", "two")

    assert files.read("_manifest/1.json") == "two"
    assert [path.name for path in (tmp_path / "_manifest").iterdir()] == ["1.json"]


def test_a_file_that_is_not_there_is_none(files: LocalFiles) -> None:
    assert files.read("_manifest/1.json") is None


def test_folders_are_found_and_deleted_with_what_is_in_them(files: LocalFiles) -> None:
    files.write("topic=a/dt=1/batch=0/x.parquet", "12345")
    files.write("topic=b/dt=1/batch=0/x.parquet", "123")
    files.write("topic=b/dt=1/batch=1/x.parquet", "1")

    assert files.glob("topic=*/dt=*/batch=0/*.parquet") == [
        ("topic=a/dt=1/batch=0/x.parquet", 5),
        ("topic=b/dt=1/batch=0/x.parquet", 3),
    ]
    for path, _ in files.glob("topic=*/dt=*/batch=0"):
        files.delete(path)
    assert files.glob("topic=*/dt=*/batch=*") == [("topic=b/dt=1/batch=1", 0)]


def test_a_file_that_is_deleted_while_files_are_listed_is_omitted(
    files: LocalFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("1.json", "2.json"):
        files.write(f"_manifest/{name}", "one")
    status_of = Path.stat

    def last_look(self: Path, **options: bool) -> os.stat_result:
        status = status_of(self, **options)
        if self.name == "1.json":
            self.unlink()
        return status

    monkeypatch.setattr(Path, "stat", last_look)
    listed = [*tmp_path.glob("_manifest/*.json")]
    files.glob("_manifest/*.json")
    monkeypatch.setattr(Path, "glob", lambda self, pattern: listed)

    assert files.glob("_manifest/*.json") == [("_manifest/2.json", 3)]


def test_files_are_made_durable_with_all_the_folders_they_lie_in(
    files: LocalFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = ("topic=a/dt=1/batch=0/x.parquet", "topic=b/dt=1/batch=0/x.parquet")
    for path in made:
        files.write(path, "rows")
    flushed: list[str] = []
    flush = os.fsync

    def note(descriptor: int) -> None:
        flush(descriptor)
        target = Path(f"/proc/self/fd/{descriptor}").readlink()
        flushed.append(target.relative_to(tmp_path).as_posix())

    monkeypatch.setattr(os, "fsync", note)
    files.make_durable(made)

    folders = [folder.as_posix() for path in made for folder in Path(path).parents]
    assert flushed == [*made, *sorted({*folders}, reverse=True)]


def test_one_export_at_a_time_and_a_killed_one_does_not_count(
    files: LocalFiles, tmp_path: Path
) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(LakeBusyError, match="another export"), files.locked():
            pytest.fail("it is held")
        holder.kill()

    with files.locked():
        pass
