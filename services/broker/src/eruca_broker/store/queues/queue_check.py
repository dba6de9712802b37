"""Find damage in a consume queue: by its digest, or without one by its structure.

The digest of a file is the CRC-32 of its entries. It is taken when the store is closed, and
compared when it is opened again; a full file never changes, so its digest is kept. After a crash
there is no digest. Then the check is whether the entries are plausible: consecutive, each after the
previous one in the log.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

import numpy as np
from isal import isal_zlib

from eruca_broker.core.consume_queue_entry import ENTRY_SIZE, FILLER_SIZE, log_ends, view_entries
from eruca_broker.store.queues.queue_files import DamagedQueueError, QueueFiles

_CHUNK_COUNT: Final = 65_536  # entries per read; bounds the memory
_TAIL_ZEROS: Final = bytes(64 * 1024)  # bytes of a tail per read

_crc32 = isal_zlib.crc32  # an order of magnitude faster than zlib's


class QueueDigest(NamedTuple):
    """A queue's range and digest at an orderly shutdown."""

    topic: str
    queue_id: int
    max_offset: int
    files: tuple[tuple[int, int], ...]  # (number, CRC-32 of its entries), ascending


def file_digests(
    files: QueueFiles, max_offset: int, known: Mapping[int, int]
) -> tuple[tuple[int, int], ...]:
    """Return the digest of each file up to *max_offset*; files in *known* are not read."""
    return tuple(
        (number, known[number] if number in known else _digest(files, number, max_offset))
        for number in range(files.first, files.last + 1)
    )


def check_digests(files: QueueFiles, expected: QueueDigest) -> None:
    """Compare discovered *files* with their digests.

    Raises:
        DamagedQueueError: They differ.
    """
    if [number for number, _ in expected.files] != list(range(files.first, files.last + 1)):
        raise DamagedQueueError(f"{files.directory}: files were added or removed")
    for number, digest in expected.files:
        if _digest(files, number, expected.max_offset) != digest:
            raise DamagedQueueError(f"{files.path(number)}: entries have changed")
    _check_tail(files, expected.max_offset)


def check_structure(files: QueueFiles, log_end: int) -> None:
    """Check that discovered *files* hold plausible entries.

    Raises:
        DamagedQueueError: Fillers that are not at the beginning, a hole among the entries, entries
            that do not ascend in the log, or one that points after *log_end*.
    """
    last_end = 0
    end = files.first * files.entries_per_file
    in_front = True  # only fillers so far
    for offset, chunk in _chunks(files, end, (files.last + 1) * files.entries_per_file):
        rows = view_entries(chunk)
        written = (rows["size"] > 0) & (rows["log_offset"] >= 0)
        is_whole = bool(written.all())
        rows = rows if is_whole else rows[: int(written.argmin())]
        end = offset + len(rows)
        if in_front:
            real = (rows["size"] != FILLER_SIZE) | (rows["log_offset"] != 0)
            if not real.any():
                rows = rows[:0]
            else:
                rows = rows[int(real.argmax()) :]
                in_front = False
        if len(rows):
            ends = log_ends(rows)
            starts_after = np.concatenate(([last_end], ends[:-1]))
            if bool((rows["log_offset"] < starts_after).any()):
                raise DamagedQueueError(f"{files.directory}: entries from {offset} do not ascend")
            last_end = int(ends[-1])
        if not is_whole:
            break
    if last_end > log_end:
        raise DamagedQueueError(f"{files.directory}: points to {last_end}, after {log_end}")
    if end < files.last * files.entries_per_file:
        raise DamagedQueueError(f"{files.directory}: entry {end} is missing")
    _check_tail(files, end)


def _digest(files: QueueFiles, number: int, max_offset: int) -> int:
    first = number * files.entries_per_file
    digest = 0
    for _, chunk in _chunks(files, first, min(max_offset, first + files.entries_per_file)):
        digest = _crc32(chunk, digest)
    return digest


def _chunks(files: QueueFiles, first: int, last: int) -> Iterator[tuple[int, bytes]]:
    for offset in range(first, last, _CHUNK_COUNT):
        yield offset, files.read(offset, min(_CHUNK_COUNT, last - offset))


def _check_tail(files: QueueFiles, end: int) -> None:
    """Check that the last file is empty from queue offset *end* on."""
    if files.last < files.first:
        return
    path = files.path(files.last)
    position = max(end - files.last * files.entries_per_file, 0) * ENTRY_SIZE
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        while position < files.file_size:
            try:
                position = os.lseek(descriptor, position, os.SEEK_DATA)  # skips holes
            except OSError:  # ENXIO: only a hole up to the end
                return
            data = os.pread(descriptor, len(_TAIL_ZEROS), position)
            if data != _TAIL_ZEROS[: len(data)]:  # any() would test each byte in Python
                raise DamagedQueueError(f"{path}: found data after entry {end - 1}")
            position += len(data)
    finally:
        os.close(descriptor)
