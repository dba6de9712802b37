"""The store's small files, whatever lies in their places."""

from __future__ import annotations

from pathlib import Path

from eruca_broker.store.files.small_files import replace_files


def test_a_directory_in_a_file_s_place_is_moved_aside_with_what_is_in_it(tmp_path: Path) -> None:
    for _ in range(2):
        (tmp_path / "a.json").unlink(missing_ok=True)
        (tmp_path / "a.json" / "inside").mkdir(parents=True)
        replace_files(tmp_path, {"a.json": b"ours"})

    assert (tmp_path / "a.json").read_bytes() == b"ours"
    assert (tmp_path / "a.json.aside-1" / "inside").is_dir()
    assert (tmp_path / "a.json.aside-2" / "inside").is_dir()
