"""Tag codes and key hashes of many messages at once, from their properties' text.

The consume queues' tag codes and the key index's hashes come from here and only from here, when a
message is stored as well as when a projection is rebuilt: so a rebuilt projection is the same as
the one it replaces, whoever wrote the record and in whatever order its properties stand.

Three ways with one result, from fast to patient: texts that differ in nothing but their values
(:mod:`.shapes`), texts of any kind (:mod:`.scan`), and one text after the other
for the few that need more than ASCII arithmetic or are very long.

Source: RocketMQ 5.3, ``IndexService.buildIndex``, ``MessageExtBrokerInner.tagsString2tagsCode``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from eruca.contract.hashing import string_hash
from eruca.contract.properties import split_keys
from eruca.core.messages.record_columns import LogBuffer
from eruca_broker.core.properties.scan import scan
from eruca_broker.core.properties.shapes import AlikeTexts, hash_alike
from eruca_broker.core.properties.texts import (
    POWERS,
    ROW_BYTES_MAX,
    Int64Array,
    Keys,
    KeysAndTags,
    gather,
    merge,
    utf16_size,
)

_SCAN_BYTES_MAX: Final = 4 * 1024 * 1024  # of text gathered at once; bounds the arrays
_SHAPES_MAX: Final = 8  # different lengths of text tried as shapes; beyond, they are scanned
_SHAPE_ROWS_MIN: Final = 16  # texts of one length from which a shape is worth its fixed cost


@dataclass(slots=True)
class PropertyHashes:
    """What the projections take from n records' properties.

    ``key_rows`` and ``key_hashes`` have one element per key: the unique id first, then each of
    KEYS; ``key_sizes`` is its length in UTF-16 units, which its place behind ``topic#`` needs.
    """

    tag_codes: Int64Array  # n; 0 without a tag
    key_rows: Int64Array  # k, ascending
    key_hashes: NDArray[np.uint32]  # k; Java's hash of the key alone
    key_sizes: Int64Array  # k

    @property
    def size(self) -> int:
        """Bytes this takes."""
        return sum(
            column.nbytes
            for column in (self.tag_codes, self.key_rows, self.key_hashes, self.key_sizes)
        )


def hash_properties(buffer: LogBuffer, starts: Int64Array, sizes: Int64Array) -> PropertyHashes:
    """Return tag codes and key hashes of the messages whose properties lie at *starts*.

    Args:
        buffer: What the properties lie in.
        starts: Where each text begins, counted from the start of the buffer.
        sizes: Bytes of each text.
    """
    tag_codes = np.zeros(len(starts), np.int64)
    parts: list[Keys] = []
    if len(starts) and int(sizes.max()) <= ROW_BYTES_MAX:
        narrow = np.arange(len(starts))
    else:
        narrow = np.flatnonzero(sizes <= ROW_BYTES_MAX)
        slow = np.flatnonzero(sizes > ROW_BYTES_MAX)
        if len(slow):
            parts.append(_read_each(buffer, starts, sizes, slow, tag_codes))
    rows_max = max(1, _SCAN_BYTES_MAX // (int(sizes[narrow].max(initial=0)) + 8))
    for first in range(0, len(narrow), rows_max):
        rows = narrow[first : first + rows_max]
        parts += _hash_rows(gather(buffer, starts[rows], sizes[rows]), sizes[rows], rows, tag_codes)
    return PropertyHashes(tag_codes, *merge(parts))


def hash_texts(texts: AlikeTexts) -> PropertyHashes:
    """Do the same for texts that are at hand."""
    found = hash_alike(texts)
    if found is not None:
        return PropertyHashes(found.tag_codes, *found.keys)
    count, size = texts.rows.shape
    sizes = np.full(count, size, np.int64)
    return hash_properties(texts.rows.reshape(-1), np.arange(count) * size, sizes)


def index_hashes(
    prefix_hashes: NDArray[np.uint32], key_hashes: NDArray[np.uint32], key_sizes: Int64Array
) -> NDArray[np.int32]:
    """Return ``|hash(topic#key)|`` from the hashes of ``topic#`` and of the key.

    Args:
        prefix_hashes: Java's hash of ``topic#``, for each key or one for all.
        key_hashes: Java's hash of each key.
        key_sizes: Each key's length in UTF-16 units; in a matrix of keys, one for each column.
    """
    if len(key_sizes) and int(key_sizes.max()) >= len(POWERS):
        powers = np.array([pow(31, int(size), 1 << 32) for size in key_sizes], np.uint32)
    else:
        powers = POWERS[key_sizes]
    magnitudes = (prefix_hashes * powers + key_hashes).view(np.int32)
    np.abs(magnitudes, out=magnitudes)
    # As in Java, the smallest number has no magnitude and stays what it is: 0 without its sign.
    magnitudes &= 0x7FFF_FFFF
    return magnitudes


def _hash_rows(
    text: NDArray[np.uint8], sizes: Int64Array, rows: Int64Array, tag_codes: Int64Array
) -> list[Keys]:
    """Hash gathered texts: by their shapes where they are alike, else by scanning."""
    parts: list[Keys] = []

    def take(chosen: Int64Array | slice, result: KeysAndTags) -> None:
        tag_codes[rows[chosen]] = result.tag_codes
        own = rows[chosen]
        parts.append(Keys(own[result.keys.rows], result.keys.hashes, result.keys.sizes))

    lengths = sizes[:1] if (sizes == sizes[0]).all() else np.unique(sizes)
    if len(lengths) > _SHAPES_MAX:
        take(slice(None), scan(text, sizes))
        return parts
    for length in lengths.tolist():
        chosen: Int64Array | slice = slice(None)
        if len(lengths) > 1:
            chosen = np.flatnonzero(sizes == length)
        texts = text[chosen]
        is_many = len(texts) >= _SHAPE_ROWS_MIN
        alike = hash_alike(AlikeTexts.of(texts[:, :length])) if is_many else None
        take(chosen, alike or scan(texts, sizes[chosen]))
    return parts


def _read_each(
    buffer: LogBuffer,
    starts: Int64Array,
    sizes: Int64Array,
    rows: Int64Array,
    tag_codes: Int64Array,
) -> Keys:
    from_rows, hashes, key_sizes = [], [], []
    view = memoryview(buffer)
    for row in rows.tolist():
        start = int(starts[row])
        text = bytes(view[start : start + int(sizes[row])])
        tag, keys = tag_and_keys(text)
        tag_codes[row] = string_hash(tag) if tag else 0
        for key in keys:
            from_rows.append(row)
            hashes.append(string_hash(key) & 0xFFFF_FFFF)
            key_sizes.append(utf16_size(key))
    return Keys(
        np.array(from_rows, np.int64),
        np.array(hashes, np.uint32),
        np.array(key_sizes, np.int64),
    )


def tag_and_keys(properties: bytes) -> tuple[str | None, list[str]]:
    """Return a record's tag, and its keys with the unique id first."""
    found: dict[bytes, str] = {}
    for fragment in properties.split(b"\x02"):
        name, _, value = fragment.partition(b"\x01")
        if value and name in (b"TAGS", b"KEYS", b"UNIQ_KEY"):
            found[name] = value.decode("utf-8", "replace")
    unique = found.get(b"UNIQ_KEY")
    keys = split_keys(found.get(b"KEYS"))
    return found.get(b"TAGS"), [unique, *keys] if unique else keys
