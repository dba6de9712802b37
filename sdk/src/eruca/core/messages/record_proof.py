"""Prove many stored records at once: each by its checksum, or by its body's CRC without one.

The rules are those of :func:`eruca.contract.records.checksum_fault`, and of recovery. The checksums
themselves are computed by one C function for each record; all else is done by columns.

Source: RocketMQ 5.3, ``CommitLog.checkMessageAndReturnSize``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
from numpy.typing import NDArray

from eruca.contract.properties import CHECKSUM
from eruca.contract.records import (
    BODY_CRC_MASK,
    CHECKSUM_ROOM,
    CHECKSUM_SIZE,
    CHECKSUM_WRONG_MAX,
)
from eruca.core.messages.accelerators import crc32
from eruca.core.messages.record_columns import Int64Array, RecordColumns, sound_structure, strided

_FORM: Final = np.frombuffer(CHECKSUM_ROOM.encode(), np.uint8)
_DIGITS: Final = slice(len(CHECKSUM) + 1, CHECKSUM_SIZE - 1)
_POWERS: Final = 10 ** np.arange(_DIGITS.stop - _DIGITS.start)  # the lowest digit comes first
_BODY_CRC_AT: Final = 8


def proved_rows(columns: RecordColumns, log_offset: int) -> NDArray[np.bool_]:
    """Tell which records are as they were written, at their place in the log.

    Args:
        columns: Of the records; their parts need not add up.
        log_offset: Of the buffer's first byte.
    """
    sound: NDArray[np.bool_] = (
        sound_structure(columns)
        & (columns.log_offsets == columns.starts + log_offset)
        & ((columns.queue_ids | columns.queue_offsets) >= 0)
    )
    rows = np.flatnonzero(sound)
    if len(rows):
        sound[rows] = _matches(columns, rows)
    return sound


def _matches(columns: RecordColumns, rows: Int64Array) -> NDArray[np.bool_]:
    """Tell which of some records, whose parts add up, match their checksum or their body's CRC."""
    buffer, starts = columns.buffer, columns.starts[rows]
    ends = starts + columns.sizes[rows]
    last = np.ndarray(
        (len(buffer) - CHECKSUM_SIZE + 1, CHECKSUM_SIZE), np.uint8, buffer, strides=(1, 1)
    )[ends - CHECKSUM_SIZE]
    wrong = last != _FORM
    digits = last[:, _DIGITS]
    wrong[:, _DIGITS] = (digits - np.uint8(0x30)) > 9
    wrong_count = wrong.sum(axis=1)
    has_checksum = wrong_count == 0
    bodies = columns.body_starts[rows]
    begins = np.where(has_checksum, starts, bodies)
    stops = np.where(has_checksum, ends - CHECKSUM_SIZE, bodies + columns.body_sizes[rows])
    expected = np.where(
        has_checksum,
        (digits.astype(np.int64) - 0x30) @ _POWERS,
        strided(buffer, ">i4", 4)[starts + _BODY_CRC_AT],
    )
    found = np.fromiter(_checksums(buffer, begins, stops), np.int64, len(rows)) & BODY_CRC_MASK
    matches: NDArray[np.bool_] = (found == expected) & (
        has_checksum | (wrong_count > CHECKSUM_WRONG_MAX)
    )
    return matches


def _checksums(
    buffer: bytes | bytearray | memoryview, begins: Int64Array, ends: Int64Array
) -> Iterator[int]:
    pieces = map(memoryview(buffer).__getitem__, map(slice, begins.tolist(), ends.tolist()))
    return map(crc32, pieces)
