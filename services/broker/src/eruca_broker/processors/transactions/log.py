"""Read transactions from the log: their messages, their ends, and all other events.

The broker keeps nothing about a transaction that is over. Its events have its id as their unique
id, so the key index finds them, as long as retention keeps them.

A look-up in the index has a cost, and the index lags a little. So the latest ends are remembered as
well, more of them than the index can lag behind. That makes it cheap to know that an id is new,
which every beginning must know.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

import structlog

from eruca.contract.errors import RecordNotFoundError, UnavailableError
from eruca.contract.limits import CHECK_COUNT_MAX
from eruca.contract.messages import DamagedRecord
from eruca.contract.names import EVENTS_TOPIC, HALF_TOPIC
from eruca.contract.records import DamagedRecordError, Record, decode_record
from eruca.contract.transaction_events import (
    TransactionDecided,
    TransactionEvent,
    TransactionParked,
    decode_transaction_event,
)
from eruca_broker.core.damage import RESTORE_FIX, damaged_record
from eruca_broker.core.records.scheduled import is_of_topic
from eruca_broker.core.state.transactions import LiveTransaction
from eruca_broker.store.message_store import MessageStore
from eruca_broker.store.projecting.dispatcher import INDEX_BACKLOG_MAX

HISTORY_MAX: Final = CHECK_COUNT_MAX + 28  # events of one transaction that are examined
RECENT_MAX: Final = 4 * INDEX_BACKLOG_MAX  # ends that are remembered
_TIME_MAX: Final = 2**63 - 1

_log = structlog.get_logger()


class Logged(NamedTuple):
    """An event, and its log offset."""

    event: TransactionEvent
    log_offset: int


class Ended(NamedTuple):
    """The end of a transaction, and its place in the log."""

    event: TransactionDecided
    log_offset: int


class TransactionLog:
    """Reads about transactions in one store."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store
        self._recent: OrderedDict[str, int] = OrderedDict()  # id → log offset of its end

    def note_end(self, transaction_id: str, log_offset: int) -> None:
        """Remember the log offset of a transaction's end."""
        self._recent[transaction_id] = log_offset
        self._recent.move_to_end(transaction_id)  # an id that could be used again after retention
        if len(self._recent) > RECENT_MAX:
            self._recent.popitem(last=False)

    def ended(self, transaction_id: str) -> Ended | None:
        """Return the end of a transaction; None if there was none, or it is too old.

        Raises:
            UnavailableError: A record that may be its end is damaged.
        """
        recent = self._recent.get(transaction_id)
        if recent is not None:
            try:
                event = decode_transaction_event(self._store.log.record(recent).body)
            except RecordNotFoundError:
                return None
            assert isinstance(event, TransactionDecided)
            return Ended(event, recent)
        damaged: list[DamagedRecord] = []
        events = self._events(transaction_id, damaged, is_latest_left_out=True)
        for event, log_offset in reversed(events):
            if isinstance(event, TransactionDecided):
                return Ended(event, log_offset)
        if damaged:
            raise UnavailableError(
                f"{damaged[0].reason}; it may be the end of transaction {transaction_id!r}",
                fix=RESTORE_FIX,
            )
        return None

    def events(self, transaction_id: str) -> list[Logged]:
        """Return the history of a transaction, as far as the log contains it, oldest first.

        A damaged event is omitted.
        """
        return self._events(transaction_id, [], is_latest_left_out=False)

    def parked(self, live: LiveTransaction) -> TransactionParked | None:
        """Return the event that parked a transaction.

        None if it was carried forward since, or can no longer be read.
        """
        try:
            event = decode_transaction_event(self._store.log.record(live.offset).body)
        except RecordNotFoundError:
            return None
        return event if isinstance(event, TransactionParked) else None

    def message_offset(self, event_offset: int) -> int:
        """Return the log offset of the message that belongs to the event at *event_offset*.

        A transaction from RocketMQ has no event until it is carried: then the half message is there
        itself.

        Raises:
            RecordNotFoundError: The event is damaged, so its size is unknown.
        """
        raw = self._store.log.raw(event_offset, is_proved=False)
        if is_of_topic(raw, EVENTS_TOPIC):
            return event_offset + len(raw)
        record = _decoded(raw, event_offset, is_proved=False)  # or raises the fault
        return event_offset + (0 if record.topic == HALF_TOPIC else record.size)

    def is_imported(self, live: LiveTransaction) -> bool:
        """Tell whether RocketMQ has stored the half message, and no event records that yet.

        A damaged one cannot be recognised, nor carried.
        """
        try:
            return self.message_offset(live.offset) == live.offset
        except RecordNotFoundError:
            return False

    def message_of(self, live: LiveTransaction) -> tuple[memoryview, int]:
        """Return the half message, or parked message, of a transaction, and its log offset.

        Raises:
            RecordNotFoundError: The log is damaged: retention keeps the messages that are needed.
        """
        offset = self.message_offset(live.offset)
        return self._store.log.raw(offset), offset

    def queued_at(self, live: LiveTransaction) -> int | None:
        """Return the queue offset of a damaged half message, from its queue.

        None, which is logged, if the event that leads to the half message is damaged too. A
        RocketMQ broker that opened the store would then check the transaction.

        Raises:
            UnavailableError: The queue's files cannot be read.
        """
        try:
            offset = self.message_offset(live.offset)
            found = self._store.places.offset_at(HALF_TOPIC, 0, offset)
            if found is None:
                raise damaged_record(offset, "its queue does not have it")
        except RecordNotFoundError as error:
            _log.error(
                "no op message can end a half message",
                transaction=live.transaction_id,
                fault=error.detail,
            )
            return None
        return found

    def record_as_it_is(self, log_offset: int) -> Record:
        """Return a record that is known to start there, even if its body is damaged.

        Raises:
            RecordNotFoundError: Not even its parts can be distinguished.
        """
        raw = self._store.log.raw(log_offset, is_proved=False)
        return _decoded(raw, log_offset, is_proved=False)

    def sound_message_of(self, live: LiveTransaction) -> tuple[Record, int]:
        """Return the half message, or parked message, of a transaction, and its log offset.

        Raises:
            RecordNotFoundError: It is damaged.
        """
        half, offset = self.message_of(live)
        return _decoded(half, offset, is_proved=True), offset

    def _events(
        self, transaction_id: str, damaged: list[DamagedRecord], *, is_latest_left_out: bool
    ) -> list[Logged]:
        records = self._store.log.by_key(
            EVENTS_TOPIC,
            transaction_id,
            count_max=HISTORY_MAX,
            begin_ms=0,
            end_ms=_TIME_MAX,
            is_latest_left_out=is_latest_left_out,
            damaged=damaged,
        )
        return [
            Logged(decode_transaction_event(record.body), record.log_offset)
            for record in reversed(records)
        ]


@contextmanager
def told_whose(live: LiveTransaction) -> Iterator[None]:
    """Let a RecordNotFoundError name the transaction whose message is damaged, and the way out."""
    try:
        yield
    except RecordNotFoundError as error:
        raise RecordNotFoundError(
            f"the message of transaction {live.transaction_id!r} cannot be read: {error.detail}",
            fix=f"{RESTORE_FIX}, or roll the transaction back: "
            f"eruca txn rollback {live.transaction_id} --reason TEXT",
        ) from error


def _decoded(raw: memoryview, log_offset: int, *, is_proved: bool) -> Record:
    try:
        return decode_record(raw, check_crc=is_proved)
    except DamagedRecordError as error:
        raise damaged_record(log_offset, error) from error
