"""Many records of one layout, proved together: the usual batch, in which only values differ.

Between the bodies of two such records lies a *gap*: topic and properties of the one, then the
header of the next. All gaps have one size. The first record is proved by itself; then the smallest
and largest byte of each column of the gaps tell which columns vary at all. Columns that must not
(magic, queue, flags, topic, the parts' lengths …) have to agree with the first record's. Of those
that may, what matters is looked at: sizes, CRCs, that no properties end in zero, and that they all
have the same names.

Whatever is not so regular is left to :mod:`.batch_columns`, which finds out whether it is sound
and, if not, which record is to blame.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from functools import lru_cache
from itertools import starmap
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from eruca.contract.limits import BODY_SIZE_MAX
from eruca.contract.records import BODY_CRC_MASK, RecordLayout
from eruca_broker.core.batches.delayed_records import ASKING, are_alike_and_sent_now
from eruca_broker.core.batches.record_proof import (
    PROPERTIES_HEAD_SIZE,
    TIMESTAMP_MAX,
    Expected,
    crc32,
    prove_record,
)
from eruca_broker.core.properties.shapes import AlikeTexts, Bounds, column_bounds
from eruca_broker.core.properties.texts import Int64Array, UInt8Array, rows_at

_BODY_CRC: Final = 8  # where it lies in a record
_FLAG: Final = 16  # … and the application's flag
_BORN_VARIES_FROM: Final = RecordLayout.BORN_TIMESTAMP + 3  # its upper bytes must not vary
_BORN_VARIES_MAX: Final = (1 << 40) - 1  # what the others come to at most: 34 years
_COPIED_SIZE_MAX: Final = 4096  # bytes of a body that are copied faster than viewed; measured


def prove_uniform(
    buffer: bytearray, start: int, count: int, size: int, expected: Expected
) -> AlikeTexts | None:
    """Prove *count* records, at least two, of *size* bytes each; return their properties.

    None where they are not alike: nothing is known of them then.

    Raises:
        MalformedBatchError: The first record is not sound.
        TooLargeError: Its body exceeds its limit.
    """
    properties = prove_record(buffer, start, 0, size, expected)
    head_size = expected.layout.body
    tail_size = _text_at(expected) + len(properties)
    body_size = size - head_size - tail_size
    tails_at = start + head_size + body_size
    gaps = np.ndarray((count - 1, tail_size + head_size), np.uint8, buffer, tails_at, (size, 1))
    bounds = _proved_bounds(gaps, buffer, start, expected, are_sizes_fixed=True)
    if bounds is None:
        return None
    following = memoryview(buffer)[start + size :]
    if body_size <= _COPIED_SIZE_MAX:
        unpacked = _one_body(head_size, body_size, tail_size).iter_unpack(following)
        found: Iterator[int] = starmap(crc32, unpacked)
    else:
        bodies_at = range(head_size, len(following), size)
        found = map(crc32, (following[at : at + body_size] for at in bodies_at))
    if not _crcs_agree(found, _field(gaps, tail_size + _BODY_CRC)):
        return None
    text_at = _text_at(expected)
    texts = np.ndarray(
        (count, tail_size - text_at), np.uint8, buffer, tails_at + text_at, (size, 1)
    )
    return _texts(texts, bounds, tail_size)


def prove_alike(
    buffer: bytearray, start: int, sizes: Int64Array, expected: Expected
) -> AlikeTexts | None:
    """Do the same for records whose bodies differ in size.

    Raises:
        MalformedBatchError: The first record is not sound.
        TooLargeError: Its body exceeds its limit.
    """
    properties = prove_record(buffer, start, 0, int(sizes[0]), expected)
    head_size = expected.layout.body
    tail_size = _text_at(expected) + len(properties)
    body_sizes = sizes - (head_size + tail_size)
    if int(body_sizes.min()) <= 0 or int(body_sizes.max()) > BODY_SIZE_MAX:
        return None
    tails = sizes.cumsum() + (start - tail_size)
    gaps = rows_at(buffer, tails[:-1], tail_size + head_size)
    bounds = _proved_bounds(gaps, buffer, start, expected, are_sizes_fixed=False)
    if bounds is None or not (
        np.array_equal(_field(gaps, tail_size), sizes[1:])
        and np.array_equal(_field(gaps, tail_size + head_size - 4), body_sizes[1:])
    ):
        return None
    found = crcs_of(buffer, tails[1:] - body_sizes[1:], tails[1:])
    if not _crcs_agree(found, _field(gaps, tail_size + _BODY_CRC)):
        return None
    text_at = _text_at(expected)
    texts = rows_at(buffer, tails + text_at, tail_size - text_at)
    return _texts(texts, bounds, tail_size)


def crcs_of(buffer: bytearray, starts: Int64Array, ends: Int64Array) -> Iterator[int]:
    """Return the CRC of each body."""
    slices = map(slice, starts.tolist(), ends.tolist())
    return map(crc32, map(memoryview(buffer).__getitem__, slices))


def _proved_bounds(
    gaps: UInt8Array, buffer: bytearray, start: int, expected: Expected, *, are_sizes_fixed: bool
) -> Bounds | None:
    """Return the bounds of the gaps' columns; None where one varies that must not.

    Args:
        gaps: All of them.
        buffer: What the records lie in.
        start: Where the first one begins, which is proved.
        expected: What it was found to say.
        are_sizes_fixed: Whether all must be of one size.
    """
    head_size = expected.layout.body
    tail_size = gaps.shape[1] - head_size
    # The last record's tail and the first one's header are as good as one more gap.
    closing = np.frombuffer(buffer[-tail_size:] + buffer[start : start + head_size], np.uint8)
    low, high = column_bounds(gaps)
    np.minimum(low, closing, out=low)
    np.maximum(high, closing, out=high)
    fixed = _fixed_columns(tail_size, expected, are_sizes_fixed)
    if ((low ^ high) & fixed).any():
        return None
    born_at = start + RecordLayout.BORN_TIMESTAMP
    born_max = int.from_bytes(buffer[born_at : born_at + 8]) | _BORN_VARIES_MAX
    ends_in_zero = tail_size > _text_at(expected) and not low[tail_size - 1]
    return None if born_max > TIMESTAMP_MAX or ends_in_zero else (low, high)


def _texts(rows: UInt8Array, bounds: Bounds, tail_size: int) -> AlikeTexts | None:
    """Return the properties; None where their names vary, or one may ask for a delay."""
    low, high = (bound[tail_size - rows.shape[1] : tail_size] for bound in bounds)
    texts = AlikeTexts.of(rows, (low, high))
    if texts.shape is not None:
        is_proven = ASKING.isdisjoint(texts.shape.names)
    else:
        is_proven = are_alike_and_sent_now(low, high)
    return texts if is_proven else None


def _text_at(expected: Expected) -> int:
    """Return where in a tail the properties' text begins."""
    return len(expected.topic_part) + PROPERTIES_HEAD_SIZE


