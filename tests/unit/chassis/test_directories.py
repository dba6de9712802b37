"""Directories: made with all above them, and kept private."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from eruca_chassis.files.directories import make_directory, sync_directory, tighten


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
