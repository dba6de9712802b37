"""Directories: made with all above them; files in them replaced, whenever the power fails."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from eruca_broker.store.files.small_files import replace_files
from eruca_chassis.directories import make_directory, sync_directory, tighten
from support.limits import file_size_limit


def test_a_directory_is_made_with_what_is_missing_above_it(tmp_path: Path) -> None:
    make_directory(tmp_path / "a" / "b" / "c")
    make_directory(tmp_path / "a" / "b" / "c")

    assert (tmp_path / "a" / "b" / "c").is_dir()


def test_only_a_directory_can_be_synced(tmp_path: Path) -> None:
    (tmp_path / "file").touch()

    sync_directory(tmp_path)
    with pytest.raises(NotADirectoryError):
        sync_directory(tmp_path / "file")
    with pytest.raises(FileNotFoundError):
        sync_directory(tmp_path / "missing")


def test_a_file_is_replaced_once_its_content_is_durable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = tmp_path / "config"
    replace_files(directory, {"a.json": b"old", "b.json": b"old"})
    seen: list[tuple[str, list[bytes]]] = []
    flush = os.fsync

    def note(descriptor: int) -> None:
        flush(descriptor)
        flushed = Path(f"/proc/self/fd/{descriptor}").readlink()
        seen.append((flushed.name, [(directory / f"{name}.json").read_bytes() for name in "ab"]))

    monkeypatch.setattr(os, "fsync", note)
    replace_files(directory, {"a.json": b"new", "b.json": b"new"})

    assert seen == [
        ("a.json.new", [b"old", b"old"]),
        ("b.json.new", [b"new", b"old"]),
        ("config", [b"new", b"new"]),
    ]
    assert sorted(path.name for path in directory.iterdir()) == ["a.json", "b.json"]


def test_what_cannot_be_written_leaves_its_predecessor(tmp_path: Path) -> None:
    replace_files(tmp_path, {"a.json": b"old", "b.json": b"old"})

    with file_size_limit(100), pytest.raises(OSError, match="large"):
        replace_files(tmp_path, {"a.json": b"new", "b.json": bytes(101)})

    assert [(tmp_path / f"{name}.json").read_bytes() for name in "ab"] == [b"new", b"old"]


def test_a_link_in_the_place_of_a_new_file_is_not_followed(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_bytes(b"theirs")
    (tmp_path / "a.json.new").symlink_to(elsewhere)

    replace_files(tmp_path, {"a.json": b"ours"})

    assert (elsewhere.read_bytes(), (tmp_path / "a.json").read_bytes()) == (b"theirs", b"ours")
    assert not (tmp_path / "a.json").is_symlink()


def test_a_directory_in_a_file_s_place_is_moved_aside_with_what_is_in_it(tmp_path: Path) -> None:
    for _ in range(2):
        (tmp_path / "a.json").unlink(missing_ok=True)
        (tmp_path / "a.json" / "inside").mkdir(parents=True)
        replace_files(tmp_path, {"a.json": b"ours"})

    assert (tmp_path / "a.json").read_bytes() == b"ours"
    assert (tmp_path / "a.json.aside-1" / "inside").is_dir()
    assert (tmp_path / "a.json.aside-2" / "inside").is_dir()


@pytest.mark.parametrize(
    ("group_access", "before", "after"),
    [
        (False, 0o755, 0o700),
        (False, 0o777, 0o700),
        (False, 0o750, 0o700),
        (False, 0o500, 0o500),
        (True, 0o755, 0o750),
        (True, 0o775, 0o750),
        (True, 0o700, 0o700),
    ],
)
def test_a_directory_is_closed_to_others_and_opened_to_nobody(
    tmp_path: Path, before: int, after: int, *, group_access: bool
) -> None:
    directory = tmp_path / "store"
    directory.mkdir()
    directory.chmod(before)

    with capture_logs() as lines:
        tighten(directory, group_access=group_access)

    assert stat.S_IMODE(directory.stat().st_mode) == after
    assert len(lines) == (before != after)
