"""Look up keys in one file of the key index: yield records that may have a key, newest first.

A slot of the file leads to the newest entry of its keys, and each entry to the next older one.

Damage rule: a full file may rot on the disk while it is used. If a slot's chain is broken, the
entries themselves are searched instead, which takes longer and finds the same.

Source: RocketMQ 5.3, ``IndexFile.selectPhyOffset``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np

from eruca_broker.core.index.layout import ENTRY, ENTRY_DTYPE, ENTRY_SIZE, IndexEntry
from eruca_broker.core.offset_search import partition_point
from eruca_broker.store.index.index_file import IndexFile

_BLOCK_COUNT: Final = 204  # entries read with a requested one: 4 KiB cost hardly more than 20 B
_SEARCH_COUNT: Final = 1 << 18  # entries searched at a time if the chain is broken: 5 MiB
_PASSED_COUNT: Final = 2_048  # entries of a chain whose walk costs as much as searching a stretch


class _Searched(NamedTuple):
    """A stretch of a file's entries, and those of them that have a hash."""

    first: int  # number of the first one
    block: bytes  # the entries
    rows: list[int]  # the positions of those entries in the stretch, newest first


def select(file: IndexFile, key_hash: int, count: int, begin: int, end: int) -> list[int]:
    """Return up to *count* log offsets by RocketMQ's rule, newest first.

    The time of an entry is the file's beginning plus whole seconds; the search ends at the first
    entry of the slot that is older than *begin*.
    """
    found: list[int] = []
    if count <= 0:
        return found
    for _, entry in _walk(file, key_hash, file.header.index_count):
        stored_at = file.header.begin_timestamp + entry.seconds * 1000
        if entry.key_hash == key_hash and begin <= stored_at <= end:
            found.append(entry.log_offset)
        if stored_at < begin or len(found) == count:
            break
    return found


def candidates(file: IndexFile, key_hash: int, begin: int, end: int) -> Iterator[int]:
    """Yield the log offset of every record that may have the key, newest first.

    All records stored from *begin* to *end* are included. Other records may be, too: the index
    holds only hashes, and times to the second, of its first entry not even that.
    """
    for number, entry in _walk(file, key_hash, _end_of(file, end)):
        stored_from = file.header.begin_timestamp + entry.seconds * 1000
        if number > 1 and stored_from + 999 < begin:
            return
        if entry.key_hash == key_hash and (number == 1 or stored_from <= end):
            yield entry.log_offset


def _end_of(file: IndexFile, time: int) -> int:
    """Return the number after the last entry stored at or before *time*, to the second."""
    header = file.header
    if header.end_timestamp <= time:
        return header.index_count
    seconds = (time - header.begin_timestamp) // 1000
    return partition_point(
        2, header.index_count, lambda number: file.entry(number).seconds <= seconds
    )


def _walk(file: IndexFile, key_hash: int, end: int) -> Iterator[tuple[int, IndexEntry]]:
    """Yield number and entry of all entries before *end* with the hash, newest first.

    Other entries of the slot may be included.

    The slot's chain leads to *end* only through all newer entries, which may be many. So following
    it alternates with a search, from *end* on down, for the newest entry that has the hash. The
    first of the two to arrive ends both, so the cost is at most twice that of the cheaper one.
    """
    slot = key_hash % file.hash_slots
    number, newer = file.newest(slot), file.header.index_count
    passed, searched = 0, _blocks_with(file, key_hash, end)
    low = high = 0
    block = b""
    while number:
        entry = None
        if 0 < number < newer:
            if not low <= number < high:
                low, high = max(number - _BLOCK_COUNT + 1, 0), number + 1
                block = file.read(low, high - low)
            entry = IndexEntry(*ENTRY.unpack_from(block, (number - low) * ENTRY_SIZE))
        if entry is None or entry.key_hash % file.hash_slots != slot:
            file.note_damage(f"in slot {slot}, entry {newer} is followed by {number}")
            yield from _search(file, key_hash, min(newer, end))
            return
        number, newer = entry.previous, number
        if newer < end:
            yield newer, entry
            continue
        passed += 1
        if passed % _PASSED_COUNT == 0:
            found = next(searched)
            if found.rows:
                number, newer = found.first + found.rows[0], end
            elif found.first == 1:  # no entry has the hash
                return


def _search(file: IndexFile, key_hash: int, end: int) -> Iterator[tuple[int, IndexEntry]]:
    """Yield number and entry of all entries before *end* with that hash, newest first."""
    for first, block, rows in _blocks_with(file, key_hash, end):
        for row in rows:
            yield first + row, IndexEntry(*ENTRY.unpack_from(block, row * ENTRY_SIZE))


def _blocks_with(file: IndexFile, key_hash: int, end: int) -> Iterator[_Searched]:
    """Yield stretches of the entries before *end*, the newest first."""
    for last in range(end, 1, -_SEARCH_COUNT):
        first = max(last - _SEARCH_COUNT, 1)
        block = file.read(first, last - first)
        hashes = np.frombuffer(block, ENTRY_DTYPE)["key_hash"]
        yield _Searched(first, block, np.flatnonzero(hashes == key_hash)[::-1].tolist())
