"""Read a store's files with the contract's codec alone, without a broker of either side.

Every record must encode to the bytes from which it was decoded, and be at the place given by
itself, by the consume queues and by the key index. This holds for stores of both sides.

Source: RocketMQ 5.3, ``ConsumeQueue``, ``IndexFile``.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from eruca.contract import properties as names
from eruca.contract.hashing import key_hash, tags_code
from eruca.contract.message_ids import encode_offset_id
from eruca.contract.names import SCHEDULE_TOPIC, TIMER_TOPIC
from eruca.contract.properties import split_keys
from eruca.contract.records import (
    COMPRESSION_MASK,
    MAGIC_BLANK,
    Record,
    SysFlag,
    decode_record,
    encode_record,
    layout_of,
)
from interop.messages import Message, message_of_record

_ENTRY: Final = struct.Struct(">qiq")
_INDEX_HEADER_SIZE: Final = 40
_INDEX_ENTRY: Final = struct.Struct(">iqii")
_FILLER_SIZE: Final = 0x7FFF_FFFF  # size in entries for offsets that were never written

TIMED_TOPICS: Final = (SCHEDULE_TOPIC, TIMER_TOPIC)  # codes in their queues are delivery times

QueueEntry = tuple[int, int, int]  # log offset, size, tags code


class UnsoundStoreError(Exception):
    """The files do not agree with one another."""


@dataclass(frozen=True, slots=True)
class Log:
    """The records of a commit log, in order."""

    records: list[Record]
    segments: int
    blanks: int

    def messages(self, topic: str) -> list[Message]:
        """Return the messages that a consumer of *topic* must get."""
        return [
            message_in_log(record)
            for record in self.records
            if record.topic == topic and is_dispatched(record)
        ]


def message_in_log(record: Record) -> Message:
    """Return the message that a record holds."""
    offset_id = encode_offset_id(record.store_host, record.log_offset)
    return message_of_record(record, plain_body(record), offset_id)


def read_log(store: Path) -> Log:
    """Return every record of a store.

    Raises:
        UnsoundStoreError: A record has another offset, or encodes to other bytes.
    """
    records: list[Record] = []
    blanks = 0
    paths = sorted((store / "commitlog").iterdir())
    for path in paths:
        found, has_blank = _read_segment(path)
        records += found
        blanks += has_blank
    return Log(records, len(paths), blanks)


def log_bytes(store: Path) -> bytes:
    """Return a store's log as one piece: all of it up to the end of its last record.

    Raises:
        UnsoundStoreError: As for :func:`read_log`.
    """
    last = read_log(store).records[-1]
    paths = sorted((store / "commitlog").iterdir())
    data = b"".join(path.read_bytes() for path in paths)
    return data[: last.log_offset + last.size - int(paths[0].name)]


def is_dispatched(record: Record) -> bool:
    """Return whether consume queues list the record; undecided and rolled-back ones are omitted."""
    return record.sys_flag & SysFlag.ROLLBACK in (0, SysFlag.COMMIT)


def plain_body(record: Record) -> bytes:
    """Return a record's body as it was sent, decompressed."""
    if not record.sys_flag & SysFlag.COMPRESSED:
        return record.body
    if record.sys_flag & COMPRESSION_MASK not in (0, SysFlag.COMPRESSION_ZLIB):
        raise UnsoundStoreError(f"the record at {record.log_offset} is not compressed with zlib")
    return zlib.decompress(record.body)


def read_queues(store: Path) -> dict[tuple[str, int], dict[int, QueueEntry]]:
    """Return the consume queues: entry by queue offset."""
    queues: dict[tuple[str, int], dict[int, QueueEntry]] = {}
    for path in sorted((store / "consumequeue").glob("*/*/*")):
        queue = queues.setdefault((path.parent.parent.name, int(path.parent.name)), {})
        first = int(path.name) // _ENTRY.size
        for index, entry in enumerate(_ENTRY.iter_unpack(path.read_bytes())):
            if 0 < entry[1] < _FILLER_SIZE:
                queue[first + index] = entry
    return queues


