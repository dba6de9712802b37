"""Files replaced as a whole, whenever the power fails."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from eruca_chassis.files.whole_files import replace_files
from support.limits import file_size_limit


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
