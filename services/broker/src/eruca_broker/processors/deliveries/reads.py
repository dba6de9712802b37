"""Reads for deliveries: the messages ahead in a queue, one message, and sharding keys.

Looking ahead is bounded in entries and in messages, because a filter may exclude everything. A
request that found nothing then continues where the look ended.

A damaged message is handed out with only its place and its fault. It must not look valid, nor be
skipped silently, nor block the others.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from eruca.contract.properties import SHARDING_KEY, TAGS
from eruca.contract.records import Record, decode_record
from eruca.contract.wire import PullStatus
from eruca_broker.core.consuming.lease_choice import Ahead
from eruca_broker.core.consuming.message_filter import MessageFilter
from eruca_broker.core.damage import Damage
from eruca_broker.core.state.group_state import Queue
from eruca_broker.store.message_store import MessageStore

READ_COUNT: Final = 128  # messages read at a time; in ordered groups as many may be overtaken
READ_SIZE: Final = 1024 * 1024  # bytes read at a time; the first message is always read
READS_MAX: Final = 8  # of one look ahead: some 130 000 entries by tag, or 1 024 messages
_CACHED_QUEUES_MAX: Final = 1_024  # queues whose unfinished messages' sharding keys are cached


class LookAhead(NamedTuple):
    """The messages ahead."""

    ahead: Ahead
    records: dict[int, Record | Damage]  # by offset, of the messages that pass
    is_complete: bool  # something was found, or the queue's end reached


class DeliveryReader:
    """Reads queues for deliveries."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store
        self._keys: dict[tuple[str, Queue], dict[int, str | None]] = {}  # by group and queue

    def raw(self, queue: Queue, offset: int) -> memoryview | Damage | None:
        """Return the record of the message at *offset*; None if retention has deleted it."""
        read = self._store.queues.read(*queue, offset, count_max=1, bytes_max=1)
        if read.damage is not None:
            return read.damage
        return memoryview(read.slices[0]) if read.status is PullStatus.FOUND else None

    def message(self, queue: Queue, offset: int) -> Record | Damage | None:
        """Return the message at *offset*; None if it is deleted."""
        raw = self.raw(queue, offset)
        return decode_record(raw, check_crc=False) if isinstance(raw, memoryview) else raw

    def look_ahead(
        self, queue: Queue, position: int, wanted: MessageFilter, *, count: int
    ) -> LookAhead:
        """Return messages from *position* on that pass *wanted*: at least one, if there is any."""
        found: dict[int, Record | Damage] = {}
        _, end = self._store.queues.local_range(*queue)
        for _ in range(READS_MAX):
            if position >= end or found:
                break
            read = self._store.queues.read(
                *queue,
                position,
                count_max=max(count, READ_COUNT if wanted.sql92 else 1),
                bytes_max=READ_SIZE,
                tag_codes=wanted.tag_codes,
            )
            if read.damage is not None:
                found[read.damage.queue_offset] = read.damage
            for record in read.records():
                if _is_wanted(record, wanted):
                    found[record.queue_offset] = record
            position = read.next_offset
        return LookAhead(Ahead(sorted(found), position), found, position >= end or bool(found))

    def sharding_key(self, group: str, queue: Queue, offset: int) -> str | None:
        """Return the sharding key of an unfinished message; it is cached."""
        known = self._keys.get((group, queue), {})
        if offset not in known:
            record = self.message(queue, offset)
            known[offset] = f"\0{offset}" if record is None else order_key_of(record)
            if len(self._keys) >= _CACHED_QUEUES_MAX:
                self._keys.clear()
            self._keys[group, queue] = known
        return known[offset]

    def forget_keys(self, group: str, queue: Queue, unfinished: Iterable[int]) -> None:
        """Forget the sharding keys of messages that are finished."""
        known = self._keys.get((group, queue))
        if known is not None:
            self._keys[group, queue] = {o: known[o] for o in unfinished if o in known}


def order_key_of(record: Record | Damage) -> str | None:
    """Return a message's sharding key; for a damaged one, a key that no other message has."""
    if isinstance(record, Damage):
        return f"\0{record.queue_offset}"  # nobody knows it: it blocks nothing but itself
    return record.property_map().get(SHARDING_KEY)


def _is_wanted(record: Record, wanted: MessageFilter) -> bool:
    if wanted.passes_all:
        return True
    properties = record.property_map()
    if wanted.sql92 is not None:
        return wanted.sql92.matches(properties)
    return wanted.matches_tag(properties.get(TAGS))