def _field(gaps: UInt8Array, at: int) -> NDArray[Any]:
    """Return four bytes of each gap as a number."""
    field: NDArray[Any] = gaps[:, at : at + 4].view(">u4")[:, 0]
    return field


def _crcs_agree(found: Iterator[int], stored: NDArray[Any]) -> bool:
    """Tell whether the bodies with the CRCs *found* belong to records that hold *stored*."""
    packed = np.frombuffer(_numbers(len(stored)).pack(*found), np.uint32)
    return bool((packed & BODY_CRC_MASK == stored).all())


@lru_cache(maxsize=256)
def _fixed_columns(tail_size: int, expected: Expected, are_sizes_fixed: bool) -> UInt8Array:  # noqa: FBT001 - a cache's key
    """Return ones in the columns of a gap that must not vary."""
    layout = expected.layout
    fixed = np.full(tail_size + layout.body, 0xFF, np.uint8)
    fixed[_text_at(expected) : tail_size] = 0
    header = fixed[tail_size:]
    for first, last in (
        (_BODY_CRC, RecordLayout.QUEUE_ID),
        (_FLAG, RecordLayout.SYS_FLAG),  # the application's; and the offsets, which are stamped
        (_BORN_VARIES_FROM, layout.reconsume_times),  # … and hosts and store time, likewise
    ):
        header[first:last] = 0
    if not are_sizes_fixed:
        header[:4] = 0
        header[layout.body_size :] = 0
    return fixed


@lru_cache(maxsize=256)
def _one_body(head_size: int, body_size: int, tail_size: int) -> struct.Struct:
    return struct.Struct(f"{head_size}x{body_size}s{tail_size}x")


@lru_cache(maxsize=256)
def _numbers(count: int) -> struct.Struct:
    return struct.Struct(f"={count}I")
