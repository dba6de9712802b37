"""Walk over a stretch of log: proven records, window after window, and what is damaged between.

Memory: two windows, and the columns of one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from eruca.contract.names import NAME_PATTERN
from eruca.contract.records import MAGIC_BLANK, MAGIC_V1, MAGIC_V2, RECORD_SIZE_MIN, RecordLayout
from eruca.core.messages.record_chain import RECORD_HEAD, chain
from eruca.core.messages.record_columns import Int64Array, RecordColumns, read_columns
from eruca.core.messages.record_proof import proved_rows

WINDOW_SIZE: Final = 16 * 1024 * 1024  # bytes read at a time
RECORD_SIZE_MAX: Final = 64 * 1024 * 1024  # bytes; a larger size is taken for damage
_COUNT_MAX: Final = WINDOW_SIZE  # records of one chain: the window is the limit
_NOT_ITSELF: Final = "its parts, its place or its checksum are wrong"
_HEAD_SIZE: Final = RECORD_HEAD.size
_OWN_PLACE_END: Final = RecordLayout.LOG_OFFSET + 8
_MAGICS: Final = re.compile(
    b"|".join(re.escape(magic.to_bytes(4, "big")) for magic in (MAGIC_V1, MAGIC_V2, MAGIC_BLANK))
)
_LEGAL_TOPIC: Final = re.compile(NAME_PATTERN)

Read: TypeAlias = Callable[[int, int], bytes]
"""Returns bytes from a position of the file to another; fewer if the file is shorter."""


class Proven(NamedTuple):
    """Proven records that follow each other without a gap."""

    data: bytes
    columns: RecordColumns  # ``starts`` count from the start of *data*
    topics: list[str]  # those that occur
    numbers: NDArray[np.int32]  # each record's topic, as an index into them


class Damaged(NamedTuple):
    """A part of the log that is not what was written."""

    log_offset: int
    size: int  # bytes
    fault: str


def walk(
    read: Read, begin: int, end: int, *, window_size: int = WINDOW_SIZE
) -> Iterator[Proven | Damaged]:
    """Yield all of a stretch, in order, but for the blank record that ends it.

    Args:
        read: Reads the file; position 0 is log offset *begin*.
        begin: Log offset of the first byte, with which a record begins.
        end: Log offset behind the stretch: a record ends there, or the blank record does.
        window_size: Bytes read at a time.
    """
    size, at, wanted = end - begin, 0, window_size
    while at < size:
        wanted = min(wanted, size - at)
        data = read(at, at + wanted)
        is_cut = len(data) < wanted
        found = chain(data, 0, count_max=_COUNT_MAX, end=size - at)
        proven, stop = _proven(data, found.starts, begin + at)
        if proven is not None:
            yield proven
        at, wanted = at + stop, window_size
        fault = _NOT_ITSELF if stop < found.stop else found.fault
        if at == size or (found.is_full and stop == found.stop):
            return
        if fault is None and is_cut:
            yield Damaged(
                begin + at, size - at, f"the file ends at its byte {at - stop + len(data)}"
            )
            return
        if fault is None and not stop:
            # The window has no whole record: it needs more bytes, or zeros follow.
            record_size, magic = RECORD_HEAD.unpack_from(data)
            if not magic:
                fault = "zeros follow, where a record was expected"
            elif record_size > RECORD_SIZE_MAX:
                fault = f"size {record_size} is wrong"
            else:
                wanted = record_size
        if fault is not None:
            behind = _next_record(read, at, begin, size, window_size)
            yield Damaged(begin + at, behind - at, fault)
            at = behind


def _proven(data: bytes, starts: list[int], log_offset: int) -> tuple[Proven | None, int]:
    """Return the first records, as many as are proven, and where they end."""
    if not starts:
        return None, 0
    columns = read_columns(data, np.array(starts, np.int64))
    sound = proved_rows(columns, log_offset)
    if not sound.all():
        return _proven_first(data, starts, log_offset, int(np.argmin(sound)))
    topics, numbers = _topics_of(columns)
    is_legal = np.array([_LEGAL_TOPIC.fullmatch(topic) is not None for topic in topics])
    if not is_legal.all():
        return _proven_first(data, starts, log_offset, int(np.argmin(is_legal[numbers])))
    return Proven(data, columns, topics, numbers), int(columns.starts[-1] + columns.sizes[-1])


def _proven_first(
    data: bytes, starts: list[int], log_offset: int, count: int
) -> tuple[Proven | None, int]:
    return _proven(data, starts[:count], log_offset) if count else (None, starts[0])


def _topics_of(columns: RecordColumns) -> tuple[list[str], NDArray[np.int32]]:
    """Return the topics of proven records, by Arrow: no Python code compares them."""
    count = len(columns.starts)
    bounds = np.empty(2 * count, np.int32)
    bounds[0::2] = columns.topic_starts
    bounds[1::2] = columns.topic_starts + columns.topic_sizes
    buffers = [None, pa.py_buffer(bounds), pa.py_buffer(columns.buffer)]
    parts = pa.Array.from_buffers(pa.binary(), 2 * count - 1, buffers)
    encoded = parts.take(pa.array(np.arange(0, 2 * count, 2))).dictionary_encode()
    names = [name.decode("utf-8", "replace") for name in encoded.dictionary.to_pylist()]
    return names, encoded.indices.to_numpy()


def _next_record(read: Read, after: int, begin: int, size: int, window_size: int) -> int:
    """Return the next position behind *after* where a record may begin; *size*: there is none."""
    at = after + 1
    while at < size:
        wanted = min(max(window_size, 2 * _OWN_PLACE_END), size - at)
        data = read(at, at + wanted)
        found = _candidate(data, begin + at, size - at)
        if found is not None:
            return at + found
        if len(data) < wanted or at + len(data) == size:
            break
        at += len(data) - _OWN_PLACE_END  # the next one may begin in the last bytes
    return size


def _candidate(data: bytes, log_offset: int, end: int) -> int | None:
    """Return where a record names its own place, or the blank record fills the segment."""
    for match in _MAGICS.finditer(data, 4):
        start = match.start() - 4
        size, magic = RECORD_HEAD.unpack_from(data, start)
        if magic == MAGIC_BLANK:
            if size == end - start:
                return start
            continue
        if start + _OWN_PLACE_END > len(data) or not RECORD_SIZE_MIN <= size <= end - start:
            continue
        own = int.from_bytes(data[start + RecordLayout.LOG_OFFSET : start + _OWN_PLACE_END])
        if own == log_offset + start and _is_sound(data, start, size, log_offset):
            return start
    return None


def _is_sound(data: bytes, start: int, size: int, log_offset: int) -> bool:
    if start + size > len(data):
        return True  # the walk reads it as a whole, and proves it then
    starts: Int64Array = np.array([start], np.int64)
    return bool(proved_rows(read_columns(data, starts), log_offset).all())
