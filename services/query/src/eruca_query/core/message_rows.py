"""The rows of ``messages`` for a block of the log.

A message has one row for itself, of ``key_no`` 0, and one more for each of its keys but the first,
so that one index finds it by any key. Bodies and users' properties are not in the rows: they stay
in the log.

Source of the columns: :mod:`eruca_query.projection.tables`.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from eruca.contract.properties import KEY_SEPARATOR
from eruca.core.messages.record_columns import Int64Array
from eruca_query.core.block_columns import BlockColumns
from eruca_query.core.copy_rows import RowFormat, join_rows
from eruca_query.core.key_hashes import hash_keys
from eruca_query.core.property_values import Slices, find_values
from eruca_query.core.unique_ids import StoredIds, stored_ids

FIXED: Final = (
    ("log_offset", ">i8"),
    ("stored_ms", ">i8"),
    ("born_ms", ">i8"),
    ("queue_offset", ">i8"),
    ("unique_id", "V16"),
    ("chunk", ">i4"),
    ("topic_no", ">i4"),
    ("queue_id", ">i4"),
    ("size", ">i4"),
    ("key_hash", ">i4"),
    ("broker_no", ">i2"),
    ("key_no", ">i2"),
)
TEXTS: Final = ("tag", "keys", "other_id")
COLUMNS: Final = (*(name for name, _ in FIXED), *TEXTS)
FORMAT: Final = RowFormat(FIXED, texts=len(TEXTS))
KEY_NO_MAX: Final = 0x7FFF
_BLANK: Final = ord(KEY_SEPARATOR)


def message_rows(
    block: BlockColumns,
    rows: Int64Array,
    topic_numbers: Int64Array,
    *,
    broker_no: int,
    chunk: int,
) -> tuple[bytes, int]:
    """Encode the rows of some of a block's messages for COPY; return them and their count.

    Args:
        block: The records.
        rows: The records to encode.
        topic_numbers: The topic's number of each of those records.
        broker_no: The broker's number.
        chunk: The partition to write to.
    """
    assert len(rows) == len(topic_numbers)
    assert topic_numbers.all(), "a topic has no number yet, and its messages would be nobody's"
    columns = block.columns
    values = find_values(
        block.data, columns.properties_starts[rows], columns.properties_sizes[rows]
    )
    ids = stored_ids(values.unique_ids)
    own, key_numbers, keys = _one_row_per_key(values.keys)
    assert len(rows) <= len(own) == len(key_numbers) == len(keys.starts)
    from_block = rows[own]
    fixed = FORMAT.fixed(
        len(own),
        {
            "log_offset": columns.log_offsets[from_block],
            "stored_ms": columns.store_timestamps[from_block],
            "born_ms": block.born_timestamps[from_block],
            "queue_offset": columns.queue_offsets[from_block],
            "unique_id": ids.codes[own].view("V16").reshape(-1),
            "chunk": chunk,
            "topic_no": topic_numbers[own],
            "queue_id": columns.queue_ids[from_block],
            "size": columns.sizes[from_block],
            "key_hash": hash_keys(keys, topic_numbers[own]),
            "broker_no": broker_no,
            "key_no": key_numbers,
        },
    )
    texts = [values.tags.of_rows(own), values.keys.of_rows(own), _other_ids(ids, own)]
    return join_rows(fixed, texts), len(own)


def _one_row_per_key(keys: Slices) -> tuple[Int64Array, Int64Array, Slices]:
    """Return for each key its message's row, its number within the message and its position.

    A message without a key has one row, too. A key given twice counts once.
    """
    count = len(keys.starts)
    blanks = np.flatnonzero(keys.data == _BLANK)
    has_blank = np.searchsorted(blanks, keys.starts) < np.searchsorted(
        blanks, keys.starts + keys.sizes
    )
    odd = np.flatnonzero(has_blank)
    if not len(odd):
        return np.arange(count), np.zeros(count, np.int64), keys
    owners, numbers, starts, sizes = [], [], [], []
    for row in odd.tolist():
        places = _split(keys.value(row), int(keys.starts[row])) or [(0, 0)]
        for number, (start, size) in enumerate(places[: KEY_NO_MAX + 1]):
            owners.append(row)
            numbers.append(number)
            starts.append(start)
            sizes.append(size)
    plain = np.flatnonzero(~has_blank)
    own = np.concatenate((plain, np.array(owners, np.int64)))
    order = np.argsort(own, kind="stable")  # into the log's order
    return (
        own[order],
        np.concatenate((np.zeros(len(plain), np.int64), np.array(numbers, np.int64)))[order],
        Slices(
            keys.data,
            np.concatenate((keys.starts[plain], np.array(starts, np.int64)))[order],
            np.concatenate((keys.sizes[plain], np.array(sizes, np.int64)))[order],
        ),
    )


def _split(value: bytes, at: int) -> list[tuple[int, int]]:
    """Return position and size of each different key in *value*, which begins at *at*."""
    seen: set[bytes] = set()
    places = []
    for key in value.split(b" "):
        if key and key not in seen:
            seen.add(key)
            places.append((at, len(key)))
        at += len(key) + 1
    return places


def _other_ids(ids: StoredIds, own: Int64Array) -> Slices:
    """Return for each row its message's id if the 16-byte code cannot express it."""
    at = 0
    starts, sizes = np.zeros(len(ids.codes), np.int64), np.zeros(len(ids.codes), np.int64)
    for row, text in ids.odd.items():
        starts[row], sizes[row] = at, len(text)
        at += len(text)
    texts = np.frombuffer(b"".join(ids.odd.values()), np.uint8)
    return Slices(texts, starts[own], sizes[own])
