"""Look-ups by key: first what is here, then page by page what only the tier has.

A page is of one place. That of the log here is a look-up in its key index, and does not need the
tier. It ends with a log offset to go on before, if the tier may have more. A page of the tier looks
into a bounded number of segments, whose side objects have their keys, and reads a bounded number of
chunks, keys and records. So it always succeeds, unless the tier cannot be read: then it is refused
(503), and nobody takes a key for missing. Nor does it hold up the event loop, even if every message
has the key.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from eruca.contract.hashing import key_hash
from eruca.contract.messages import DamagedRecord
from eruca.contract.records import Record
from eruca_broker.core.damage import UnreadableRecordError
from eruca_broker.core.state.state import BrokerState
from eruca_broker.core.tier.manifests import TierSegment
from eruca_broker.store.reading.log_reader import has_key
from eruca_broker.store.reading.readable_log import ReadableLog
from eruca_broker.store.reading.tiered_log import TieredLog
from eruca_broker.store.tier.keyed import keyed
from eruca_broker.store.tier.tier_queue import CHUNKS_PER_READ_MAX

SEGMENTS_MAX: Final = 8  # of the tier, into which one page looks
ROWS_MAX: Final = 1_024  # keys that one page reads, and records that may have them


@dataclass(slots=True)
class FoundByKey:
    """A page of a look-up.

    Attributes:
        records: The newest first.
        damaged: Records that may be among them.
        rest: Log offset before which there may be more, behind *records*; None: there are none.
        without_keys: Log offsets of segments of the tier that were passed: their side objects have
            no keys.
    """

    records: list[Record] = field(default_factory=list)
    damaged: list[DamagedRecord] = field(default_factory=list)
    rest: int | None = None
    without_keys: list[int] = field(default_factory=list)


class TieredKeys:
    """Looks up keys in the log of one store, and in its tier.

    Args:
        log: The part that is here.
        whole: The log with its part in the tier.
        state: Knows when topics were created.
    """

    def __init__(self, log: ReadableLog, whole: TieredLog, state: BrokerState) -> None:
        self._log = log
        self._whole = whole
        self._state = state

    def find(
        self,
        topic: str,
        key: str,
        *,
        count_max: int,
        begin_ms: int,
        end_ms: int,
        before_offset: int | None,
    ) -> FoundByKey:
        """Return a page of a topic's messages with *key*; see :meth:`.ReadableLog.by_key`.

        Raises:
            NotInMemoryError: Bytes are not in memory, in an attempt.
            UnavailableError: The index, or the tier, cannot be read now.
        """
        known = self._state.topics.get(topic)
        since = known.created_at if known else 0
        found = FoundByKey()
        local, tier = self._log.min_offset, self._whole.tier
        if tier is None or before_offset is None or before_offset > local:
            found.records = self._log.by_key(
                topic,
                key,
                count_max=count_max,
                begin_ms=begin_ms,
                end_ms=end_ms,
                before_offset=before_offset,
                damaged=found.damaged,
            )
            if tier is not None and local > since:
                is_known = tier.log_begin is not None
                left = _within(tier.segments_before(local), since, begin_ms, end_ms)
                found.rest = local if left or not is_known else None
            return found
        tier.known_begin()
        hashed, chunks, rows_left = key_hash(topic, key), set[int](), ROWS_MAX
        segments = _within(tier.segments_before(before_offset), since, begin_ms, end_ms)
        for segment in segments[:SEGMENTS_MAX]:
            place = tier.place_of(segment.base)
            rows = keyed(tier, place, hashed, before=before_offset, count_max=rows_left)
            if rows is None:
                found.without_keys.append(segment.base)
                continue
            for offset in rows.offsets:
                if offset < since:
                    return found  # so are all that follow
                chunks.add(offset // segment.chunk_size)
                if len(chunks) > CHUNKS_PER_READ_MAX:
                    found.rest = offset + 1
                    return found
                try:
                    record = self._whole.record(offset)
                except UnreadableRecordError as error:
                    found.damaged.append(DamagedRecord(log_offset=offset, reason=error.detail))
                    continue
                if has_key(record, topic, key, begin_ms, end_ms):
                    found.records.append(record)
                    if len(found.records) == count_max:
                        found.rest = offset
                        return found
            rows_left -= len(rows.offsets)
            if rows.has_more or not rows_left:
                found.rest = rows.offsets[-1]
                return found
        if len(segments) > SEGMENTS_MAX:
            found.rest = segments[SEGMENTS_MAX - 1].base
        return found


def _within(
    segments: Sequence[TierSegment], since: int, begin_ms: int, end_ms: int
) -> list[TierSegment]:
    """Return the segments that may have records from *since* on, stored in a time."""
    return [
        one
        for one in segments
        if one.end > since and one.last_ms >= begin_ms and one.first_ms <= end_ms
    ]
