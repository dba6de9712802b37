"""The result of a read of one queue."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field

from eruca.contract.records import Record, decode_record
from eruca.contract.wire import PullStatus
from eruca_broker.core.damage import Damage


@dataclass(slots=True)
class QueueRead:
    """The result of a pull of one queue."""

    status: PullStatus
    next_offset: int
    min_offset: int
    max_offset: int
    sizes: bytes = b""  # u32 big-endian per record, as on the wire
    slices: list[memoryview] = field(default_factory=list)  # the records, in order
    size: int = 0  # bytes of all slices
    copied_size: int = 0  # of them in memory of their own, and not in the log's mapping
    scan_work: int = 0  # the cost of a filter over properties; see store.property_scan
    damage: Damage | None = None  # of the message before ``next_offset``; it is returned alone

    @property
    def count(self) -> int:
        """Number of messages."""
        return len(self.sizes) // 4

    def records(self) -> Iterator[Record]:
        """Yield the decoded messages, for callers that do not pass on their bytes."""
        for raw in self.raws():
            yield decode_record(raw, check_crc=False)  # they have been verified

    def raws(self) -> Iterator[memoryview]:
        """Yield the messages' records one by one, as they are in the log."""
        sizes = struct.iter_unpack(">I", self.sizes)
        for piece in self.slices:
            position = 0
            while position < len(piece):
                end = position + next(sizes)[0]
                yield piece[position:end]
                position = end
