"""A log that no broker holds: any number of messages, generated block by block.

All records have the same size. So a block is a copy of a template, into which numpy writes the
fields that differ: offsets, times, the digits of the unique id and of the key.
"""

from __future__ import annotations

import time
from typing import Final

import numpy as np
from numpy.typing import NDArray

from eruca.contract.properties import KEYS, TAGS, UNIQ_KEY, encode_properties
from eruca.contract.records import Host, Record, RecordLayout, encode_record
from eruca.core.messages.log_block import LogBlock

BROKER: Final = "generated"
BLOCK_ROWS: Final = 15_000  # about four MiB: one read of a query service
PER_MS: Final = 100  # messages that are stored in a millisecond
_QUEUES: Final = 4
_STORE_TIME: Final = 56  # in a record, after the address of its producer
_ID_HEAD: Final = "7F00000100002A9F"
_DIGITS: Final = np.frombuffer(b"0123456789ABCDEF", np.uint8)
_MIX: Final = np.uint64(0x9E37_79B9_7F4A_7C15)  # odd: different numbers stay different


class GeneratedLog:
    """The log of a broker with *count* messages of one topic, the last of them stored now."""

    def __init__(self, topic: str, count: int) -> None:
        self.count = count
        self.begin_ms = time.time_ns() // 1_000_000 - count // PER_MS
        record = encode_record(
            Record(
                topic,
                b"x" * 100,
                store_host=Host.parse("127.0.0.1", 10_911),
                properties=encode_properties(
                    {UNIQ_KEY: _ID_HEAD + "0" * 16, KEYS: "key-" + "0" * 16, TAGS: "AA"}
                ),
            )
        )
        self.record_size = len(record)
        self._id_at = record.index(_ID_HEAD.encode()) + len(_ID_HEAD)
        self._key_at = record.index(b"key-") + len("key-")
        self._template = np.tile(np.frombuffer(record, np.uint8), (BLOCK_ROWS, 1))

    @property
    def end_offset(self) -> int:
        """The end of the log."""
        return self.count * self.record_size

    def block(self, first: int) -> LogBlock:
        """Return the block that begins with the message of number *first*."""
        numbers = np.arange(first, min(first + BLOCK_ROWS, self.count), dtype=np.int64)
        rows = self._template[: len(numbers)].copy()
        times = self.begin_ms + numbers // PER_MS
        _put(rows, RecordLayout.QUEUE_ID, ">i4", numbers % _QUEUES)
        _put(rows, RecordLayout.QUEUE_OFFSET, ">i8", numbers // _QUEUES)
        _put(rows, RecordLayout.LOG_OFFSET, ">i8", numbers * self.record_size)
        _put(rows, RecordLayout.BORN_TIMESTAMP, ">i8", times)
        _put(rows, _STORE_TIME, ">i8", times)
        rows[:, self._id_at : self._id_at + 16] = _digits(numbers.astype(np.uint64))
        rows[:, self._key_at : self._key_at + 16] = _digits(numbers.astype(np.uint64) * _MIX)
        return LogBlock(
            BROKER,
            from_offset=first * self.record_size,
            next_offset=(first + len(numbers)) * self.record_size,
            end_offset=self.end_offset,
            data=rows.tobytes(),
        )

    def message_id(self, number: int) -> str:
        """Return the unique id of the message of a number."""
        return f"{_ID_HEAD}{number:016X}"

    def key(self, number: int) -> str:
        """Return its key."""
        return f"key-{number * int(_MIX) % 2**64:016X}"


def _put(rows: NDArray[np.uint8], at: int, dtype: str, values: NDArray[np.int64]) -> None:
    field = values.astype(dtype)
    rows[:, at : at + field.itemsize] = field.view(np.uint8).reshape(len(rows), field.itemsize)


def _digits(numbers: NDArray[np.uint64]) -> NDArray[np.uint8]:
    """Return 16 hexadecimal digits of each number."""
    shifts = np.arange(60, -1, -4, dtype=np.uint64)
    return _DIGITS[((numbers[:, None] >> shifts) & np.uint64(15)).astype(np.uint8)]