def expected_queues(log: Log) -> dict[tuple[str, int], dict[int, QueueEntry]]:
    """Compute the expected consume queues from the log alone."""
    queues: dict[tuple[str, int], dict[int, QueueEntry]] = defaultdict(dict)
    for record in log.records:
        if is_dispatched(record) and record.topic not in TIMED_TOPICS:
            tag = record.property_map().get(names.TAGS)
            code = tags_code(tag) if tag else 0
            entry = (record.log_offset, record.size, code)
            queues[record.topic, record.queue_id][record.queue_offset] = entry
    return dict(queues)


def expected_keys(log: Log) -> dict[tuple[str, str], set[int]]:
    """Return the expected log offsets of each topic's keys and unique ids."""
    expected: dict[tuple[str, str], set[int]] = defaultdict(set)
    for record in log.records:
        if record.sys_flag & SysFlag.ROLLBACK == SysFlag.ROLLBACK:
            continue
        properties = record.property_map()
        for key in (properties.get(names.UNIQ_KEY), *split_keys(properties.get(names.KEYS))):
            if key:
                expected[record.topic, key].add(record.log_offset)
    return expected


class KeyIndex:
    """The key index files of a store, as readers walk them."""

    def __init__(self, store: Path, slot_count: int) -> None:
        self._slot_count = slot_count
        self._files = [path.read_bytes() for path in sorted((store / "index").iterdir())]

    def __len__(self) -> int:
        return len(self._files)

    def find(self, topic: str, key: str) -> set[int]:
        """Return the log offsets under the key's hash, including those of colliding keys."""
        wanted = key_hash(topic, key)
        return {offset for data in self._files for offset in self._chain(data, wanted)}

    def _chain(self, data: bytes, wanted: int) -> Iterator[int]:
        slot = _INDEX_HEADER_SIZE + 4 * (wanted % self._slot_count)
        (index,) = struct.unpack_from(">i", data, slot)
        entries = _INDEX_HEADER_SIZE + 4 * self._slot_count
        while index > 0:
            place = entries + _INDEX_ENTRY.size * index
            found, offset, _, previous = _INDEX_ENTRY.unpack_from(data, place)
            if found == wanted:
                yield offset
            if previous == index:
                raise UnsoundStoreError(f"entry {index} of the key index leads to itself")
            index = previous


def _read_segment(path: Path) -> tuple[list[Record], bool]:
    data = memoryview(path.read_bytes())
    base = int(path.name)
    records: list[Record] = []
    position = 0
    while position < len(data):
        size, magic = struct.unpack_from(">iI", data, position)
        if size == 0:
            return records, False
        if magic == MAGIC_BLANK:
            if size != len(data) - position:
                raise UnsoundStoreError(f"the blank at {base + position} has a size of {size}")
            return records, True
        record = decode_record(data, position)
        if encode_record(record) != data[position : position + record.size]:
            raise UnsoundStoreError(f"the record at {base + position} encodes to other bytes")
        if record.log_offset != base + position:
            raise UnsoundStoreError(
                f"expected log offset {base + position} in the record, found {record.log_offset}"
            )
        records.append(record)
        position += record.size
    raise UnsoundStoreError(f"{path.name} ends without a blank record")


def delete_first_segment(store: Path) -> int:
    """Delete the files that retention deletes with a log's first segment; return its new beginning.

    A consume queue loses the files whose last entry is before that, but never its last file.
    """
    first, second, *_ = sorted((store / "commitlog").iterdir())
    first.unlink()
    begin = int(second.name)
    for queue in (store / "consumequeue").glob("*/*"):
        for path in sorted(queue.iterdir())[:-1]:
            data = path.read_bytes()
            last = _ENTRY.unpack_from(data, len(data) - _ENTRY.size)
            if last[0] < begin:
                path.unlink()
    return begin


def damage_last_record(store: Path) -> int:
    """Change a byte of the last record, as if half of it had reached the disk; return its offset.

    The record has a body, so that its checksum detects the change.
    """
    last = next(record for record in reversed(read_log(store).records) if record.body)
    segments = sorted((store / "commitlog").iterdir())
    path = next(path for path in reversed(segments) if int(path.name) <= last.log_offset)
    with path.open("rb+") as file:
        file.seek(last.log_offset - int(path.name) + layout_of(last.sys_flag).body)
        first = file.read(1)
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([first[0] ^ 0xFF]))
    return last.log_offset
