"""Damaged records of a log: they have no row, since nothing in them is verified.

Most of a damaged record's bytes are probably right: one of them changed. They serve to say whom the
damage may concern, and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Self

import numpy as np

from eruca.contract.properties import UNIQ_KEY
from eruca.contract.records import DamagedRecordError, decode_record
from eruca.core.messages.log_block import LogBlock
from eruca_query.core.block_columns import BlockColumns

TOLD_MAX: Final = 8  # damaged records of one broker that one answer names
_WRONG_PLACE: Final = "it names another place as its own"


@dataclass(frozen=True, slots=True)
class DamagedRecord:
    """A damaged record: its place in the log, its fault, and its readable parts."""

    log_offset: int
    size: int
    fault: str
    after_ms: int  # store time of the record before it; 0: unknown
    before_ms: int | None  # … of the record after it; None: unknown
    topic: str | None = None  # None: its bytes name no topic
    queue_id: int | None = None
    queue_offset: int | None = None
    unique_id: str | None = None

    @classmethod
    def of(cls, log_offset: int, raw: bytes, *, after_ms: int, before_ms: int | None) -> Self:
        """Describe a record that the broker found damaged."""
        fault = _WRONG_PLACE  # the only fault left if the parser finds none
        try:
            decode_record(raw)
        except DamagedRecordError as error:
            fault = str(error)
        try:
            says = decode_record(raw, check_crc=False)
        except DamagedRecordError:
            return cls(log_offset, len(raw), fault, after_ms, before_ms)
        return cls(
            log_offset,
            len(raw),
            fault,
            after_ms,
            before_ms,
            topic=says.topic,
            queue_id=says.queue_id,
            queue_offset=says.queue_offset,
            unique_id=says.property_map().get(UNIQ_KEY),
        )

    def lies_between(self, from_ms: int, to_ms: int) -> bool:
        """Tell whether it may have been stored in a span of time, both ends included."""
        return self.after_ms <= to_ms and (self.before_ms is None or self.before_ms >= from_ms)

    def __str__(self) -> str:
        text = f"log offset {self.log_offset} ({self.fault}"
        if self.topic is not None:
            text += f"; its bytes say {self.topic}/{self.queue_id}@{self.queue_offset}"
        return text + ")"


def damaged_of(block: LogBlock, columns: BlockColumns) -> list[DamagedRecord]:
    """Return the damaged records of *block*; *columns* holds its valid ones."""
    offsets, times = columns.columns.log_offsets, columns.columns.store_timestamps
    found = []
    for log_offset, raw in sorted(block.damaged.items()):
        row = int(np.searchsorted(offsets, log_offset))
        found.append(
            DamagedRecord.of(
                log_offset,
                raw,
                after_ms=int(times[row - 1]) if row else 0,
                before_ms=int(times[row]) if row < len(times) else None,
            )
        )
    return found


def told(damaged: Iterable[DamagedRecord]) -> str:
    """Return a sentence that names damaged records of one broker; expects at least one."""
    all_ = [*damaged]
    more = f" and {len(all_) - TOLD_MAX} more" if len(all_) > TOLD_MAX else ""
    count = "a damaged record is" if len(all_) == 1 else f"{len(all_)} damaged records are"
    return f"{count} missing from all answers: {', '.join(map(str, all_[:TOLD_MAX]))}{more}"
