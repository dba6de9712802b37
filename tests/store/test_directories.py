"""Directories: made with all above them."""

from __future__ import annotations

from pathlib import Path

import pytest

from eruca_broker.store.directories import make_directory, sync_directory


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
