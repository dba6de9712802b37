"""The end of a broker's log that the read model has not reached: searched as raw bytes.

A search first looks for its value in the bytes, which costs almost nothing. Only a block that
contains the value is parsed into records.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from eruca.contract.records import DamagedRecordError, Host
from eruca.core.messages.log_block import LogBlock
from eruca.core.messages.record_columns import Int64Array
from eruca_query.core.block_columns import BlockColumns
from eruca_query.core.damaged_records import DamagedRecord, damaged_of
from eruca_query.core.found_messages import FoundMessage
from eruca_query.core.group_facts import GroupFact, TopicGone
from eruca_query.core.life_events import LifeEvent
from eruca_query.core.log_facts import ROWLESS_TOPICS, BlockFacts, facts_of
from eruca_query.core.property_values import PropertyValues, find_values

_DELETION: Final = b"topic_deleted"
_NO_ROWS: Final[Int64Array] = np.zeros(0, np.int64)


@dataclass(slots=True)
class LogTail:
    """A stretch of one broker's log up to its end, or as far as it was read."""

    block: LogBlock
    _columns: BlockColumns | None = field(default=None, init=False)
    _values: PropertyValues | None = field(default=None, init=False)
    _facts: BlockFacts | None = field(default=None, init=False)
    damage: str | None = field(default=None, init=False)  # why records could not be parsed

    def damaged(self) -> list[DamagedRecord]:
        """Return the records in it that the broker found damaged."""
        return damaged_of(self.block, self._read()[0]) if self.block.damaged else []

    @property
    def is_whole(self) -> bool:
        """True if it reaches the log's end."""
        return self.block.next_offset >= self.block.end_offset

    def holds(self, text: bytes) -> bool:
        """Tell whether *text* occurs anywhere in it."""
        return text in self.block.data

    def messages(
        self, *, topic: str | None = None, containing: bytes = b""
    ) -> Iterator[FoundMessage]:
        """Yield messages, the newest first.

        Args:
            topic: Only of this topic.
            containing: Only those somewhere in whose records these bytes occur.
        """
        if not self.holds(containing):
            return
        columns, values = self._read()
        wanted = np.array(
            [
                name == topic if topic else name not in ROWLESS_TOPICS
                for name in columns.topics.names
            ],
            np.bool_,
        )
        rows = np.flatnonzero(wanted[columns.topics.numbers]) if len(columns) else _NO_ROWS
        if containing:
            rows = np.intersect1d(rows, self._rows_containing(containing, columns))
        for row in rows[::-1].tolist():
            yield self._message(columns, values, row)

    def events(self) -> list[LifeEvent]:
        """Return the life events in it."""
        return self._told().events

    def group_facts(self) -> list[GroupFact]:
        """Return the facts about groups and topics in it."""
        return self._told().groups

    def end_of_topic(self, topic: str) -> int | None:
        """Return the log offset at which *topic* was last deleted; None if it was not."""
        if not (self.holds(_DELETION) and self.holds(topic.encode())):
            return None
        ends = [
            fact.log_offset
            for fact in self.group_facts()
            if isinstance(fact, TopicGone) and fact.topic == topic
        ]
        return max(ends, default=None)

    def _rows_containing(self, text: bytes, columns: BlockColumns) -> Int64Array:
        """Return the records that contain *text*; only the first match in each counts."""
        starts = columns.columns.starts
        rows, at = [], self.block.data.find(text)
        while at >= 0:
            row = int(np.searchsorted(starts, at, side="right")) - 1
            rows.append(row)
            at = self.block.data.find(text, int(starts[row + 1])) if row + 1 < len(starts) else -1
        return np.array(rows, np.int64)

    def _told(self) -> BlockFacts:
        if self._facts is None:
            self._facts = facts_of(self._read()[0])
        return self._facts

    def _read(self) -> tuple[BlockColumns, PropertyValues]:
        if self._columns is None or self._values is None:
            try:
                self._columns = BlockColumns.of(self.block.data)
            except DamagedRecordError as error:
                self.damage = str(error)
                self._columns = BlockColumns.of(b"")
            of_records = self._columns.columns
            self._values = find_values(
                self._columns.data,
                of_records.properties_starts,
                of_records.properties_sizes,
            )
        return self._columns, self._values

    def _message(self, columns: BlockColumns, values: PropertyValues, row: int) -> FoundMessage:
        fields = columns.columns
        unique_id = values.unique_ids.value(row)
        return FoundMessage(
            broker_name=self.block.broker_name,
            store_host=Host(*columns.store_host(row)),
            log_offset=int(fields.log_offsets[row]),
            topic=columns.topics.names[int(columns.topics.numbers[row])],
            queue_id=int(fields.queue_ids[row]),
            queue_offset=int(fields.queue_offsets[row]),
            stored_ms=int(fields.store_timestamps[row]),
            born_ms=int(columns.born_timestamps[row]),
            size=int(fields.sizes[row]),
            unique_id=unique_id.decode("utf-8", "replace") if unique_id else None,
            tag=values.tags.value(row),
            keys=values.keys.value(row),
        )
