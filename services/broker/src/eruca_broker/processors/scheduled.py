"""Delayed messages: send them, list the waiting ones, recall one.

A delayed message is stored at once, as durably as any other, in a topic for waiting messages
(:mod:`eruca_broker.core.records.scheduled`). :mod:`.timers` delivers it.

A recall ends the message's timer by an event. Memory decides, at once and once, whether it is fired
or recalled; the event makes the decision durable. You may repeat a recall: if the log still
contains the message, and it neither waits nor was delivered, then it was recalled. A delivered
message is behind the waiting one in the log, whatever happened to its topic later.

Source: RocketMQ 5.3, ``HookUtils.handleScheduleMessage``, ``RecallMessageProcessor``. Unlike there,
a time is exact to the millisecond, and a message with a delay level can be recalled too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Final, NamedTuple

from eruca.contract.errors import (
    AlreadyDeliveredError,
    ErucaError,
    OverloadedError,
    RecordNotFoundError,
    ScheduledNotFoundError,
    TooLargeError,
    ValidationError,
)
from eruca.contract.errors.shown import shown
from eruca.contract.limits import DELAY_LEVEL_MAX
from eruca.contract.messages import NewMessage, ScheduledPlaces
from eruca.contract.names import SCHEDULE_TOPIC, TIMER_TOPIC
from eruca.contract.properties import DELAY, UNIQ_KEY
from eruca.contract.recall_handles import (
    MalformedRecallHandleError,
    RecallHandle,
    decode_recall_handle,
    encode_recall_handle,
)
from eruca.contract.records import Record, decode_record
from eruca.contract.retries import DamagedScheduled, ScheduledList, ScheduledMessage
from eruca.core.messages.delay_levels import TIMER_UNITS
from eruca_broker.core.batches.batch import Batch, batch_of_records
from eruca_broker.core.batches.delayed_batch import Requests, requests_of, waiting_batch
from eruca_broker.core.consume_queue_entry import view_entries
from eruca_broker.core.records.scheduled import (
    DELAYED_TOPICS,
    WAITING_NAMES,
    Destination,
    PropertiesTooLargeError,
    Wait,
    delivery_time,
    destination_of,
    is_retry,
    properties_of,
    property_of,
    rewritten,
    waiting,
)
from eruca_broker.core.records.times import moment, ms_not_before, rfc3339
from eruca_broker.core.state.timers import Timer
from eruca_broker.core.state.timers_events import TimersCancelled, waiting_record_size_max
from eruca_broker.processors.pacing import Pace
from eruca_broker.store.log.appended import Appended
from eruca_broker.store.message_store import MessageStore

LOOKED_AT_MAX: Final = 5_000  # waiting messages that one page of a list examines
_LOOKED_AT_ONCE: Final = 250  # … before others get their turn
_SAME_ID_MAX: Final = 64  # copies of a message that one handle recalls, or that an error names
WITH_KEY_MAX: Final = 1_000  # messages that have an id among their keys, examined in one look-up
_RETRY_AFTER_SECONDS: Final = 5.0
_TIME_MAX: Final = 2**63 - 1
_DIGITS_MAX: Final = 18  # of a requested time: of any number that fits into 64 bits
_REQUESTS: Final = {
    DELAY: (0, False),
    **{name: (unit_ms, is_from_now) for name, unit_ms, is_from_now in TIMER_UNITS},
}
"""Properties by which a record requests a delivery time: unit in ms, whether it counts from now."""
_HANDLE_POINTER: Final = "/path/recall_handle"


class Later(NamedTuple):
    """Messages that are stored together, some of which wait for their time."""

    destination: Destination  # of all
    batches: Sequence[Batch]
    places: list[tuple[int, int]]  # of each message: its batch, and its index there
    waits: list[Wait | None]  # of each message


class StoredWaiting(NamedTuple):
    """Messages that were stored together, in one batch, and all wait for their times."""

    destination: Destination  # of all
    appended: Appended

    def places(self) -> ScheduledPlaces:
        """Return the place of each message."""
        entries = view_entries(self.appended.entries)
        return ScheduledPlaces(
            log_offsets=entries["log_offset"].tolist(),
            queue_offsets=[None] * len(entries),
            deliver_at_ms=entries["tags_code"].tolist(),
        )


class StoredLater(NamedTuple):
    """The same messages, as stored in the log."""

    later: Later
    appended: list[Appended]

    @property
    def destination(self) -> Destination:
        """The queue to which all of them are delivered."""
        return self.later.destination

    def queue_offset(self, number: int) -> int | None:
        """Return a message's offset in its queue; None while it waits."""
        batch, index = self.later.places[number]
        is_waiting = self.later.waits[number] is not None
        return None if is_waiting else self.appended[batch].queue_offset + index

    def log_offset(self, number: int) -> int:
        """Return the log offset of a message."""
        batch, index = self.later.places[number]
        appended = self.appended[batch]
        return appended.log_offset + appended.batch.found.start_of(index)

    def places(self) -> ScheduledPlaces:
        """Return the place of each message."""
        numbers = range(len(self.later.waits))
        return ScheduledPlaces(
            log_offsets=list(map(self.log_offset, numbers)),
            queue_offsets=list(map(self.queue_offset, numbers)),
            deliver_at_ms=list(map(self.deliver_at_ms, numbers)),
        )

    def deliver_at_ms(self, number: int) -> int | None:
        """Return the time at which a message is due; None if it does not wait."""
        wait = self.later.waits[number]
        return None if wait is None else wait.time_ms(self.appended[0].store_timestamp)


