"""Sending: store a request's messages in the log, as durably as configured.

Nothing is changed before the whole request has been checked: not even a topic is created for a
batch that is then refused. The sender's callback is called; nothing is awaited. There is a task
only if a topic must be created first.

Source: RocketMQ 5.3, ``SendMessageProcessor``, ``AbstractSendMessageProcessor.msgCheck``.
"""

from __future__ import annotations

import asyncio
import os
import secrets
from bisect import bisect_left
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import lru_cache, partial
from typing import Final, NamedTuple, TypeAlias

import msgspec

from eruca.contract.errors import ErucaError, LaneGapError, MisdirectedError
from eruca.contract.message_ids import encode_offset_id
from eruca.contract.messages import BatchReceipt, NewMessage, SendReceipt
from eruca.contract.records import IPV6_HOST_SIZE, Host
from eruca.contract.wire import LanePosition
from eruca.core.messages.unique_ids import UniqueIds
from eruca_broker.core.batches.batch import Batch, batch_of_records, check_batch
from eruca_broker.core.batches.born_hosts import with_room_for
from eruca_broker.core.batches.delayed_batch import begun_requests
from eruca_broker.core.batches.gathered import SINGLE_SIZE_MAX
from eruca_broker.core.batches.lanes import Lanes
from eruca_broker.core.records.new_messages import encode_messages, queue_of_sharding_keys
from eruca_broker.core.records.scheduled import Destination, Wait
from eruca_broker.core.records.times import rfc3339
from eruca_broker.core.state.state import Topic
from eruca_broker.processors.replication.copies import GroupCopies
from eruca_broker.processors.scheduled import Later, Scheduled, StoredLater, StoredWaiting
from eruca_broker.processors.topics import Topics
from eruca_broker.processors.traffic import by_topic
from eruca_broker.store.files.refusals import renewed
from eruca_broker.store.log.appended import Appended
from eruca_broker.store.message_store import MessageStore
from eruca_chassis.clock import Clock

Sent: TypeAlias = Callable[[Appended | Exception], None]
"""Called once with the outcome of a batch; must not raise, because others wait behind it."""

APPEND_BUCKETS: Final = (
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0,
)  # fmt: skip  # seconds, upper bounds
TURNS_MAX: Final = 100_000  # topics whose turn is remembered


class Draft(NamedTuple):
    """Messages that have been checked and encoded, and are not in the log yet."""

    topic: Topic  # may have to be created
    destination: Destination
    records: list[bytes]
    unique_ids: list[str]
    waits: list[Wait | None] | None  # None: nothing is delayed

    @property
    def is_single(self) -> bool:
        """It is one small message, to be stored now, for a topic that is there."""
        return (
            self.waits is None
            and len(self.records) == 1
            and len(self.records[0]) <= SINGLE_SIZE_MAX
            and bool(self.topic.created_at)
        )


class SendCounts:
    """Counters of sends since the start: updated per request, never per message."""

    __slots__ = ("append_buckets", "append_seconds", "by_topic", "bytes", "messages", "requests")

    def __init__(self) -> None:
        self.messages = 0
        self.bytes = 0  # of records
        self.by_topic = by_topic()
        self.requests = 0
        self.append_seconds = 0.0  # sum of the times from the append to its answer
        self.append_buckets = [0] * (len(APPEND_BUCKETS) + 1)


