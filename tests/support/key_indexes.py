"""A key index with small files, the rows put into it, and its files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from zoneinfo import ZoneInfo

import numpy as np
from hypothesis import strategies as st

from eruca_broker.core.index.layout import file_size
from eruca_broker.store.index.key_index import KeyIndex

SLOTS = 5
ENTRIES = 9  # so eight keys to a file
FILE_SIZE = file_size(SLOTS, ENTRIES)
NOON = 1_700_000_000_000  # ms
FIRST_NAME = "20231114221320000"
Row = tuple[int, int, int]  # key hash, log offset, store timestamp


def open_index(
    root: Path, *, limit: int | None = None, digests: Mapping[str, int] | None = None
) -> KeyIndex:
    return KeyIndex.open(
        root / "index",
        hash_slots=SLOTS,
        max_entries=ENTRIES,
        zone=ZoneInfo("UTC"),
        limit=limit,
        digests=digests,
    )


def put(index: KeyIndex, rows: list[Row]) -> None:
    hashes, offsets, timestamps = ([row[n] for row in rows] for n in range(3))
    index.put_many(
        np.array(hashes, np.int32), np.array(offsets, np.int64), np.array(timestamps, np.int64)
    )


def some_rows(first: int, last: int) -> list[Row]:
    """Rows of records of 100 bytes, one every 700 ms: three hashes, two to a slot."""
    return [(7 if n % 3 else n % 4, 100 * n, NOON + 700 * n) for n in range(first, last)]


def found(index: KeyIndex, key_hash: int) -> list[int]:
    return index.query(key_hash, 1000)


def newest_first(rows: list[Row], key_hash: int) -> list[int]:
    return [offset for hashed, offset, _ in reversed(rows) if hashed == key_hash]


def assert_holds(index: KeyIndex, rows: list[Row]) -> None:
    for key_hash in {row[0] for row in rows} | {0, 1, 7, 12}:
        assert found(index, key_hash) == newest_first(rows, key_hash)
        assert list(index.candidates(key_hash)) == newest_first(rows, key_hash)


def files_of(root: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted((root / "index").iterdir())}


rows_lists = st.lists(
    st.tuples(st.integers(0, 12), st.integers(0, 3), st.integers(0, 2500)), max_size=40
).map(
    lambda steps: [
        (
            key_hash,
            sum(step[1] for step in steps[: n + 1]),
            NOON + sum(step[2] for step in steps[: n + 1] if step[1]),  # a record has one time
        )
        for n, (key_hash, _, _) in enumerate(steps)
    ]
)
