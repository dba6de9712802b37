"""Unflushed bytes: handed over completely, flushed once, kept if a flush fails."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from unittest.mock import Mock

import pytest

from eruca_broker.store.files.unflushed import Unflushed


def with_paths(tmp_path: Path) -> Unflushed:
    (tmp_path / "file").write_bytes(b"x")
    unflushed = Unflushed()
    unflushed.files.add(f"{tmp_path}/file")
    unflushed.directories.add(str(tmp_path))
    return unflushed


def test_what_is_taken_is_no_longer_there(tmp_path: Path) -> None:
    unflushed = with_paths(tmp_path)

    taken = unflushed.take()

    assert not unflushed
    assert (taken.files, taken.directories) == ({f"{tmp_path}/file"}, {str(tmp_path)})


def test_what_is_synced_is_done(tmp_path: Path) -> None:
    unflushed = with_paths(tmp_path)

    unflushed.sync()

    assert not unflushed


def test_what_was_deleted_meanwhile_needs_no_flush(tmp_path: Path) -> None:
    unflushed = with_paths(tmp_path / "..")
    unflushed.files.add(f"{tmp_path}/gone")
    unflushed.directories.add(f"{tmp_path}/gone too")

    unflushed.sync()

    assert not unflushed


@pytest.mark.parametrize("call", ["fdatasync", "fsync"], ids=["file", "directory"])
def test_what_could_not_be_flushed_stays_to_be_flushed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    unflushed = with_paths(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(os, call, Mock(side_effect=OSError(errno.EIO, "lost pages")))
        with pytest.raises(OSError, match="lost pages"):
            unflushed.sync()
    assert unflushed

    unflushed.sync()

    assert not unflushed
