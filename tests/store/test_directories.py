"""Directories: made with all above them; files in them replaced, whenever the power fails."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from eruca_broker.store.files.directories import make_directory, replace_files, sync_directory


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
    (tmp_path / "b.json.new").mkdir()  # in the way

    with pytest.raises(IsADirectoryError):
        replace_files(tmp_path, {"a.json": b"new", "b.json": b"new"})

    assert [(tmp_path / f"{name}.json").read_bytes() for name in "ab"] == [b"new", b"old"]