class Sender:
    """Sends to topics of this broker."""

    def __init__(
        self,
        store: MessageStore,
        topics: Topics,
        scheduled: Scheduled,
        *,
        broker_name: str,
        store_host: Host,
        clock: Clock,
        copies: GroupCopies,
    ) -> None:
        self.counts = SendCounts()
        self.copies = copies
        self._store = store
        self._topics = topics
        self._scheduled = scheduled
        self._broker_name = broker_name
        self.store_host = store_host
        self._store_host_text = store_host.text
        self._clock = clock
        self._unique_ids = UniqueIds(store_host.address, secrets.randbits(32), secrets.randbits(16))
        self._process_id = os.getpid()
        self._creating: set[asyncio.Task[None]] = set()  # of topics
        self._lanes = Lanes()
        self._turns: dict[str, int] = {}  # round robin: the queue whose turn it is in each topic

    def admit(
        self, topic: str, queue_id: int | None, *, copies: int = 1, may_be_stored: bool = False
    ) -> None:
        """Raise what :meth:`send_records` would, as far as it is known without the body.

        With fewer replicas in sync than *copies*, nothing is stored.

        A message that may be stored already, under its idempotency key, is looked up even if writes
        are refused: repeating its receipt writes nothing.
        """
        if self._store.refusal is not None and not may_be_stored:
            raise renewed(self._store.refusal)
        if copies > 1:
            self.copies.check(copies)
        self._topics.for_sending(topic, queue_id)

    def send_records(
        self, topic: str, queue_id: int, buffer: bytearray, born_host: Host, done: Sent
    ) -> None:
        """Append a batch of records in *buffer*, unchanged from the request, and call *done*.

        Raises:
            MalformedBatchError: It is invalid.
            TooLargeError: A message in it exceeds a limit.
        """
        self.append_checked(self.checked(topic, queue_id, buffer), born_host, done)

    def checked(self, topic: str, queue_id: int, buffer: bytearray) -> Batch:
        """Return the batch in *buffer*, for :meth:`append_checked`; raise as sending it would."""
        return check_batch(buffer, topic=topic, queue_id=queue_id, store_host=self.store_host)

    def append_checked(self, batch: Batch, born_host: Host, done: Sent) -> None:
        """Append the result of :meth:`checked`, and call *done*."""
        wanted = self._topics.for_sending(batch.topic, batch.queue_id)
        self._append(wanted, *with_room_for(batch, born_host), done)

    def send_in_lane(  # noqa: PLR0917 - as above
        self,
        position: LanePosition,
        topic: str,
        queue_id: int,
        buffer: bytearray,
        born_host: Host,
        done: Sent,
    ) -> None:
        """Append a batch as :meth:`send_records` does, if the one before it is appended.

        Raises:
            LaneGapError: It is not, or was taken back.
            MalformedBatchError: As there.
            TooLargeError: As there.
        """
        self._lanes.check(position)
        batch = self.checked(topic, queue_id, buffer)
        wanted = self._topics.for_sending(topic, queue_id)
        room = with_room_for(batch, born_host)
        is_now = bool(wanted.created_at)
        told = partial(self._settled_in_lane, position, done, is_now)
        if is_now:  # else no later one may come before it
            self._lanes.accept(position)
        try:
            self._append(wanted, *room, told)
        except ErucaError:
            self._lanes.close(position)
            raise

    def send_requests(
        self,
        topic: str,
        queue_id: int,
        buffer: bytearray,
        born_host: Host,
        done: Callable[[StoredWaiting | StoredLater | Exception], None],
    ) -> None:
        """Append a batch of records that may request delivery times, all or none.

        Raises:
            MalformedBatchError: It is invalid.
            ValidationError: A record requests an invalid delay, or one that exceeds the maximum.
            TooLargeError: A message in it exceeds a limit.
            OverloadedError: The maximum number of messages wait.
        """
        requests = begun_requests(
            buffer, topic=topic, queue_id=queue_id, store_host=self.store_host
        )
        wanted = self._topics.for_sending(topic, queue_id)
        now_ms = self._clock.now_ms()
        batch = self._scheduled.waiting(requests, now_ms)
        if batch is None:
            later = self._scheduled.later(requests, now_ms)
            roomy = [with_room_for(each, born_host) for each in later.batches]
            _, born_host = roomy[0]  # all have one layout
            later = later._replace(batches=[each for each, _ in roomy])
            self._append_later(wanted, later, born_host, done)
            return
        batch, born_host = with_room_for(batch, born_host)

        def told(outcome: Appended | Exception) -> None:
            if isinstance(outcome, Appended):
                done(StoredWaiting(requests.destination, outcome))
            else:
                done(outcome)

        settle = partial(self._appended, self._clock.monotonic(), 1, told)
        append = partial(self._store.append_then, batch, born_host, settle)
        self.once_there(wanted, queue_id, append, done)

    def now(self) -> float:
        """Return the monotonic time, from which the time of an append counts."""
        return self._clock.monotonic()

    def append_gathered(self, batch: Batch, started: float, done: Sent) -> bool:
        """Append a batch of single records, each a request of its own; see :mod:`.singles`.

        Args:
            batch: The records, which have their peers' addresses.
            started: The monotonic time of the first request.
            done: Called with the outcome.

        Returns:
            Whether it was accepted; False if the topic must be created first.

        Raises:
            ErucaError: It is refused; *done* is not called.
        """
        wanted = self._topics.for_sending(batch.topic, batch.queue_id)
        if not wanted.created_at:
            return False
        told = partial(self._appended, started, batch.count, done)
        # If there are several, readers come first: they would wait for all the answers.
        self._store.append_then(batch, None, told, is_answered_first=batch.count == 1)
        return True

    def send(  # noqa: PLR0917 - as above
        self,
        topic: str,
        queue_id: int | None,
        messages: Sequence[NewMessage],
        pointers: Sequence[str],
        born_host: Host,
        done: Callable[[Sequence[str], Appended | StoredLater | Exception], None],
    ) -> None:
        """Append messages that came as JSON, to one queue, all or none; now, or when it is time.

        Args:
            topic: Their topic.
            queue_id: None: their sharding key selects it, or the topic's queues take turns.
            messages: At least one.
            pointers: The place of each in the request, for errors.
            born_host: The peer's address.
            done: Called with the messages' unique ids and the outcome.

        Raises:
            ValidationError: A message is invalid, or the sharding keys select several queues.
            TooLargeError: A message or all of them together exceed a limit.
            MisdirectedError: The topic's order config assigns this key to a queue on another
                broker.
        """
        draft = self.draft(topic, queue_id, messages, pointers, born_host)
        self.send_draft(draft, pointers, born_host, done)

    def send_draft(
        self,
        draft: Draft,
        pointers: Sequence[str],
        born_host: Host,
        done: Callable[[Sequence[str], Appended | StoredLater | Exception], None],
    ) -> None:
        """Append the result of :meth:`draft`, as :meth:`send` does."""
        destination, told = draft.destination, partial(done, draft.unique_ids)
        if draft.waits is None:
            batch = batch_of_records(*destination, draft.records)
            self._append(draft.topic, batch, born_host, told)
            return
        later = self._scheduled.stored_later(destination, draft.records, draft.waits, pointers)
        self._append_later(draft.topic, later, born_host, told)

    def draft(
        self,
        topic: str,
        queue_id: int | None,
        messages: Sequence[NewMessage],
        pointers: Sequence[str],
        born_host: Host,
    ) -> Draft:
        """Return the records of messages that may be sent, as :meth:`send` would store them.

        Raises:
            ValidationError: As there.
            TooLargeError: A message exceeds a limit.
            MisdirectedError: As there.
        """
        wanted = self._topics.for_sending(topic, queue_id)
        if queue_id is None:  # else the client decides: it may know the queues of all brokers
            queue_id = self._queue_by_key(wanted, messages, pointers)
        if queue_id is None:
            queue_id = self._turn(wanted.write_queue_count, topic)
        now_ms = self._clock.now_ms()
        waits = self._scheduled.waits_of(messages, pointers, now_ms)
        encoded = encode_messages(
            messages,
            pointers=pointers,
            topic=topic,
            queue_id=queue_id,
            born_host=born_host,
            store_host=self.store_host,
            now_ms=now_ms,
            next_unique_id=partial(self._unique_ids.next, now_ms, self._process_id),
        )
        return Draft(wanted, Destination(topic, queue_id), *encoded, waits)

    def receipt_of(self, appended: Appended) -> BatchReceipt:
        """Return the receipt for the sender of a batch of records."""
        return BatchReceipt(
            queue_id=appended.batch.queue_id,
            queue_offset=appended.queue_offset,
            log_offset=appended.log_offset,
            count=appended.batch.count,
            stored_at_ms=appended.store_timestamp,
            durability=self._store.durability,
            copies=self.copies.held_before(appended.end_offset),
            born_host_is_ipv6=appended.batch.layout.born_host_size == IPV6_HOST_SIZE,
            store_host=self._store_host_text,
        )

    def receipt_of_requests(self, stored: StoredWaiting | StoredLater) -> BatchReceipt:
        """Return the receipt for the sender of records that may have requested delivery times."""
        first = stored.appended if isinstance(stored, StoredWaiting) else stored.appended[0]
        places = stored.places()
        return msgspec.structs.replace(
            self.receipt_of(first),
            queue_id=stored.destination.queue_id,
            count=len(places.log_offsets),
            scheduled=places,
        )

    def single_receipts_of(self, appended: Appended) -> list[bytes]:
        """Return the receipts for the senders of single records that were appended together."""
        batch, receipt = appended.batch, self.receipt_of(appended)
        if batch.count == 1:
            return [_ENCODER.encode(receipt)]
        encoded = _ENCODER.encode(msgspec.structs.replace(receipt, count=1))
        place = b'"queue_offset":%d,"log_offset":%d,'
        first = place % (receipt.queue_offset, receipt.log_offset)
        before, found, after = encoded.replace(b"%", b"%%").partition(first)
        assert found, "the place of a receipt is encoded otherwise"
        form = before + place + after
        queue_offset, log_offset = receipt.queue_offset, receipt.log_offset
        return [
            form % (queue_offset + row, log_offset + start)
            for row, start in enumerate(batch.starts)
        ]

    def receipts_of(
        self, appended: Appended | StoredLater, unique_ids: Sequence[str]
    ) -> list[SendReceipt]:
        """Return the receipts for the sender of JSON messages, one for each."""
        if isinstance(appended, StoredLater):
            return self._receipts_later(appended, unique_ids)
        batch, first = appended.batch, appended.log_offset
        assert batch.count == len(unique_ids), "a message would get another one's place"
        stored_at = _shown_time(appended.store_timestamp)
        copies = self.copies.held_before(appended.end_offset)
        return [
            SendReceipt(
                topic=batch.topic,
                broker_name=self._broker_name,
                queue_id=batch.queue_id,
                queue_offset=appended.queue_offset + index,
                log_offset=first + start,
                message_id=unique_ids[index],
                offset_message_id=encode_offset_id(self.store_host, first + start),
                stored_at=stored_at,
                durability=self._store.durability,
                copies=copies,
            )
            for index, start in enumerate(batch.starts)
        ]

    def _receipts_later(self, stored: StoredLater, unique_ids: Sequence[str]) -> list[SendReceipt]:
        stored_at = rfc3339(stored.appended[0].store_timestamp)
        destination = stored.later.destination
        copies = self.copies.held_before(stored.appended[-1].end_offset)
        receipts = []
        for number, unique_id in enumerate(unique_ids):
            log_offset, due_ms = stored.log_offset(number), stored.deliver_at_ms(number)
            receipts.append(
                SendReceipt(
                    topic=destination.topic,
                    broker_name=self._broker_name,
                    queue_id=destination.queue_id,
                    queue_offset=stored.queue_offset(number),
                    log_offset=log_offset,
                    message_id=unique_id,
                    offset_message_id=encode_offset_id(self.store_host, log_offset),
                    stored_at=stored_at,
                    durability=self._store.durability,
                    copies=copies,
                    deliver_at=None if due_ms is None else rfc3339(due_ms),
                    recall_handle=None
                    if due_ms is None
                    else self._scheduled.recall_handle(destination.topic, due_ms, unique_id),
                )
            )
        return receipts

    def _append(self, wanted: Topic, batch: Batch, born_host: Host, done: Sent) -> None:
        told = partial(self._appended, self._clock.monotonic(), 1, done)
        if wanted.created_at:
            self._store.append_then(batch, born_host, told)
        else:
            append = partial(self._store.append_then, batch, born_host, told)
            self.once_there(wanted, batch.queue_id, append, done)

    def _settled_in_lane(
        self,
        position: LanePosition,
        done: Sent,
        is_accepted: bool,  # noqa: FBT001 - bound by position
        outcome: Appended | Exception,
    ) -> None:
        if isinstance(outcome, Exception):
            self._lanes.close(position)
        elif not is_accepted:
            with suppress(LaneGapError):  # a later epoch may have begun meanwhile
                self._lanes.check(position)
                self._lanes.accept(position)
        done(outcome)

    def _append_later(
        self,
        wanted: Topic,
        later: Later,
        born_host: Host,
        done: Callable[[StoredLater | Exception], None],
    ) -> None:
        started = self._clock.monotonic()

        def told(outcome: list[Appended] | ErucaError) -> None:
            if isinstance(outcome, ErucaError):
                done(outcome)
                return
            self._count(
                self._clock.monotonic() - started, *(appended.batch for appended in outcome)
            )
            done(StoredLater(later, outcome))

        append = partial(self._store.append_group_then, later.batches, born_host, told)
        self.once_there(wanted, later.destination.queue_id, append, done)

    def once_there(
        self,
        wanted: Topic,
        queue_id: int,
        append: Callable[[], None],
        done: Callable[[Exception], None],
    ) -> None:
        """Call *append* when the topic exists, now if it does; else *done* gets the error.

        Another request may create it meanwhile with other settings: without that queue, or not
        writable.

        Raises:
            ErucaError: *append* raised it, now.
        """
        if wanted.created_at:
            append()
            return
        creating = asyncio.create_task(self._create_and_append(wanted, queue_id, append))
        self._creating.add(creating)
        creating.add_done_callback(partial(self._created, done))

    async def _create_and_append(
        self, wanted: Topic, queue_id: int, append: Callable[[], None]
    ) -> None:
        await self._topics.created(wanted)
        self._topics.for_sending(wanted.name, queue_id)
        append()

    def _created(self, done: Callable[[Exception], None], creating: asyncio.Task[None]) -> None:
        self._creating.discard(creating)
        error = None if creating.cancelled() else creating.exception()
        if isinstance(error, Exception):
            done(error)

    def _appended(
        self, started: float, request_count: int, done: Sent, outcome: Appended | ErucaError
    ) -> None:
        seconds = self._clock.monotonic() - started
        done(outcome)
        if isinstance(outcome, Appended):  # counted while the client goes on
            self._count(seconds, outcome.batch, request_count=request_count)

    def _count(self, seconds: float, *batches: Batch, request_count: int = 1) -> None:
        counts = self.counts
        counts.requests += request_count
        for batch in batches:
            counts.messages += batch.count
            counts.bytes += batch.size
            counts.by_topic.add(batch.topic, batch.count, batch.size)
        counts.append_seconds += seconds * request_count
        counts.append_buckets[bisect_left(APPEND_BUCKETS, seconds)] += request_count

    def _queue_by_key(
        self, topic: Topic, messages: Sequence[NewMessage], pointers: Sequence[str]
    ) -> int | None:
        """Return the queue that the sharding keys select, or None if no message has one."""
        order = topic.order_config
        if order is None:
            return queue_of_sharding_keys(messages, pointers, topic.write_queue_count)
        index = queue_of_sharding_keys(messages, pointers, order.queue_count)
        if index is None:
            return None
        broker_name, queue_id = order.place_of(index)
        if broker_name != self._broker_name:
            raise MisdirectedError(
                f"the sharding key assigns the message to queue {queue_id} of topic "
                f"{topic.name!r} at {broker_name}; this is {self._broker_name}",
                fix=f"send it to {broker_name}: GET /v1/topics/{topic.name}/route of a name server "
                "has its URL",
            )
        self._topics.for_sending(topic.name, queue_id)
        return queue_id

    def _turn(self, queue_count: int, topic: str) -> int:
        if len(self._turns) > TURNS_MAX:
            self._turns.clear()  # deleted topics may be most of them
        assert queue_count > 0, "a topic without queues to write to is refused before"
        turn = self._turns.get(topic, 0) % queue_count
        self._turns[topic] = turn + 1
        return turn


_ENCODER: Final = msgspec.json.Encoder()
# Everything stored in one tick of the event loop has one time.
_shown_time: Final = lru_cache(maxsize=4)(rfc3339)
