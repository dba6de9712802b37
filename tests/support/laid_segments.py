"""Segments of any records, laid out byte by byte, and what a walk over them finds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hypothesis import strategies as st

from eruca.contract.records import Record, encode_blank, encode_record
from pyspark_eruca_segments.walk import Damaged, Proven, Read, walk
from support.records import PROPERTIES, RECORDS

WINDOW = 1_024  # bytes
TOPIC_NAMES = st.sampled_from(["orders", "rare", "%RETRY%billing", "t" * 200])
# Records as logs have them: at a place of their own, under a legal topic.
STORED_RECORDS = st.builds(
    replace,
    RECORDS,
    topic=TOPIC_NAMES,
    queue_id=st.integers(0, 3),
    queue_offset=st.integers(0, 2**40),
    properties=PROPERTIES.map(
        lambda found: "".join(f"{name}\x01{value}\x02" for name, value in found.items())
    ),
)
LOGS = st.lists(st.tuples(STORED_RECORDS, st.booleans()), min_size=1, max_size=12)
"""Records, and for each whether it has a checksum."""


def laid(
    records: Sequence[tuple[Record, bool]], base: int, *, room: int = 40
) -> tuple[bytes, list[bytes]]:
    """Return a closed segment that begins at log offset *base*, and its records as encoded."""
    encoded: list[bytes] = []
    at = base
    for record, has_checksum in records:
        encoded.append(encode_record(replace(record, log_offset=at), with_checksum=has_checksum))
        at += len(encoded[-1])
    return b"".join(encoded) + encode_blank(room).ljust(room, b"\0"), encoded


def reading(segment: bytes) -> Read:
    """Return a function that reads bytes as a file."""
    return lambda begin, end: segment[begin:end]


def walked(
    segment: bytes, base: int, *, size: int | None = None, window: int = WINDOW
) -> list[Proven | Damaged]:
    """Return all that a walk yields."""
    end = base + (len(segment) if size is None else size)
    return [*walk(reading(segment), base, end, window_size=window)]


def raws_of(parts: Sequence[Proven | Damaged]) -> list[bytes]:
    """Return the proven records' bytes, in order."""
    return [
        part.data[start : start + size]
        for part in parts
        if isinstance(part, Proven)
        for start, size in zip(
            part.columns.starts.tolist(), part.columns.sizes.tolist(), strict=True
        )
    ]
