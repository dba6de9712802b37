"""Find groups of records (:mod:`eruca_broker.core.state.record_groups`) in the log."""

from __future__ import annotations

from typing import Final, NamedTuple

from eruca.contract.hashing import tags_code
from eruca.contract.names import EVENTS_TOPIC
from eruca.contract.records import decode_record
from eruca_broker.core.state.events import EVENTS_QUEUE_ID, decode_event
from eruca_broker.core.state.record_groups import GROUP_HEADS
from eruca_broker.store.config.delay_offsets import first_since
from eruca_broker.store.log.commit_log import CommitLog
from eruca_broker.store.queues.consume_queues import ConsumeQueues

_GROUP_CODES: Final = {tags_code(str(head.__struct_config__.tag)) for head in GROUP_HEADS}


class GroupExtent(NamedTuple):
    """The log offsets of a group, its head included."""

    begin: int
    end: int  # after its last record


def group_across(log: CommitLog, queues: ConsumeQueues, log_offset: int) -> GroupExtent | None:
    """Return the group that begins before *log_offset* and ends after it; None if there is none.

    A group contains no event but its head, which is therefore the last event before *log_offset*.
    """
    queue = queues.existing(EVENTS_TOPIC, EVENTS_QUEUE_ID)
    if queue is None or (following := first_since(queue, log_offset)) == queue.min_offset:
        return None
    last = queue.entry(following - 1)
    if last.tags_code not in _GROUP_CODES:
        return None
    [segment] = log.segments_between(last.log_offset, last.log_end)
    start = last.log_offset - segment.base_offset
    segment.mapped.need(start, start + last.size)
    record = decode_record(memoryview(segment.buffer), start)
    head = decode_event(record.body)
    assert isinstance(head, GROUP_HEADS)
    group = GroupExtent(last.log_offset, last.log_end + head.group_size)
    return group if group.end > log_offset else None
