"""Blocks: consecutive messages of one queue, as a broker's answer to a pull contains them.

:mod:`eruca.contract.wire` describes the layout. Unlike the decoder there, this one keeps the sizes
as an array, for thousands of messages at a time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from eruca.contract.exports import ExportRange
from eruca.contract.wire import PULL_MAGIC, PULL_PREAMBLE, MalformedRecordsError, PullStatus
from eruca.rows.record_fields import Int64Array

_STATUSES: Final = tuple(PullStatus)


@dataclass(frozen=True, slots=True)
class Block:
    """Messages of one queue from an offset on; at least one."""

    broker_name: str
    queue_id: int
    from_offset: int
    sizes: Int64Array  # bytes of each record
    records: memoryview  # back to back

    def first(self, count: int) -> ExportRange:
        """Return the range of its first *count* messages."""
        return ExportRange(
            broker_name=self.broker_name,
            queue_id=self.queue_id,
            from_offset=self.from_offset,
            to_offset=self.from_offset + count,
        )


class PulledBlock(NamedTuple):
    """The result of a pull of one queue."""

    status: PullStatus
    min_offset: int  # of the queue
    max_offset: int
    sizes: Int64Array
    records: memoryview  # if a message is damaged: a text that describes the fault

    @property
    def damage(self) -> str:
        """The place and the fault of the message to which the status ``damaged`` refers."""
        assert self.status is PullStatus.DAMAGED
        return str(self.records, "utf-8", "replace")


def decode_block(body: bytes) -> PulledBlock:
    """Decode the answer to a pull of one queue.

    Raises:
        MalformedRecordsError: *body* is truncated, or not such an answer.
    """
    if len(body) < PULL_PREAMBLE.size:
        raise MalformedRecordsError(f"{len(body)} bytes are too few for a pull's preamble")
    magic, count, size, status, _, lowest, highest = PULL_PREAMBLE.unpack_from(body)
    start = PULL_PREAMBLE.size + 4 * count
    if magic != PULL_MAGIC or status >= len(_STATUSES) or start + size != len(body):
        raise MalformedRecordsError("the body is not a complete pull")
    sizes = np.frombuffer(body, ">u4", count, PULL_PREAMBLE.size).astype(np.int64)
    if int(sizes.sum()) != size and _STATUSES[status] is not PullStatus.DAMAGED:
        raise MalformedRecordsError("the sizes do not add up to the records")
    return PulledBlock(_STATUSES[status], lowest, highest, sizes, memoryview(body)[start:])
