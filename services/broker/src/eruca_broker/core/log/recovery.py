"""Find the records in a stretch of log, its end, and the reason for its end.

Two results must never be confused. A *torn tail* consists of bytes behind the last valid record
that were promised to nobody: it is truncated. *Damage* is a durable record that can no longer be
read. Truncating there would lose acknowledged messages, so recovery refuses and leaves the files
unchanged. :func:`walk` only reports where and why it stopped; the store knows which of the two it
is.

A valid record has a known magic, a size that fits, and parts that add up to it. Its topic is
possible, its queue and offset are not negative, and it names its own log offset. Its checksum must
match or, if RocketMQ wrote it without one, its body's CRC. A torn write, a hole of zeros, and stale
bytes from before an earlier crash each fail one of these checks. One torn record might pass: a
record that lacks nothing but the end of its properties, its checksum among them. It has zeros
there, of which the file was made. So a record behind the flushed part that ends in a zero byte is
torn.

Source: RocketMQ 5.3, ``CommitLog.recoverAbnormally``, ``checkMessageAndReturnSize``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from eruca.contract.names import NAME_PATTERN
from eruca.contract.records import MAGIC_V1, MAGIC_V2, RECORD_SIZE_MIN
from eruca.core.messages.record_chain import RECORD_HEAD, chain
from eruca.core.messages.record_columns import (
    LogBuffer,
    RecordColumns,
    TopicColumn,
    read_columns,
    sound_structure,
)
from eruca_broker.core.records.stored_proof import proved_rows

RECORDS_PER_STEP: Final = 32_768  # examined together; bounds the arrays
MAX_OFFSET: Final = 2**63 - 1

_NO_TOPICS: Final = TopicColumn([], np.zeros(0, np.int64))
_LEGAL_TOPIC: Final = re.compile(NAME_PATTERN)


@dataclass(frozen=True, slots=True)
class Step:
    """Consecutive valid records."""

    columns: RecordColumns | None  # None: no record in this step
    topics: TopicColumn  # the records'
    end: int  # behind the last of them, counted from the start of the buffer
    is_full: bool  # a blank record follows: the log continues in the next segment
    fault: str | None  # the fault of the record at ``end``; None: more to read, or the end


def walk(
    buffer: LogBuffer, start: int, base_offset: int, *, durable_offset: int = MAX_OFFSET
) -> Iterator[Step]:
    """Yield the valid records of a segment from *start* on; the last step says why it ends.

    Args:
        buffer: The whole segment.
        start: The beginning of a record, counted from the segment's start.
        base_offset: Log offset of the segment's first byte.
        durable_offset: Log offset behind which a record may be torn.
    """
    position = start
    while True:
        starts, stop, is_full, fault = chain(buffer, position, count_max=RECORDS_PER_STEP)
        columns, topics = None, _NO_TOPICS
        end = stop
        if starts:
            columns = read_columns(buffer, np.array(starts, np.int64))
            topics = TopicColumn.of(columns)
            sound = _sound(columns, topics, base_offset, durable_offset)
            if not sound.all():
                first_bad = int(np.argmin(sound))
                end = starts[first_bad]
                is_full, fault = False, "its parts, its place or its CRC are wrong"
                columns, topics = None, _NO_TOPICS
                if first_bad:
                    columns = read_columns(buffer, np.array(starts[:first_bad], np.int64))
                    topics = TopicColumn.of(columns)
        finished = is_full or fault is not None or len(starts) < RECORDS_PER_STEP
        yield Step(columns, topics, end, is_full, fault)
        if finished:
            return
        position = stop


def is_legal_topic(name: str) -> bool:
    """Tell whether a topic can have this name."""
    return _LEGAL_TOPIC.fullmatch(name) is not None


def goes_on_behind(rest: LogBuffer) -> bool:
    """Tell whether there is anything behind the invalid record at the beginning of *rest*.

    A process that is killed while it writes leaves a part of one record, and zeros behind it: what
    it wrote before is whole, and it had written nothing later. So a record with anything behind it
    was whole once, and so may be the records behind it.
    """
    size, magic = RECORD_HEAD.unpack_from(rest) if len(rest) >= RECORD_HEAD.size else (0, 0)
    is_record = magic in (MAGIC_V1, MAGIC_V2) and RECORD_SIZE_MIN <= size <= len(rest)
    behind = np.frombuffer(rest, np.uint8)[size if is_record else RECORD_HEAD.size :]
    return bool(behind.any())


def _sound(
    columns: RecordColumns, topics: TopicColumn, base_offset: int, durable_offset: int
) -> NDArray[np.bool_]:
    ends = columns.starts + columns.sizes
    last_bytes = np.frombuffer(columns.buffer, np.uint8)[ends - 1]
    is_durable = ends + base_offset <= durable_offset
    is_legal = np.array([is_legal_topic(name) for name in topics.names])
    sound: NDArray[np.bool_] = (
        sound_structure(columns)
        & (columns.log_offsets == columns.starts + base_offset)
        & ((columns.queue_ids | columns.queue_offsets) >= 0)
        & ((last_bytes != 0) | (columns.properties_sizes == 0) | is_durable)
        & is_legal[topics.numbers]
    )
    sound &= proved_rows(columns.buffer, columns.starts, columns.sizes)
    return sound
