"""The file ``checkpoint``: the durable progress of the log and its projections.

A file of 4 096 bytes, as RocketMQ's; six big-endian longs at its start::

    log_timestamp      ms   store time up to which the log is flushed
    queues_timestamp   ms   … the consume queues
    index_timestamp    ms   … the key index
    projected_offset   log offset up to which log and projections are flushed (RocketMQ: the log)
    flushed_offset     … the log is flushed: higher if a projection fails (RocketMQ: confirmed)
    checksum           crc32 of the five before it (RocketMQ does not use this long)

Crash rule: a checkpoint never promises more than is durable. It is written after the flush of
everything that it describes. A file that does not read back completely promises nothing: missing,
short, torn, or written by RocketMQ since.

Source: RocketMQ 5.3, ``StoreCheckpoint``.
"""

from __future__ import annotations

import os
import struct
import zlib
from pathlib import Path
from typing import Final, NamedTuple

from eruca_chassis.files.directories import FILE_MODE, sync_directory

CHECKPOINT_NAME: Final = "checkpoint"
CHECKPOINT_SIZE: Final = 4096  # bytes
_FIELDS: Final = struct.Struct(">5q")
_CHECKSUM: Final = struct.Struct(">q")


class Checkpoint(NamedTuple):
    """The durable progress at the time of writing. Timestamps are store times in ms; 0: none."""

    log_timestamp: int
    queues_timestamp: int
    index_timestamp: int
    projected_offset: int  # bytes from the start of the log
    flushed_offset: int  # the same, or more: else a power failure would leave entries of no record


def read_checkpoint(directory: Path) -> Checkpoint | None:
    """Return the checkpoint of a store directory; None if there is no valid one."""
    try:
        descriptor = os.open(directory / CHECKPOINT_NAME, os.O_RDONLY)
    except FileNotFoundError:
        return None
    try:
        data = os.pread(descriptor, _FIELDS.size + _CHECKSUM.size, 0)
    finally:
        os.close(descriptor)
    if len(data) < _FIELDS.size + _CHECKSUM.size:
        return None
    (checksum,) = _CHECKSUM.unpack_from(data, _FIELDS.size)
    if checksum != zlib.crc32(data[: _FIELDS.size]):
        return None
    return Checkpoint(*_FIELDS.unpack_from(data))


def write_checkpoint(directory: Path, checkpoint: Checkpoint) -> None:
    """Replace the checkpoint and return when it is durable.

    Raises:
        OSError: It is not durable; what reads back is the old one, this one, or None.
    """
    assert 0 <= checkpoint.projected_offset <= checkpoint.flushed_offset, checkpoint
    fields = _FIELDS.pack(*checkpoint)
    path = directory / CHECKPOINT_NAME
    is_new = not path.exists()
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, mode=FILE_MODE)
    try:
        os.ftruncate(descriptor, CHECKPOINT_SIZE)
        os.pwrite(descriptor, fields + _CHECKSUM.pack(zlib.crc32(fields)), 0)
        os.fdatasync(descriptor)
    finally:
        os.close(descriptor)
    if is_new:
        sync_directory(directory)


def delete_checkpoint(directory: Path) -> None:
    """Delete the checkpoint, if any, durably."""
    (directory / CHECKPOINT_NAME).unlink(missing_ok=True)
    sync_directory(directory)
