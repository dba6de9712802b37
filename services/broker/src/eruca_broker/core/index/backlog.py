"""Keys of records that are visible and not in the key index yet.

Hashing keys and adding them to the index costs far less in bulk than record by record. So of what
has been dispatched only the properties' texts are kept, which hold the keys, until enough have
come together. Their order is the log's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from eruca.contract.hashing import string_hash
from eruca_broker.core.properties.hashes import (
    PropertyHashes,
    hash_properties,
    hash_texts,
    index_hashes,
)
from eruca_broker.core.properties.shapes import AlikeTexts, Shape, key_hashes
from eruca_broker.core.properties.texts import Int64Array

One: TypeAlias = tuple[str, int, int, bytes]
"""A record by itself: topic, store time in ms, log offset, properties."""


class Many(NamedTuple):
    """Records of one batch, whose texts are alike or have been hashed already."""

    topic: str
    timestamp: int  # store time in ms
    log_offsets: Int64Array
    texts: AlikeTexts | PropertyHashes


class KeyEntries(NamedTuple):
    """What the key index takes: a row for each key, in log order."""

    hashes: NDArray[np.int32]  # of ``topic#key``
    log_offsets: Int64Array  # of its record
    timestamps: Int64Array  # … store time in ms


class KeyBacklog:
    """Records in log order, neighbours that can be hashed together side by side."""

    def __init__(self) -> None:
        self.count = 0  # records
        self.size = 0  # bytes of their texts, about
        self._groups: list[list[One] | list[Many]] = []

    def add(self, parts: Iterable[list[One] | Many]) -> None:
        """Take what has been dispatched."""
        for part in parts:
            last = self._groups[-1] if self._groups else None
            if isinstance(part, Many):
                self.count += len(part.log_offsets)
                self.size += part.texts.size
                if last and isinstance(last[0], Many) and _are_alike(last[0], part):
                    last.append(part)
                else:
                    self._groups.append([part])
            else:
                self.count += len(part)
                self.size += sum(len(text) for _, _, _, text in part)
                if last and not isinstance(last[0], Many):
                    last.extend(part)
                else:
                    self._groups.append(part)

    def newest_first(self) -> Iterator[int]:
        """Yield the records' log offsets, descending."""
        for group in reversed(self._groups):
            parts: Sequence[One | Many] = group
            for part in reversed(parts):
                if isinstance(part, Many):
                    yield from part.log_offsets[::-1].tolist()
                else:
                    yield part[2]

    def entries(self) -> KeyEntries:
        """Return the entries for the keys of all records, of which there is one at least."""
        found = [_entries_of(group) for group in self._groups]
        return KeyEntries(*map(np.concatenate, zip(*found, strict=True)))

    def clear(self) -> None:
        """Forget all: it is indexed."""
        self.count = self.size = 0
        self._groups.clear()


def _are_alike(one: Many, other: Many) -> bool:
    """Tell whether the texts of two batches have one size, and so perhaps one shape."""
    return (
        isinstance(one.texts, AlikeTexts)
        and isinstance(other.texts, AlikeTexts)
        and one.texts.rows.shape[1] == other.texts.rows.shape[1]
    )


def _entries_of(group: list[One] | list[Many]) -> KeyEntries:
    topics, times, offsets, texts = zip(*group, strict=True)
    if not isinstance(group[0], Many):
        return _flat_entries(_hash_each(texts), topics, times, np.array(offsets, np.int64))
    counts = list(map(len, offsets))
    log_offsets = np.concatenate(offsets)
    if isinstance(texts[0], AlikeTexts):
        joined = AlikeTexts.joined(texts)
        if joined.shape is not None:
            return _alike_entries(joined, joined.shape, topics, times, counts, log_offsets)
        hashes = hash_texts(joined)
    else:
        (hashes,) = texts
    spread_topics = [
        topic for topic, count in zip(topics, counts, strict=True) for _ in range(count)
    ]
    return _flat_entries(hashes, spread_topics, np.repeat(times, counts).tolist(), log_offsets)


def _alike_entries(  # noqa: PLR0917
    texts: AlikeTexts,
    shape: Shape,
    topics: Sequence[str],
    times: Sequence[int],
    counts: Sequence[int],
    log_offsets: Int64Array,
) -> KeyEntries:
    """Return the entries of batches whose texts share one shape: a matrix of keys."""
    hashes, sizes = key_hashes(texts, shape)
    prefixes = np.array([prefix_hash(topic) for topic in topics], np.uint32)
    prefixes = prefixes[:1] if len(set(topics)) == 1 else prefixes.repeat(counts)[:, None]
    key_count = len(sizes)
    return KeyEntries(
        index_hashes(prefixes, hashes, sizes).reshape(-1),
        log_offsets.repeat(key_count),
        np.repeat(times, [count * key_count for count in counts]),
    )


def _flat_entries(
    hashes: PropertyHashes, topics: Sequence[str], times: Sequence[int], log_offsets: Int64Array
) -> KeyEntries:
    """Return the entries of records whose keys are a list."""
    rows = hashes.key_rows
    prefixes = np.fromiter(map(prefix_hash, topics), np.uint32, len(topics))
    return KeyEntries(
        index_hashes(prefixes[rows], hashes.key_hashes, hashes.key_sizes),
        log_offsets[rows],
        np.asarray(times, np.int64)[rows],
    )


def _hash_each(texts: Sequence[bytes]) -> PropertyHashes:
    sizes = np.fromiter(map(len, texts), np.int64, len(texts))
    return hash_properties(b"".join(texts), sizes.cumsum() - sizes, sizes)


@lru_cache(maxsize=4096)
def prefix_hash(topic: str) -> int:
    """Return Java's hash of what precedes a key of *topic* in the index, as an unsigned number."""
    return string_hash(f"{topic}#") & 0xFFFF_FFFF
