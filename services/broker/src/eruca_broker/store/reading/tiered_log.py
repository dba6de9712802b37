"""The log by log offsets, from its beginning in the tier on: the log feed, and single records.

What is here is read from :mod:`eruca_broker.store.reading.readable_log`, and what is before it from
the tier, byte for byte as it was here. So a reader that passes from one to the other notices
nothing. An offset that is in neither place is not found, as without a tier. One that is in the tier
and cannot be read now is refused (503).

Epochs: retention forgets those of which the log here has no record. The manifest has the epoch of
each segment's last record, and a segment in which another epoch begins has the record that says
where. So positions in the tier are compared with what was there, as positions here are.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from typing import Final

from eruca.contract.errors import RecordNotFoundError, UnavailableError
from eruca.contract.hashing import tags_code
from eruca.contract.names import EVENTS_TOPIC
from eruca.contract.records import (
    RECORD_SIZE_MIN,
    DamagedRecordError,
    Record,
    decode_record,
)
from eruca_broker.core.damage import damaged_record
from eruca_broker.core.log.whole_records import damaged_among, own_offset, whole_records
from eruca_broker.core.records.stored_proof import fault_of
from eruca_broker.core.replication.epochs import Epoch, EpochTable
from eruca_broker.core.state.epoch_events import EpochBegan
from eruca_broker.core.state.events import EVENTS_QUEUE_ID, UnknownEventError, decode_event
from eruca_broker.core.state.state import BrokerState
from eruca_broker.store.reading.log_reader import LogRead, outside_log
from eruca_broker.store.reading.readable_log import ReadableLog
from eruca_broker.store.tier.reader import Place, TierReader
from eruca_broker.store.tier.tier_queue import CHUNKS_PER_READ_MAX

_EPOCH_BEGAN: Final = tags_code(str(EpochBegan.__struct_config__.tag))
_ENTRIES_READ: Final = 65_536  # control records that are looked at together
_SEGMENTS_KNOWN_MAX: Final = 256  # segments whose epochs are remembered


class TieredLog:
    """The log of one store, with its part in the tier.

    Args:
        log: The part that is here.
        state: Knows the epochs of that part.
    """

    def __init__(self, log: ReadableLog, state: BrokerState) -> None:
        self.tier: TierReader | None = None  # None: there is no tier
        self._log = log
        self._state = state
        self._begun: OrderedDict[str, tuple[Epoch, ...]] = OrderedDict()  # by the side's path

    @property
    def begin_offset(self) -> int | None:
        """Log offset of the first record that can be read; None: the tier's part is not known."""
        return self._log.min_offset if self.tier is None else self.tier.log_begin

    def read(self, from_offset: int, bytes_max: int, stop: int | None = None) -> LogRead:
        """Return whole records of the log from *from_offset* on, and before *stop*.

        Raises:
            RecordNotFoundError: No record starts there, or retention has deleted it.
            UnavailableError: The log is damaged there, or the tier cannot be read now.
            NotInMemoryError: Bytes are not in memory, in an attempt.
        """
        begin, end = self.begin_offset, self._log.visible_offset
        if (tier := self._tier_of(from_offset)) is not None:
            stop = end if stop is None else min(stop, end)
            return self._read_tier(tier, from_offset, bytes_max, stop)
        if begin is None:
            begin = self._log.min_offset  # of what is known to be there
        if from_offset > end:
            raise outside_log(from_offset, begin, end)
        return self._log.read(from_offset, bytes_max, stop)._replace(min_offset=begin)

    def record(self, log_offset: int) -> Record:
        """Return the visible record at *log_offset*; raises as :meth:`read`."""
        tier = self._tier_of(log_offset)
        if tier is None:
            return self._log.record(log_offset)
        try:
            return decode_record(self._tier_raw(tier, log_offset))
        except DamagedRecordError as error:
            raise damaged_record(log_offset, error) from error

    def raw(self, log_offset: int) -> bytes | memoryview:
        """Return the bytes of the record at *log_offset*; raises as :meth:`read`.

        They are in the log's mapping, or in memory of their own (``bytes``).
        """
        tier = self._tier_of(log_offset)
        if tier is None:
            return self._log.raw(log_offset)
        raw = bytes(self._tier_raw(tier, log_offset))
        if (fault := fault_of(raw)) is not None:
            raise damaged_record(log_offset, fault)
        return raw

    def epochs_at(self, log_offset: int) -> EpochTable:
        """Return the epochs of the log, those around *log_offset* included.

        Raises:
            UnavailableError: The tier cannot be read now.
            NotInMemoryError: Bytes are not in memory, in an attempt.
        """
        known = self._state.log_epochs.table
        oldest = next(iter(known), None)
        tier = self._tier_of(log_offset)
        if oldest is None or oldest.begun_at < log_offset or tier is None:
            return known
        if log_offset < tier.known_begin():
            return known  # its reader gets 404
        place = tier.place_of(log_offset)
        segment, before = place.segment, place.epoch_before or 0
        begun = [Epoch(before, segment.base - 1)] if before else []
        if segment.epoch > before:
            begun += [epoch for epoch in self._begun_in(tier, place) if epoch.number > before]
        last = begun[-1] if begun else Epoch(0, -1)
        later = [e for e in known if e.number > last.number and e.begun_at > last.begun_at]
        return EpochTable((*begun, *later))

    # --- Inside -----------------------------------------------------------------------------------

    def _tier_of(self, log_offset: int) -> TierReader | None:
        """Return the tier if *log_offset* is before the beginning of the log here."""
        return self.tier if log_offset < self._log.min_offset else None

    def _read_tier(self, tier: TierReader, from_offset: int, bytes_max: int, stop: int) -> LogRead:
        begin, end = tier.known_begin(), self._log.visible_offset
        if from_offset < begin:
            raise outside_log(from_offset, begin, end)
        place = tier.place_of(from_offset)
        base, segment_end = place.segment.base, place.segment.end
        chunk = place.table.head.chunk_size
        chunks_end = base + ((from_offset - base) // chunk + CHUNKS_PER_READ_MAX) * chunk
        size = min(bytes_max + RECORD_SIZE_MIN, min(chunks_end, segment_end) - from_offset)
        while True:
            view = tier.view(from_offset, size)
            found = whole_records(
                view, from_offset, bytes_max=bytes_max, base=base, end=segment_end, stop=stop
            )
            if not found.needed:
                break
            size = min(found.needed, segment_end - from_offset)
        damaged = damaged_among(view, found, from_offset)
        tier.read_count += len(found.starts)
        return LogRead(view[: found.size], damaged, found.next_offset, begin, end, is_copied=True)

    def _tier_raw(self, tier: TierReader, log_offset: int) -> memoryview:
        """Return the bytes of a record that is in the tier, not verified."""
        begin = tier.known_begin()
        if log_offset >= begin:
            left = tier.place_of(log_offset).segment.end - log_offset
            head = tier.view(log_offset, min(RECORD_SIZE_MIN, left))
            size = int.from_bytes(head[:4])
            if own_offset(head, 0) == log_offset and RECORD_SIZE_MIN <= size <= left:
                return tier.view(log_offset, size)
        raise RecordNotFoundError(
            f"no record starts at log offset {log_offset}; the log holds {begin} to "
            f"{self._log.visible_offset}"
        )

    def _begun_in(self, tier: TierReader, place: Place) -> tuple[Epoch, ...]:
        """Return the epochs that began in a segment whose last one is another than before it."""
        segment = place.segment
        found = self._begun.get(segment.side_path)
        if found is not None:
            return found
        found = tuple(self._looked_up(tier, place))
        if not found and place.epoch_before is None and segment.base:
            found = (Epoch(segment.epoch, segment.base - 1),)  # in a segment that has expired
        elif not found or found[-1].number < segment.epoch:
            # It begins with the blank record. Its first record is the next segment's.
            found = (*found, Epoch(segment.epoch, segment.end - 1))
        self._begun[segment.side_path] = found
        if len(self._begun) > _SEGMENTS_KNOWN_MAX:
            self._begun.popitem(last=False)
        return found

    def _looked_up(self, tier: TierReader, place: Place) -> Iterator[Epoch]:
        for part in tier.parts_of(place, (EVENTS_TOPIC, EVENTS_QUEUE_ID)):
            for offset in range(part.begin, part.end, _ENTRIES_READ):
                entries = part.all_entries(offset, _ENTRIES_READ)
                told = entries["log_offset"][entries["tags_code"] == _EPOCH_BEGAN]
                for log_offset in told.tolist():
                    try:
                        record = decode_record(self._tier_raw(tier, log_offset))
                        event = decode_event(record.body)
                    except (RecordNotFoundError, DamagedRecordError, UnknownEventError) as error:
                        raise UnavailableError(
                            f"the beginning of an epoch at log offset {log_offset} of the tier "
                            f"cannot be read: {error}"
                        ) from error
                    if isinstance(event, EpochBegan):
                        yield Epoch(event.epoch, event.begun_at, event.unclean)
