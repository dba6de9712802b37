"""The checkpoint: what reads back is what was written, or nothing."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from eruca_broker.store.files.checkpoint import (
    CHECKPOINT_NAME,
    CHECKPOINT_SIZE,
    Checkpoint,
    read_checkpoint,
    write_checkpoint,
)
from support.limits import file_size_limit

CHECKPOINT = Checkpoint(1_700_000_000_001, 1_700_000_000_002, 1_700_000_000_003, 123_456, 234_567)


def test_a_checkpoint_comes_back_as_it_was_written(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, CHECKPOINT._replace(flushed_offset=123_457))
    write_checkpoint(tmp_path, CHECKPOINT)

    assert read_checkpoint(tmp_path) == CHECKPOINT


def test_the_file_is_rocketmqs(tmp_path: Path) -> None:
    """Timestamps of log, queues and index; then how far all is flushed, and how far the log."""
    write_checkpoint(tmp_path, CHECKPOINT)

    content = (tmp_path / CHECKPOINT_NAME).read_bytes()

    assert len(content) == CHECKPOINT_SIZE
    assert struct.unpack_from(">5q", content) == CHECKPOINT


def test_a_missing_checkpoint_promises_nothing(tmp_path: Path) -> None:
    assert read_checkpoint(tmp_path) is None


@pytest.mark.parametrize("size", [0, 1, 40, 47])
def test_a_short_checkpoint_promises_nothing(tmp_path: Path, size: int) -> None:
    write_checkpoint(tmp_path, CHECKPOINT)
    path = tmp_path / CHECKPOINT_NAME
    path.write_bytes(path.read_bytes()[:size])

    assert read_checkpoint(tmp_path) is None


def test_a_checkpoint_with_any_byte_changed_promises_nothing(tmp_path: Path) -> None:
    """Exhaustive over the bytes."""
    write_checkpoint(tmp_path, CHECKPOINT)
    path = tmp_path / CHECKPOINT_NAME
    content = path.read_bytes()

    for position in range(48):
        changed = bytearray(content)
        changed[position] ^= 0x10
        path.write_bytes(changed)
        assert read_checkpoint(tmp_path) is None, position


def test_a_checkpoint_rocketmq_wrote_promises_nothing(tmp_path: Path) -> None:
    """It knows nothing of what we store in the longs behind its three timestamps."""
    fields = struct.pack(">6q", 1_700_000_000_000, 1_700_000_000_000, 1_700_000_000_000, 0, 0, 0)
    (tmp_path / CHECKPOINT_NAME).write_bytes(fields.ljust(CHECKPOINT_SIZE, b"\0"))

    assert read_checkpoint(tmp_path) is None


def test_a_full_disk_is_reported_and_leaves_the_old_checkpoint(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, CHECKPOINT)

    with file_size_limit(0), pytest.raises(OSError, match="too large"):
        write_checkpoint(tmp_path, CHECKPOINT._replace(flushed_offset=123_456))

    assert read_checkpoint(tmp_path) == CHECKPOINT
