"""Send under an idempotency key: the message is stored once, however often it is sent.

:mod:`eruca_broker.core.records.replays` defines a key's states, and which content is the same. This
module looks a key up in the log. A request that comes while the first one is on its way into the
log waits for it. It is answered as late as the first one's sender would be. If the first one fails,
the next one is stored.

A batch is in one piece in the log, even if its messages wait in several queues. So the first
message leads to all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, NamedTuple, TypeAlias

from eruca.contract.errors import IdempotencyKeyReusedError, RecordNotFoundError, ValidationError
from eruca.contract.message_ids import encode_offset_id
from eruca.contract.messages import BatchReceipt, NewMessage, SendReceipt
from eruca.contract.properties import UNIQ_KEY
from eruca.contract.recall_handles import RecallHandle, encode_recall_handle
from eruca.contract.records import DamagedRecordError, Host, Record, SysFlag, decode_record
from eruca_broker.core.batches.batch import Batch
from eruca_broker.core.records.replays import (
    Content,
    check_first_id,
    content_of_message,
    content_of_record,
    difference,
    identified,
    is_delayed_alike,
    is_same_record,
)
from eruca_broker.core.records.scheduled import (
    DELAYED_TOPICS,
    Destination,
    delivery_time,
    destination_of,
)
from eruca_broker.core.records.times import rfc3339
from eruca_broker.processors.scheduled import StoredLater
from eruca_broker.processors.send_message import Sender
from eruca_broker.store.log.appended import Appended
from eruca_broker.store.message_store import MessageStore
from eruca_chassis.clock import Clock

LOOKED_AT_MAX: Final = 1_000  # messages that have a key among theirs, examined in one look-up
_TIME_MAX: Final = 2**63 - 1
_IDS_POINTER: Final = "/body/records/0/properties/UNIQ_KEY"
_KEY_POINTER: Final = "/header/idempotency-key"


class Replayed(NamedTuple):
    """The messages that were stored already, in the request's order."""

    records: list[Record]  # of a batch of records, the first one at least
    message_count: int


MessagesSent: TypeAlias = Callable[
    [Sequence[str], Appended | StoredLater | Replayed | Exception], None
]
"""Called once with the messages' ids and the outcome or the earlier messages; must not raise."""

RecordsSent: TypeAlias = Callable[[Appended | Replayed | Exception], None]
"""The same, for records."""


class _Attempt(NamedTuple):
    """One request under a key."""

    place: tuple[str, str]  # topic, and the id that finds it
    look: Callable[[], Replayed | None]
    append: Callable[[], None]
    fail: Callable[[Exception], None]
    replay: Callable[[Replayed], None]


