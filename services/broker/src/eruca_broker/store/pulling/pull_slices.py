"""Select a pull's entries from a queue, and the slices of the log that hold their records.

Messages that one producer batch put into one queue are adjacent in the log, so neighbours are
joined into one slice before sending. Small messages that lie apart, as in a topic whose queues take
turns, are copied into one slice: a slice for each would cost more than its bytes. Few entries are
selected in a loop, many by columns.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np

from eruca.core.messages.record_columns import Int64Array
from eruca_broker.core.consume_queue_entry import Entries
from eruca_broker.store.log.log_bytes import LogBytes
from eruca_broker.store.pulling.property_scan import Scan

FEW_MAX: Final = 16  # entries up to which a loop costs less than numpy's calls; measured
GATHERED_MIN: Final = 8  # stretches from which copying them costs less than a slice for each
GATHERED_SIZE_MAX: Final = 8 * 1024  # average bytes of stretches that are copied


class PullSlices(NamedTuple):
    """The selection of a pull."""

    sizes: bytes  # u32 big-endian per record
    slices: list[memoryview]  # of the log, or one copy
    begins: list[int]  # the log offset of each slice
    size: int  # bytes of all slices
    end: int  # entries that are processed
    work: int = 0  # the cost of a filter over properties
    gathered_from: Int64Array | None = None  # the log offset of each record of a copy

    @property
    def message_count(self) -> int:
        """Number of messages."""
        return len(self.sizes) // 4


def take(
    log: LogBytes,
    entries: Entries,
    count_max: int,
    bytes_max: int,
    tag_codes: frozenset[int] | None,
) -> PullSlices:
    """Return the first messages of *entries*, limited by number and, after the first one, by size.

    Args:
        log: The log that holds them.
        entries: Entries of one queue, in order.
        count_max: The maximum number of messages.
        bytes_max: Their maximum size together.
        tag_codes: Hashes of the requested tags; None for every message.

    Raises:
        OutsideLogError: An entry is invalid.
        NotInMemoryError: Some records are not in memory, in an attempt.
    """
    if len(entries) <= FEW_MAX:
        few = _choose_few(entries, count_max, bytes_max, tag_codes)
        return _slices(log, few.rows, few.size, few.end)
    many = _choose_many(entries, count_max, bytes_max, tag_codes)
    wire_sizes = many.entries["size"].tobytes()  # big-endian, as on the wire
    if not wire_sizes:
        return PullSlices(b"", [], [], 0, many.end)
    begins, ends = _stretches_of(many.entries, many.size)
    if _are_small_and_many(len(begins), many.size):
        starts, sizes = (many.entries[name].astype(np.int64) for name in ("log_offset", "size"))
        copy = log.gathered(starts, sizes)
        if copy is not None:
            return PullSlices(wire_sizes, [copy], begins[:1], many.size, many.end, 0, starts)
    return PullSlices(wire_sizes, log.views(begins, ends), begins, many.size, many.end)


def take_found(log: LogBytes, found: Scan) -> PullSlices:
    """Return the messages that match a filter over properties."""
    size = sum(size for _, size in found.rows)
    return _slices(log, found.rows, size, found.end, found.work)


def _slices(
    log: LogBytes, rows: Sequence[tuple[int, int]], size: int, end: int, work: int = 0
) -> PullSlices:
    """Return the records at *rows*, which are log offsets and sizes."""
    wire_sizes = struct.pack(f">{len(rows)}I", *(size for _, size in rows))
    stretches = [*_stretches_of_rows(rows)]
    if _are_small_and_many(len(stretches), size):
        starts, sizes = (np.array(column, np.int64) for column in zip(*rows, strict=True))
        copy = log.gathered(starts, sizes)
        if copy is not None:
            return PullSlices(wire_sizes, [copy], [rows[0][0]], size, end, work, starts)
    begins = [begin for begin, _ in stretches]
    views = log.views(begins, [begin + length for begin, length in stretches])
    return PullSlices(wire_sizes, views, begins, size, end, work)


def _are_small_and_many(stretch_count: int, size: int) -> bool:
    return stretch_count >= GATHERED_MIN and size <= stretch_count * GATHERED_SIZE_MAX


def _stretches_of_rows(rows: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Yield the log offset and the size of each run of neighbours among *rows*."""
    if not rows:
        return
    begin = end = rows[0][0]
    for log_offset, size in rows:
        if log_offset != end:
            yield begin, end - begin
            begin = end = log_offset
        end += size
    yield begin, end - begin


def _stretches_of(entries: Entries, size: int) -> tuple[list[int], list[int]]:
    """Return begins and ends of the runs of neighbours in *entries*, *size* bytes in total."""
    starts, sizes = entries["log_offset"], entries["size"]
    first, end = int(starts[0]), int(starts[-1]) + int(sizes[-1])
    if end - first == size:  # entries do not overlap, so there are no gaps
        return [first], [end]
    starts = starts.astype(np.int64)
    ends = starts + sizes
    breaks = np.flatnonzero(starts[1:] != ends[:-1])
    begins = [first, *starts[breaks + 1].tolist()]
    return begins, [*ends[breaks].tolist(), end]


class _Few(NamedTuple):
    """The messages that a pull of a few entries takes."""

    rows: list[tuple[int, int]]  # log offset, size
    size: int  # bytes of all of them
    end: int  # entries that are processed


def _choose_few(
    entries: Entries, count_max: int, bytes_max: int, tag_codes: frozenset[int] | None
) -> _Few:
    """Choose messages for a pull, limited by number and, after the first one, by size."""
    rows: list[tuple[int, int]] = []
    total = 0
    for index, (log_offset, size, tag_code) in enumerate(entries.tolist()):
        if tag_codes is not None and tag_code not in tag_codes:
            continue
        if rows and (len(rows) == count_max or total + size > bytes_max):
            return _Few(rows, total, index)
        rows.append((log_offset, size))
        total += size
    return _Few(rows, total, len(entries))


class _Many(NamedTuple):
    """The messages that a pull of more entries takes."""

    entries: Entries
    size: int  # bytes of all of them
    end: int  # entries that are processed


def _choose_many(
    entries: Entries, count_max: int, bytes_max: int, tag_codes: frozenset[int] | None
) -> _Many:
    """Choose as :func:`_choose_few` does, by columns."""
    end = len(entries)
    matching = None
    if tag_codes is not None:
        matching = np.flatnonzero(np.isin(entries["tags_code"].astype(np.int64), list(tag_codes)))
        if len(matching) > count_max:
            end = int(matching[count_max])
            matching = matching[:count_max]
        entries = entries[matching]
    size = int(np.add.reduce(entries["size"], dtype=np.int64))
    if size > bytes_max:
        total = np.cumsum(entries["size"], dtype=np.int64)
        count = max(1, int(np.searchsorted(total, bytes_max, side="right")))
        if count < len(entries):
            end = count if matching is None else int(matching[count])
            entries, size = entries[:count], int(total[count - 1])
    return _Many(entries, size, end)
