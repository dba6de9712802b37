"""The keys that wait for the index: whatever they wait with, they come out as each would alone."""

from __future__ import annotations

import numpy as np
import pytest

from eruca.contract.hashing import key_hash
from eruca_broker.core.index.backlog import KeyBacklog, Many, One
from eruca_broker.core.properties.hashes import hash_texts
from eruca_broker.core.properties.shapes import AlikeTexts


def alike(*texts: bytes) -> AlikeTexts:
    return AlikeTexts.of(np.frombuffer(b"".join(texts), np.uint8).reshape(len(texts), -1))


def many(
    topic: str, timestamp: int, first: int, texts: AlikeTexts, *, hashed: bool = False
) -> Many:
    offsets = np.arange(first, first + 10 * len(texts.rows), 10)
    return Many(topic, timestamp, offsets, hash_texts(texts) if hashed else texts)


ONE: list[One] = [("t", 1, 100, b"KEYS\x01a b\x02"), ("u", 2, 110, b"TAGS\x01a\x02")]
TWO: list[One] = [("u", 3, 120, b"UNIQ_KEY\x01c\x02KEYS\x01d\x02")]
PARTS: list[list[One] | Many] = [
    ONE,
    TWO,
    many("t", 4, 200, alike(b"KEYS\x01k1\x02", b"KEYS\x01k2\x02")),
    many("u", 5, 300, alike(b"KEYS\x01k1\x02", b"KEYS\x01k3\x02")),  # hashed with its neighbour
    many("t", 6, 400, alike(b"KEYS\x01k10\x02")),
    many("t", 7, 500, alike(b"u\x01KEYS!\x02")),  # as long as its neighbour, and of another shape
    many("t", 8, 600, alike(b"KEYS\x01k4\x02"), hashed=True),
    [("t", 9, 700, b"KEYS\x01\xe4\xb8\xad\x02")],
]
ENTRIES = [
    (key_hash("t", "a"), 100, 1),
    (key_hash("t", "b"), 100, 1),
    (key_hash("u", "c"), 120, 3),
    (key_hash("u", "d"), 120, 3),
    (key_hash("t", "k1"), 200, 4),
    (key_hash("t", "k2"), 210, 4),
    (key_hash("u", "k1"), 300, 5),
    (key_hash("u", "k3"), 310, 5),
    (key_hash("t", "k10"), 400, 6),
    (key_hash("t", "k4"), 600, 8),
    (key_hash("t", "中"), 700, 9),
]


def backlog() -> KeyBacklog:
    waiting = KeyBacklog()
    waiting.add([part if isinstance(part, Many) else list(part) for part in PARTS])
    return waiting


def test_every_key_has_its_entry_in_the_logs_order() -> None:
    hashes, offsets, timestamps = backlog().entries()

    rows = zip(hashes.tolist(), offsets.tolist(), timestamps.tolist(), strict=True)
    assert list(rows) == ENTRIES


def test_what_waits_is_counted_and_found_newest_first() -> None:
    waiting = backlog()

    assert list(waiting.newest_first()) == [700, 600, 500, 400, 310, 300, 210, 200, 120, 110, 100]
    assert waiting.count == 11


def test_what_is_indexed_is_forgotten() -> None:
    waiting = backlog()

    waiting.clear()

    assert waiting.count == 0
    assert list(waiting.newest_first()) == []


@pytest.mark.parametrize("hashed", [False, True])
def test_texts_without_keys_have_no_entries(hashed: bool) -> None:
    waiting = KeyBacklog()
    waiting.add([many("t", 1, 0, alike(b"TAGS\x01a\x02", b"TAGS\x01b\x02"), hashed=hashed)])

    assert [len(column) for column in waiting.entries()] == [0, 0, 0]
