"""Read and write the parts of an index file, given its descriptor.

These functions use only the descriptor, so a flush in another thread can have one of its own.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Final

import numpy as np
from isal import isal_zlib

from eruca_broker.core.index.chains import Slots
from eruca_broker.core.index.layout import (
    ENTRY_SIZE,
    HEADER_SIZE,
    SLOT_DTYPE,
    SLOT_SIZE,
    IndexHeader,
    decode_header,
    entry_position,
    slot_position,
)
from eruca_broker.store.files.residency import pread
from eruca_chassis.files.flushing import flush_data

_CHUNK_COUNT: Final = 1 << 18  # entries per read when all are read: 5 MiB
_SLOT_PAGE: Final = 1024  # slots in 4 KiB

_crc32 = isal_zlib.crc32


def read_header(descriptor: int) -> IndexHeader:
    """Read the header."""
    return decode_header(os.pread(descriptor, HEADER_SIZE, 0))


def flush_header(descriptor: int, header: IndexHeader) -> None:
    """Flush the entries, then write the header and flush it: it counts only durable entries.

    Raises:
        FlushError: A flush failed, so entries or header may be lost.
        OSError: The header could not be written; nothing is lost.
    """
    flush_data(descriptor)
    write_all(descriptor, memoryview(header.encode()), 0)
    flush_data(descriptor)


def read_slot(descriptor: int, slot: int) -> int:
    """Read one slot of the file."""
    return int.from_bytes(pread(descriptor, SLOT_SIZE, slot_position(slot)), signed=True)


def read_slots(descriptor: int, hash_slots: int) -> bytes:
    """Read the file's slot table."""
    return os.pread(descriptor, hash_slots * SLOT_SIZE, HEADER_SIZE)


def write_slots(descriptor: int, slots: Slots) -> None:
    """Make the file's slot table equal to *slots*; pages that are equal are not written.

    So a table that is mostly empty stays a hole in the file.
    """
    differs = slots != np.frombuffer(read_slots(descriptor, len(slots)), SLOT_DTYPE)
    pages = np.flatnonzero(np.logical_or.reduceat(differs, np.arange(0, len(slots), _SLOT_PAGE)))
    for run in np.split(pages, np.flatnonzero(np.diff(pages) > 1) + 1):
        if len(run):
            first, last = int(run[0]) * _SLOT_PAGE, (int(run[-1]) + 1) * _SLOT_PAGE
            data = slots[first:last].astype(SLOT_DTYPE).tobytes()
            write_all(descriptor, memoryview(data), slot_position(first))


def read_entries(descriptor: int, hash_slots: int, first: int, count: int) -> bytes:
    """Read *count* entries from number *first* on."""
    return pread(descriptor, count * ENTRY_SIZE, entry_position(hash_slots, first))


def entry_chunks(descriptor: int, hash_slots: int, count: int) -> Iterator[tuple[int, bytes]]:
    """Yield all entries from 1 to *count* - 1 in chunks, each with the number of its first one."""
    for first in range(1, count, _CHUNK_COUNT):
        size = min(_CHUNK_COUNT, count - first)
        yield first, read_entries(descriptor, hash_slots, first, size)


def digest_of(descriptor: int, header: IndexHeader, hash_slots: int, *, with_slots: bool) -> int:
    """Return the CRC-32 of header, entries and, if they are final, slots."""
    digest = _crc32(header.encode())
    for _, data in entry_chunks(descriptor, hash_slots, header.index_count):
        digest = _crc32(data, digest)
    if with_slots:
        digest = _crc32(read_slots(descriptor, hash_slots), digest)
    return digest


def write_all(descriptor: int, data: memoryview, position: int) -> None:
    """Write all of *data*; raise OSError if the disk refuses."""
    while data:
        written = os.pwrite(descriptor, data, position)
        assert written > 0, written
        data, position = data[written:], position + written
