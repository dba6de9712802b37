"""Find the end of a run in bytes of the log: whole records, and no group of records divided.

The master knows its runs by its queues. A replica that reads the log elsewhere has only its bytes.
"""

from __future__ import annotations

import numpy as np

from eruca.contract.names import EVENTS_TOPIC
from eruca.core.messages.record_chain import chain
from eruca.core.messages.record_columns import TopicColumn, read_columns
from eruca_broker.core.log.copied_run import RefusedRunError
from eruca_broker.core.state.events import UnknownEventError, decode_event
from eruca_broker.core.state.record_groups import GROUP_HEADS

_COUNT_MAX = 1 << 31


def run_size(buffer: bytearray, *, room: int, segment_bytes: int) -> int:
    """Return the size of the longest run at the beginning of *buffer*; 0: it holds none yet.

    A run ends after a record, and never after a blank one (:mod:`.copied_run`).

    Args:
        buffer: Bytes of the log, whose digests are verified. They begin with a record, or with the
            blank record of a segment's end.
        room: Bytes from there to the end of the segment.
        segment_bytes: Bytes of each later segment.

    Raises:
        RefusedRunError: No record is where one should be.
    """
    starts: list[int] = []
    position, end = 0, room
    while position < len(buffer):
        found = chain(buffer, position, count_max=_COUNT_MAX, end=end)
        if found.fault is not None:
            raise RefusedRunError(f"byte {found.stop} of a run: {found.fault}")
        starts += found.starts
        if not found.is_full:
            break
        position, end = end, end + segment_bytes
    if not starts:
        return 0
    columns = read_columns(buffer, np.array(starts, np.int64))
    ends = columns.starts + columns.sizes
    count = len(starts)
    events = np.flatnonzero(TopicColumn.of(columns).rows_of(EVENTS_TOPIC))
    if len(events):
        row = int(events[-1])  # a group has no event but its head
        begin = int(columns.body_starts[row])
        body = bytes(memoryview(buffer)[begin : begin + int(columns.body_sizes[row])])
        try:
            event = decode_event(body)
        except UnknownEventError as error:
            raise RefusedRunError(str(error)) from error
        if isinstance(event, GROUP_HEADS) and int(ends[row]) + event.group_size > int(ends[-1]):
            count = row
    return int(ends[count - 1]) if count else 0
