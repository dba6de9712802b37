"""Scan a queue's messages with a filter over properties: the part that reads records.

A consume queue holds no properties, so each message's record is read from the log. The record is
verified first: a changed property would let a message pass, or hold it back, unnoticed. A damaged
record passes every filter, so that the damage is reported.

Three bounds limit the cost of one answer; the first one reached ends it:

* the number of records;
* the stretch of log they span, since the pages of cold records come from disk;
* the *work*: the filter's length times the bytes of properties it was tried on. It bounds a long
  filter over large properties as well as a short one over small properties.

In an attempt (:mod:`eruca_broker.store.files.residency`), a record that is not in memory ends it
too. At least one record is examined, so a client that pulls again makes progress.

Source: RocketMQ 5.3, ``ExpressionMessageFilter``, ``DefaultMessageStore.getMessage``.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from eruca.core.filters.sql92 import Sql92Filter
from eruca_broker.core.properties.stored import stored_properties
from eruca_broker.core.records.stored_proof import is_sound, proved_rows
from eruca_broker.store.files.residency import NotInMemoryError
from eruca_broker.store.log.log_bytes import LogBytes

SCAN_RECORDS_MAX: Final = 2_048  # records examined for one answer; about 5 ms on a small machine
SCAN_SIZE_MAX: Final = 32 * 1024 * 1024  # bytes of records that they may have
SCAN_WORK_MAX: Final = 4 * 1024 * 1024  # tokens of the filter times bytes of properties
_PROVED_TOGETHER: Final = 32  # records; a pull rarely takes more
_WORK_PER_TOKEN: Final = 64  # the cost of a step with hardly anything to search


class ScanLimits(NamedTuple):
    """The limits at which a scan stops."""

    count_max: int  # matches
    size_max: int  # bytes of matches; the first one is always returned
    work_max: int  # in the unit of SCAN_WORK_MAX


class Scan(NamedTuple):
    """The progress of a filter, and its matches."""

    rows: list[tuple[int, int]]  # log offset and size of each match, in order
    end: int  # entries that are processed
    work: int  # its cost
    excluded: list[int]  # the entries that the filter excludes, among those that are processed


def scan(log: LogBytes, entries: NDArray[Any], sql92: Sql92Filter, limits: ScanLimits) -> Scan:
    """Try *sql92* on the records of *entries*, some of one queue, until it is enough.

    Raises:
        NotInMemoryError: The first ones are not in memory, in an attempt.
    """
    starts, sizes = entries["log_offset"].tolist(), entries["size"].tolist()
    rows: list[tuple[int, int]] = []
    excluded: list[int] = []
    end = work = matched_size = seen_size = 0
    sound: list[bool] = []  # of the first entries
    for row, (start, size) in enumerate(zip(starts, sizes, strict=True)):
        seen_size += size
        if end and (seen_size > SCAN_SIZE_MAX or work >= limits.work_max):
            break
        if row == len(sound):
            try:
                sound += _proved(log, entries[row : row + _PROVED_TOGETHER])
            except NotInMemoryError:
                if end:
                    break  # what is in memory is examined; the next scan begins with the rest
                raise
        properties = None
        if sound[row]:
            properties = stored_properties(log.view(start, size, is_needed=True))
        work += sql92.cost * (_WORK_PER_TOKEN + (0 if properties is None else properties.size))
        if properties is None or sql92.matches(properties):
            matched_size += size
            if rows and matched_size > limits.size_max:
                break
            rows.append((start, size))
        else:
            excluded.append(row)
        end += 1
        if len(rows) == limits.count_max:
            break
    return Scan(rows, end, work, excluded)


def _proved(log: LogBytes, entries: NDArray[Any]) -> list[bool]:
    """Tell which of the records of *entries* are valid: usually all of them are in one segment."""
    starts, sizes = entries["log_offset"].astype(np.int64), entries["size"].astype(np.int64)
    segment = log.segment_at(int(starts[0]))
    if segment is not None:
        starts -= segment.base_offset
        if starts.min() >= 0 and sizes.min() >= 0 and (starts + sizes).max() <= segment.size:
            segment.mapped.need_all(starts, sizes)
            sound: list[bool] = proved_rows(segment.buffer, starts, sizes).tolist()
            return sound
    places = zip(entries["log_offset"].tolist(), entries["size"].tolist(), strict=True)
    return [is_sound(log.view(start, size)) for start, size in places]
