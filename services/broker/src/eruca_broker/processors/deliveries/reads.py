"""Reading for deliveries: what lies ahead in a queue, one message, and sharding keys.

Looking ahead is bounded in entries and in messages, since a filter may let nothing through; who
found nothing then asks again from where it ended.

A message that has been damaged on the disk is handed out as it is, or passed over where it cannot
be read, as a pull in JSON does: it must not hold up those behind it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

import structlog

from eruca.contract.properties import SHARDING_KEY, TAGS
from eruca.contract.records import DamagedRecordError, Record, decode_record
from eruca.contract.wire import PullStatus
from eruca_broker.core.consuming.lease_choice import Ahead
from eruca_broker.core.consuming.message_filter import MessageFilter
from eruca_broker.core.state.group_state import Queue
from eruca_broker.store.message_store import MessageStore

READ_COUNT: Final = 128  # messages read at a time; in ordered groups as many may be overtaken
READ_SIZE: Final = 1024 * 1024  # bytes read at a time; the first message comes all the same
READS_MAX: Final = 8  # of one look ahead: some 130 000 entries by tag, or 1 024 messages
_CACHED_QUEUES_MAX: Final = 1_024  # queues whose unfinished messages' sharding keys are known

_log = structlog.get_logger()


class LookAhead(NamedTuple):
    """What lies ahead."""

    ahead: Ahead
    records: dict[int, Record]  # by offset, of the messages let through
    is_complete: bool  # something was found, or the queue's end reached


class DeliveryReader:
    """Reads queues for deliveries."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store
        self._keys: dict[tuple[str, Queue], dict[int, str | None]] = {}  # by group and queue

    def raw(self, queue: Queue, offset: int) -> memoryview | None:
        """Return the record of the message at *offset*, or None where retention has deleted it."""
        read = self._store.queues.read(*queue, offset, max_count=1, max_bytes=1)
        return memoryview(read.slices[0]) if read.status is PullStatus.FOUND else None

    def message(self, queue: Queue, offset: int) -> Record | None:
        """Return the message at *offset*; None where it is gone, or cannot be read any more."""
        raw = self.raw(queue, offset)
        if raw is None:
            return None
        try:
            return decode_record(raw, check_crc=False)
        except DamagedRecordError as error:
            _log.error("a damaged message is passed over", fault=str(error))
            return None

    def look_ahead(
        self, queue: Queue, position: int, wanted: MessageFilter, *, count: int
    ) -> LookAhead:
        """Return what *wanted* lets through from *position* on: some, where there is any."""
        found: dict[int, Record] = {}
        _, end = self._store.queues.range(*queue)
        for _ in range(READS_MAX):
            if position >= end or found:
                break
            read = self._store.queues.read(
                *queue,
                position,
                max_count=max(count, READ_COUNT if wanted.sql92 else 1),
                max_bytes=READ_SIZE,
                tag_codes=wanted.tag_codes,
            )
            for record in read.records():
                its = record.queue_offset
                if its in found or not position <= its < read.next_offset:
                    _log.error(
                        "a damaged message is passed over",
                        fault=f"in queue {queue[1]} of {queue[0]!r}, between {position} and "
                        f"{read.next_offset}, it says that it is message {its}",
                    )
                elif _is_wanted(record, wanted):
                    found[its] = record
            position = read.next_offset
        return LookAhead(Ahead(sorted(found), position), found, position >= end or bool(found))

    def sharding_key(self, group: str, queue: Queue, offset: int) -> str | None:
        """Return the sharding key of an unfinished message; once known it is remembered."""
        known = self._keys.get((group, queue), {})
        if offset not in known:
            record = self.message(queue, offset)
            # Of a message that cannot be read nobody knows; it holds up nothing but itself.
            known[offset] = f"\0{offset}" if record is None else sharding_key_of(record)
            if len(self._keys) >= _CACHED_QUEUES_MAX:
                self._keys.clear()
            self._keys[group, queue] = known
        return known[offset]

    def forget_keys(self, group: str, queue: Queue, unfinished: Iterable[int]) -> None:
        """Forget the sharding keys of messages that are finished."""
        known = self._keys.get((group, queue))
        if known is not None:
            self._keys[group, queue] = {o: known[o] for o in unfinished if o in known}


def sharding_key_of(record: Record) -> str | None:
    """Return a message's sharding key."""
    return record.property_map().get(SHARDING_KEY)


def _is_wanted(record: Record, wanted: MessageFilter) -> bool:
    if wanted.passes_all:
        return True
    properties = record.property_map()
    if wanted.sql92 is not None:
        return wanted.sql92.matches(properties)
    return wanted.matches_tag(properties.get(TAGS))