class IdempotentSender:
    """Sends to topics of this broker, once per key."""

    def __init__(
        self,
        store: MessageStore,
        sender: Sender,
        *,
        window_seconds: float,
        broker_name: str,
        clock: Clock,
    ) -> None:
        self._store = store
        self._sender = sender
        self._window_ms = round(window_seconds * 1000)
        self._broker_name = broker_name
        self._clock = clock
        # Requests that wait for one on its way, oldest first; bounded by the bytes in flight.
        self._on_the_way: dict[tuple[str, str], list[_Attempt]] = {}

    def send(  # noqa: PLR0917 - as the plain sender's
        self,
        topic: str,
        queue_id: int | None,
        key: str,
        messages: Sequence[NewMessage],
        pointers: Sequence[str],
        born_host: Host,
        done: MessagesSent,
        *,
        is_batch: bool,
    ) -> None:
        """Append messages as :meth:`Sender.send` does, or pass earlier ones to *done*.

        Raises:
            ValidationError: As there, or the messages' ids are not those of the key.
            TooLargeError: As there.
            IdempotencyKeyReusedError: Other content was sent under the key.
            UnavailableError: The key index cannot be read, or the store refuses writes.
        """
        named = identified(messages, pointers, key, is_batch=is_batch)
        ids = [message.message_id or "" for message in named]
        place = topic, ids[0]

        def append() -> None:
            told = partial(self._settled, place)
            self._sender.send(
                topic,
                queue_id,
                named,
                pointers,
                born_host,
                lambda ids, outcome: told(partial(done, ids, outcome)),
            )

        self._try(
            _Attempt(
                place,
                partial(self._stored_messages, topic, queue_id, named, pointers, ids),
                append,
                partial(done, ids),
                partial(done, ids),
            )
        )

    def send_records(  # noqa: PLR0917 - as the plain sender's
        self,
        topic: str,
        queue_id: int,
        key: str,
        buffer: bytearray,
        born_host: Host,
        done: RecordsSent,
    ) -> None:
        """Append records as :meth:`Sender.send_records` does, or pass earlier ones to *done*.

        Raises:
            MalformedBatchError: As there.
            TooLargeError: As there.
            ValidationError: The first record's unique id is not the key.
            IdempotencyKeyReusedError: Other content was sent under the key.
            UnavailableError: The key index cannot be read, or the store refuses writes.
        """
        batch = self._sender.checked(topic, queue_id, buffer)
        first = decode_record(batch.records, check_crc=False)
        check_first_id(first.property_map().get(UNIQ_KEY, ""), key, _IDS_POINTER)
        place = topic, key

        def append() -> None:
            told = partial(self._settled, place)
            self._sender.append_checked(
                batch, born_host, lambda outcome: told(partial(done, outcome))
            )

        self._try(
            _Attempt(
                place,
                partial(self._stored_records, topic, queue_id, key, batch),
                append,
                done,
                done,
            )
        )

    def receipts_of(self, replayed: Replayed) -> list[SendReceipt]:
        """Return the receipt for the sender of JSON messages, for each of them."""
        return [self._receipt_of(record) for record in replayed.records]

    def receipt_of(self, replayed: Replayed) -> BatchReceipt:
        """Return the receipt for the sender of a batch of records."""
        first = replayed.records[0]
        return BatchReceipt(
            queue_id=first.queue_id,
            queue_offset=first.queue_offset,
            log_offset=first.log_offset,
            count=replayed.message_count,
            stored_at_ms=first.store_timestamp,
            durability=self._store.durability,
            copies=self._sender.copies.held_before(replayed.records[-1].log_offset),
            born_host_is_ipv6=bool(first.sys_flag & SysFlag.BORN_HOST_V6),
            store_host=first.store_host.text,
        )

    def _try(self, attempt: _Attempt) -> None:
        """Store the request's messages or pass on earlier ones, now or once the broker can know."""
        waiting = self._on_the_way.get(attempt.place)
        if waiting is not None:
            waiting.append(attempt)
            return
        replayed = attempt.look()
        if replayed is not None:
            attempt.replay(replayed)
            return
        self._on_the_way[attempt.place] = []
        try:
            attempt.append()
        except BaseException:
            del self._on_the_way[attempt.place]  # no request can have come meanwhile
            raise

    def _settled(self, place: tuple[str, str], tell: Callable[[], None]) -> None:
        """Answer the sender of the first request, then let the waiting ones look again."""
        waiting = self._on_the_way.pop(place)
        tell()
        for attempt in waiting:
            try:
                self._try(attempt)
            except Exception as error:  # its own answer, which does not matter to the others
                attempt.fail(error)

    def _stored_messages(
        self,
        topic: str,
        queue_id: int | None,
        messages: Sequence[NewMessage],
        pointers: Sequence[str],
        ids: Sequence[str],
    ) -> Replayed | None:
        first = self._first(topic, ids[0], (topic, *DELAYED_TOPICS))
        if first is None:
            return None
        records = self._following(first, ids)
        for record, message, pointer in zip(records, messages, pointers, strict=True):
            wanted = content_of_message(message, pointer)
            other = self._difference(record, wanted, topic, queue_id)
            if other is None and not is_delayed_alike(record, message):
                other = "its delay"
            if other is not None:
                raise _reused(first, topic, f"{message.message_id!r} differs in {other}")
        return Replayed(records, len(records))

    def _stored_records(self, topic: str, queue_id: int, key: str, batch: Batch) -> Replayed | None:
        first = self._first(topic, key, (topic,))
        if first is None:
            return None
        if self._are_the_same(first.log_offset, batch):
            return Replayed([first], batch.count)
        asked = [decode_record(batch.records, start, check_crc=False) for start in batch.starts]
        ids = [record.property_map().get(UNIQ_KEY, "") for record in asked]
        records = self._following(first, ids)
        for record, wanted, unique_id in zip(records, asked, ids, strict=True):
            other = self._difference(record, content_of_record(wanted), topic, queue_id)
            if other is not None:
                raise _reused(first, topic, f"{unique_id!r} differs in {other}")
        return Replayed(records, len(records))

    def _are_the_same(self, log_offset: int, batch: Batch) -> bool:
        """Tell whether the log has a batch's bytes from there on, except the stamped fields."""
        for start, size in zip(batch.starts, batch.sizes, strict=True):
            if log_offset >= self._store.visible_offset:
                return False
            try:
                stored = self._store.log.raw(log_offset)
            except RecordNotFoundError:
                return False
            if not is_same_record(stored, batch.records[start : start + size]):
                return False
            log_offset += len(stored)
        return True

    def _difference(
        self, record: Record, wanted: Content, topic: str, queue_id: int | None
    ) -> str | None:
        if queue_id is not None and _destination(record, topic).queue_id != queue_id:
            return "its queue"
        return difference(content_of_record(record), wanted)

    def _first(self, topic: str, unique_id: str, places: Sequence[str]) -> Record | None:
        """Return the message of *topic* that was stored first under an id, within the window.

        A message that waits, or waited, in another topic counts, whatever happened to it later.
        """
        known = self._store.state.topics.get(topic)
        if known is None:
            return None
        begin_ms = self._clock.now_ms() - self._window_ms
        oldest: Record | None = None
        for place in places:
            found = self._store.log.by_key(
                place, unique_id, count_max=LOOKED_AT_MAX, begin_ms=begin_ms, end_ms=_TIME_MAX
            )
            for record in found:
                if (
                    record.log_offset >= known.created_at
                    and record.property_map().get(UNIQ_KEY) == unique_id
                    and _destination(record, place).topic == topic
                    and (oldest is None or record.log_offset < oldest.log_offset)
                ):
                    oldest = record
            if oldest is None and len(found) == LOOKED_AT_MAX:
                raise ValidationError.at(
                    _KEY_POINTER,
                    f"{LOOKED_AT_MAX} messages have {unique_id!r} among their keys, so the broker "
                    "cannot decide whether one was sent under it",
                    fix="use an idempotency key that is not a message's key, such as a UUID",
                )
        return oldest

    def _following(self, first: Record, ids: Sequence[str]) -> list[Record]:
        """Return the messages of these ids that were stored in one piece with *first*.

        Raises:
            IdempotencyKeyReusedError: Some are missing, or there are more.
        """
        records = [first]
        offset = first.log_offset + first.size
        while len(records) < len(ids) and (record := self._record_at(offset)) is not None:
            records.append(record)
            offset += record.size
        found = [record.property_map().get(UNIQ_KEY, "") for record in records]
        if found != list(ids):  # delayed ones are apart from those that are not delayed
            by_id = dict(zip(found, records, strict=True))
            records = [by_id[unique_id] for unique_id in ids if unique_id in by_id]
        topic = _destination(first, first.topic).topic
        if len(records) < len(ids):
            raise _reused(first, topic, f"{len(records)} of these {len(ids)} messages are stored")
        prefix, dash, number = ids[-1].rpartition("-")
        if dash and number == str(len(ids) - 1) and ids[0] == f"{prefix}-0":
            more = self._record_at(offset)
            if more is not None and more.property_map().get(UNIQ_KEY) == f"{prefix}-{len(ids)}":
                raise _reused(first, topic, f"it was a batch of more than {len(ids)}")
        return records

    def _record_at(self, log_offset: int) -> Record | None:
        if log_offset >= self._store.visible_offset:
            return None
        try:
            return decode_record(self._store.log.raw(log_offset), check_crc=False)
        except (RecordNotFoundError, DamagedRecordError):  # another segment begins
            return None

    def _receipt_of(self, record: Record) -> SendReceipt:
        is_waiting = record.topic in DELAYED_TOPICS
        due_ms = None
        if is_waiting:
            properties = record.properties.encode("utf-8", "surrogatepass")
            due_ms = delivery_time(record.topic, properties, record.store_timestamp)
        destination = _destination(record, record.topic)
        unique_id = record.property_map()[UNIQ_KEY]
        return SendReceipt(
            topic=destination.topic,
            broker_name=self._broker_name,
            queue_id=destination.queue_id,
            queue_offset=None if is_waiting else record.queue_offset,
            log_offset=record.log_offset,
            message_id=unique_id,
            offset_message_id=encode_offset_id(record.store_host, record.log_offset),
            stored_at=rfc3339(record.store_timestamp),
            durability=self._store.durability,
            copies=self._sender.copies.held_before(record.log_offset),
            deliver_at=None if due_ms is None else rfc3339(due_ms),
            recall_handle=None
            if due_ms is None
            else encode_recall_handle(
                RecallHandle(destination.topic, self._broker_name, due_ms, unique_id)
            ),
        )


def _destination(record: Record, topic: str) -> Destination:
    """Return the queue to which a record of *topic* goes."""
    if record.topic in DELAYED_TOPICS:
        found = destination_of(record.properties.encode("utf-8", "surrogatepass"))
        if found is not None:
            return found
    return Destination(topic, record.queue_id)


def _reused(first: Record, topic: str, reason: str) -> IdempotencyKeyReusedError:
    """Return the error that names the place of the first message, and the difference."""
    destination = _destination(first, topic)
    where = (
        f"waiting, for queue {destination.queue_id}"
        if first.topic in DELAYED_TOPICS
        else f"in queue {first.queue_id} at offset {first.queue_offset}"
    )
    return IdempotencyKeyReusedError(
        f"other content was sent to topic {topic!r} under this key: {reason}; that begins "
        f"{where}, log offset {first.log_offset}, stored at {rfc3339(first.store_timestamp)}"
    )