class Scheduled:
    """Messages of this broker that wait for their time."""

    def __init__(
        self,
        store: MessageStore,
        *,
        broker_name: str,
        delay_seconds_max: float,
        timers_max: int,
    ) -> None:
        self._store = store
        self._broker_name = broker_name
        self._delay_seconds_max = delay_seconds_max
        self._timers_max = timers_max

    def check_room(self, count: int) -> None:
        """Raise OverloadedError if *count* more timers would exceed the maximum."""
        if len(self._store.timers) + count > self._timers_max:
            raise OverloadedError(
                f"timers_max is reached: {self._timers_max} messages wait for their delivery",
                fix="wait a moment, then retry; or raise ERUCA_BROKER_TIMERS_MAX",
                retry_after_seconds=_RETRY_AFTER_SECONDS,
            )

    def check_sizes(self, batches: Iterable[Batch]) -> None:
        """Raise TooLargeError if a waiting message could not be delivered in one write."""
        size_max = waiting_record_size_max(self._store.segment_bytes)
        for batch in batches:
            if batch.size <= size_max or batch.topic not in DELAYED_TOPICS:
                continue
            if (size := max(batch.sizes)) > size_max:
                raise TooLargeError(
                    f"a message takes {size} bytes in the log; where segments have "
                    f"{self._store.segment_bytes} bytes, one that is delivered later may take "
                    f"{size_max}"
                )

    def waits_of(
        self, messages: Sequence[NewMessage], pointers: Sequence[str], now_ms: int
    ) -> list[Wait | None] | None:
        """Return the wait of each message, None for no wait; None if none of them waits.

        Raises:
            ValidationError: A message has two delays, or one that exceeds the maximum.
            OverloadedError: The maximum number of messages wait.
        """
        if not any(map(_is_delayed, messages)):
            return None
        waits = [
            self._wait_of(message, pointer, now_ms)
            for message, pointer in zip(messages, pointers, strict=True)
        ]
        count = sum(wait is not None for wait in waits)
        if not count:
            return None
        self.check_room(count)
        return waits

    def waiting(self, requests: Requests, now_ms: int) -> Batch | None:
        """Return the batch of *requests* as its messages wait; None if not all of them do.

        Raises:
            OverloadedError: The maximum number of messages wait.
            TooLargeError: No segment can hold a message with the event of its delivery.
        """
        deliver_ms_max = now_ms + int(self._delay_seconds_max * 1000)
        batch = waiting_batch(requests, now_ms=now_ms, deliver_ms_max=deliver_ms_max)
        if batch is not None:
            self.check_room(batch.count)
            self.check_sizes((batch,))
        return batch

    def later(self, requests: Requests, now_ms: int) -> Later:
        """Return the stored form of *requests*, of which some may not wait.

        Raises:
            MalformedBatchError: A record is invalid.
            ValidationError: A record requests two delays, an invalid one, or one that exceeds the
                maximum.
            OverloadedError: The maximum number of messages wait.
            TooLargeError: As of :meth:`stored_later`.
        """
        destination = requests.destination
        records: list[bytes] = []
        waits: list[Wait | None] = []
        pointers: list[str] = []
        for row, (record, properties) in enumerate(requests_of(requests)):
            pointer = f"/body/records/{row}"
            wait = self._wait_requested(properties, f"{pointer}/properties", now_ms)
            is_now = wait is None  # what has been requested must not be stored with it
            plain = rewritten(record, destination, without=WAITING_NAMES) if is_now else record
            records.append(plain)
            waits.append(wait)
            pointers.append(pointer)
        self.check_room(sum(wait is not None for wait in waits))
        return self.stored_later(destination, records, waits, pointers)

    def stored_later(
        self,
        destination: Destination,
        records: Sequence[bytes],
        waits: Sequence[Wait | None],
        pointers: Sequence[str],
    ) -> Later:
        """Return the stored form of *records*, which go to *destination* after these *waits*.

        Raises:
            TooLargeError: A message's properties leave no room for those of waiting, or no segment
                can hold it with the event of its delivery.
        """
        places: dict[Destination, list[bytes]] = {}
        order = list[tuple[Destination, int]]()
        for record, wait, pointer in zip(records, waits, pointers, strict=True):
            place = destination if wait is None else wait.place
            some = places.setdefault(place, [])
            order.append((place, len(some)))
            try:
                some.append(record if wait is None else waiting(record, wait, destination))
            except PropertiesTooLargeError as error:
                raise TooLargeError(f"{pointer}: to be delayed, {error}") from error
        numbers = {place: number for number, place in enumerate(places)}
        batches = [batch_of_records(*place, some) for place, some in places.items()]
        self.check_sizes(batches)
        return Later(
            destination,
            batches,
            [(numbers[place], index) for place, index in order],
            list(waits),
        )

    async def page(
        self, *, topic: str | None, limit: int, after: tuple[int, int] | None
    ) -> tuple[ScheduledList, tuple[int, int] | None]:
        """Return up to *limit* waiting messages as they become due, and the last one's place.

        With a topic, a page examines a bounded number of waiting messages. It may contain fewer
        than *limit*, or none, and not be the last.
        """
        found: list[ScheduledMessage] = []
        damaged: list[DamagedScheduled] = []
        last = None if after is None else Timer(*after)
        pace = Pace()
        timers = self._store.timers.following(last)
        for _ in range(0, LOOKED_AT_MAX, _LOOKED_AT_ONCE):
            some = list(islice(timers, _LOOKED_AT_ONCE))
            for last in some:
                message = self._message(last, topic)
                if isinstance(message, DamagedScheduled):
                    damaged.append(message)
                elif message is not None:
                    found.append(message)
                if len(found) + len(damaged) == limit:
                    return ScheduledList(scheduled=found, damaged=damaged), last
            if len(some) < _LOOKED_AT_ONCE:
                return ScheduledList(scheduled=found, damaged=damaged), None
            if await pace.step():
                timers = self._store.timers.following(last)
        return ScheduledList(scheduled=found, damaged=damaged), last

    def recall_handle(self, topic: str, due_ms: int, message_id: str) -> str:
        """Return the handle that recalls a message of this broker before it goes to *topic*."""
        return encode_recall_handle(RecallHandle(topic, self._broker_name, due_ms, message_id))

    async def recall(self, recall_handle: str) -> None:
        """Ensure that a waiting message is never delivered; durable on return.

        Copies with the same topic, delivery time and id are one message, and are recalled together.

        Raises:
            ScheduledNotFoundError: No such message was ever scheduled.
            AlreadyDeliveredError: It was delivered, or is being delivered now.
            ValidationError: The handle is another broker's, or an id without topic and broker; or
                too many other messages have the id among their keys to find it.
        """
        handle = self._handle_of(recall_handle)
        timers = [timer for timer, _ in self._waited(handle.message_id, handle)]
        if not timers:
            raise ScheduledNotFoundError(
                f"this broker never scheduled a message with id {handle.message_id!r} for topic "
                f"{handle.topic!r} at {rfc3339(handle.deliver_at_ms)}"
            )
        pending = self._store.timers
        held = pending.take(timers)
        if held:
            try:
                await self._store.change(TimersCancelled([timer.id for timer in held]))
            except Exception:
                pending.give_back(held)
                raise
            return
        first_id = min(timer.id for timer in timers)
        if any(pending.is_held(timer.id) for timer in timers) or self._is_delivered(
            handle, first_id
        ):
            raise AlreadyDeliveredError(f"message {handle.message_id!r} has been delivered")

    def _handle_of(self, text: str) -> RecallHandle:
        try:
            handle = decode_recall_handle(text)
        except MalformedRecallHandleError:
            raise self._bare_id(text) from None
        if handle.broker_name != self._broker_name:
            raise ValidationError.at(
                _HANDLE_POINTER,
                f"expected a handle of broker {self._broker_name!r}, found one of "
                f"{handle.broker_name!r}",
                fix=f"send the request to broker {handle.broker_name}",
            )
        return handle

    def _bare_id(self, message_id: str) -> ErucaError:
        """Return the refusal of a text that is not a handle; it names every message with that id.

        Not even a single message is recalled by its id alone: the intended one may have been
        delivered a moment ago.
        """
        waited = self._waited(message_id, None)
        if not waited:
            return ScheduledNotFoundError(
                f"expected a recall handle, found {message_id[:80]!r}; this broker never scheduled "
                "a message with that id"
            )
        waiting_now = [
            f"topic {topic!r}, due at {rfc3339(timer.due_ms)}: recall_handle "
            + self.recall_handle(topic, timer.due_ms, message_id)
            for timer, topic in waited
            if self._store.timers.is_pending(timer)
        ]
        return ValidationError(
            f"{_HANDLE_POINTER}: expected a recall handle, found the message id {message_id!r}, "
            f"which {len(waiting_now)} scheduled messages of this broker have",
            errors=[{"pointer": _HANDLE_POINTER, "detail": detail} for detail in waiting_now],
            fix="give the recall_handle of the receipt, or of GET /v1/scheduled",
        )

    def _wait_of(self, message: NewMessage, pointer: str, now_ms: int) -> Wait | None:
        ways = [
            name
            for name in ("deliver_at", "delay_seconds", "delay_level")
            if getattr(message, name) is not None
        ]
        if not ways:
            return None
        if len(ways) > 1:
            raise _fault(f"{pointer}/{ways[1]}", f"{' and '.join(ways)} exclude each other")
        if message.delay_level is not None:
            wait = Wait(level=message.delay_level)
        elif message.delay_seconds is not None:
            if message.delay_seconds > self._delay_seconds_max:  # before it is a number of ms
                raise self._too_late(f"{pointer}/delay_seconds", message.delay_seconds)
            wait = Wait(deliver_at_ms=now_ms + math.ceil(message.delay_seconds * 1000))
        else:
            assert message.deliver_at is not None
            wait = Wait(deliver_at_ms=ms_not_before(message.deliver_at))
        return self._begun(wait, f"{pointer}/{ways[0]}", now_ms)

    def _wait_requested(self, properties: bytes, pointer: str, now_ms: int) -> Wait | None:
        """Return the wait that a record's properties request."""
        given = {name: text for name in _REQUESTS if (text := property_of(properties, name))}
        if not given:
            return None
        name, *others = given
        if others:
            raise _fault(f"{pointer}/{others[0]}", f"{name} and {others[0]} exclude each other")
        text, pointer = given[name], f"{pointer}/{name}"
        if not text.isdigit() or len(text) > _DIGITS_MAX:
            raise _fault(
                pointer,
                f"expected a whole number, found {shown(text.decode('utf-8', 'replace'))!r}",
            )
        number = int(text)
        if name == DELAY:
            if number > DELAY_LEVEL_MAX:
                raise _fault(pointer, f"expected a level up to {DELAY_LEVEL_MAX}, found {number}")
            return self._begun(Wait(level=number), pointer, now_ms) if number else None
        unit_ms, is_from_now = _REQUESTS[name]
        wait = Wait(deliver_at_ms=is_from_now * now_ms + unit_ms * number)
        return self._begun(wait, pointer, now_ms)

    def _begun(self, wait: Wait, pointer: str, now_ms: int) -> Wait | None:
        """Return *wait* as it begins now; None if its time has come."""
        delay_ms = wait.time_ms(now_ms) - now_ms
        if delay_ms > self._delay_seconds_max * 1000:
            raise self._too_late(pointer, delay_ms / 1000)
        return wait.beginning(now_ms, self._store.last_store_timestamp) if delay_ms > 0 else None

    def _too_late(self, pointer: str, seconds: float) -> ValidationError:
        return _fault(
            pointer,
            f"it requests a delay of {seconds:.15g} seconds; delay_seconds_max of this broker is "
            f"{self._delay_seconds_max:.15g}",
        )

    def _message(
        self, timer: Timer, topic: str | None
    ) -> ScheduledMessage | DamagedScheduled | None:
        try:
            raw = self._store.log.raw(timer.id)
        except RecordNotFoundError as error:
            return DamagedScheduled(
                log_offset=timer.id, deliver_at=moment(timer.due_ms), reason=error.detail
            )
        stored_at_ms = decode_record(raw, check_crc=False).store_timestamp
        properties = properties_of(raw)
        destination = destination_of(properties)
        if destination is None or (topic is not None and destination.topic != topic):
            return None
        message_id = property_of(properties, UNIQ_KEY).decode("utf-8", "replace")
        is_recallable = message_id and not is_retry(destination)
        return ScheduledMessage(
            recall_handle=self.recall_handle(destination.topic, timer.due_ms, message_id)
            if is_recallable
            else None,
            message_id=message_id or None,
            topic=destination.topic,
            queue_id=destination.queue_id,
            deliver_at=moment(timer.due_ms),
            stored_at=moment(stored_at_ms),
            log_offset=timer.id,
            size=len(raw),
        )

    def _waited(self, message_id: str, handle: RecallHandle | None) -> list[tuple[Timer, str]]:
        """Return all timers that ever existed for messages with an id, each with its topic.

        With a *handle*, only those with its topic and delivery time.
        """
        waited = list[tuple[Timer, str]]()

        def is_meant(record: Record) -> bool:
            timer = _timer_of(record)
            if timer is None or (
                handle is not None and not handle.is_of(timer[1], timer[0].due_ms)
            ):
                return False
            waited.append(timer)
            return True

        for waiting_topic in (SCHEDULE_TOPIC, TIMER_TOPIC):
            self._with_id(waiting_topic, message_id, count_max=_SAME_ID_MAX, is_wanted=is_meant)
        return waited

    def _is_delivered(self, handle: RecallHandle, timer_id: int) -> bool:
        """Tell whether the message of a handle was delivered after it had waited at *timer_id*."""
        return bool(
            self._with_id(
                handle.topic,
                handle.message_id,
                count_max=1,
                since_offset=timer_id + 1,
                # An earlier one with the same id is another message's.
                is_wanted=lambda record: record.store_timestamp >= handle.deliver_at_ms,
            )
        )

    def _with_id(
        self,
        topic: str,
        message_id: str,
        *,
        count_max: int,
        since_offset: int | None = None,
        is_wanted: Callable[[Record], bool] | None = None,
    ) -> list[Record]:
        """Return a topic's newest messages with an id; their bodies do not matter.

        Raises:
            ValidationError: Too many messages have it among their keys to find those.
        """
        found: list[Record] = []
        others = 0

        def has_id(record: Record) -> bool:
            nonlocal others
            if property_of(_properties_of(record), UNIQ_KEY) != message_id.encode():
                others += 1
                if others == WITH_KEY_MAX:
                    raise _TooManyOthersError
                return False
            if is_wanted is None or is_wanted(record):
                found.append(record)
            return len(found) == count_max

        try:
            self._store.log.by_key(
                topic,
                message_id,
                count_max=1,  # the last one needed
                begin_ms=0,
                end_ms=_TIME_MAX,
                since_offset=since_offset,
                is_wanted=has_id,
            )
        except _TooManyOthersError:
            if not found:
                raise _fault(
                    _HANDLE_POINTER,
                    f"{WITH_KEY_MAX} messages have {message_id!r} among their keys, so the broker "
                    "cannot decide whether one has it as its id",
                ) from None
        return found


class _TooManyOthersError(Exception):
    """So many messages have an id among their keys that no further ones are examined."""


def _timer_of(record: Record) -> tuple[Timer, str] | None:
    """Return the timer of a record that waits, or waited, and the topic it was for.

    None for a retry, which belongs to its group.
    """
    properties = _properties_of(record)
    destination = destination_of(properties)
    due_ms = delivery_time(record.topic, properties, record.store_timestamp)
    if destination is None or due_ms is None or is_retry(destination):
        return None
    return Timer(due_ms, record.log_offset), destination.topic


def _properties_of(record: Record) -> bytes:
    return record.properties.encode("utf-8", "surrogatepass")


def _is_delayed(message: NewMessage) -> bool:
    return not (
        message.deliver_at is None and message.delay_seconds is None and message.delay_level is None
    )


def _fault(pointer: str, detail: str) -> ValidationError:
    return ValidationError.at(pointer, detail)
