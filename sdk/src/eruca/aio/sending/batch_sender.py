"""Send one batch: choose a queue, try, and retry at other brokers until the deadline.

A batch is stored whole or not at all. If an answer was lost, the batch may be stored nevertheless,
and a retry may store it twice. All attempts carry the same unique ids, so a consumer can detect
duplicates. An idempotent producer uses the first id as the batch's idempotency key. It retries only
at the broker that may have stored the batch, until the outcome is known.

If a broker refuses a batch whose messages were sent one by one, the sender finds the invalid
message. It halves the batch until the invalid message is alone, so that no other message fails with
it.

Batches are sent as records. A batch with a delayed message has a form of its own. A broker that
does not know it gets JSON, and so does each broker from an idempotent producer. A batch whose first
message has a W3C ``traceparent`` has it as a header, too: the broker's span of the request is in
that trace.

Source: RocketMQ 5.3, ``DefaultMQProducerImpl.sendDefaultImpl``, ``MQFaultStrategy``.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Final, Generic, NamedTuple, TypeVar

import msgspec

from eruca.aio.http.transport import (
    JSON_HEADER,
    UNREADABLE,
    ConnectTimeoutError,
    HttpTransport,
    NotConnectedError,
    path_segment,
    problem_error,
    target_of,
)
from eruca.aio.local_address import local_address
from eruca.aio.process import process_id
from eruca.aio.sending.attempts import (
    Attempts,
    is_awaited,
    is_raised_unchanged,
    may_be_stored,
    next_retry,
    remaining_seconds,
    tried,
)
from eruca.aio.sending.send_lane import PendingBatch
from eruca.contract.errors import (
    ErucaError,
    LaneGapError,
    MalformedBatchError,
    SendFailedError,
    TooLargeError,
    TransportError,
    ValidationError,
)
from eruca.contract.messages import BatchReceipt, SendReceipts
from eruca.contract.properties import TRACE_CONTEXT, TRACE_PARENT
from eruca.contract.records import NO_HOST, Buffer, Host
from eruca.contract.wire import RECORDS_MEDIA_TYPE, LanePosition, with_delays, with_position
from eruca.core.call_statistics import ClientStatistics
from eruca.core.messages.idempotency_keys import HEADER, REPLAYED_HEADER, encode_key
from eruca.core.messages.json_messages import json_batch
from eruca.core.messages.message import Message, any_delayed
from eruca.core.messages.message_queue import MessageQueue
from eruca.core.messages.record_batch import EncodedBatch, encode_messages
from eruca.core.messages.unique_ids import UniqueIds
from eruca.core.producing.send_result import Stored, StoredBatch, StoredMessages
from eruca.core.retry_policy import Patience, attempt_seconds
from eruca.core.routing.latency_fault import FaultTable

if TYPE_CHECKING:
    from eruca.aio.cluster.routes import Routes
    from eruca.core.routing.route_table import PublishView

THREAD_COMPRESSION_SIZE: Final = 256 * 1024  # bytes to compress from which a thread does it
WITHOUT_FORM_SECONDS: Final = 60.0  # then a broker that did not know a form gets it again
_CONTENT_ERRORS: Final = (ValidationError, MalformedBatchError, TooLargeError)
# On a lane's own connection: nothing was sent, and the pooled connections may work.
_PIPE_ERRORS: Final = (NotConnectedError, ConnectTimeoutError)
_JSON_HEADERS: Final = (JSON_HEADER, ("accept", "application/json"))
_RECORDS_HEADERS: Final = (("content-type", RECORDS_MEDIA_TYPE), ("accept", "application/json"))

T = TypeVar("T")


class BatchSender:
    """Sends batches for one producer.

    Args:
        transport: Carries the hot routes.
        routes: The client's.
        attempts_max: Maximum number of attempts for a batch.
        faults: The producer's fault table; None while latency fault tolerance is off.
        compression_threshold_bytes: Compress bodies of this size or larger; None: never.
        is_idempotent: Whether batches carry idempotency keys.
        copies: Least number of replicas in sync.
        group: The producer group, for the statistics.
        statistics: The client's.
    """

    def __init__(
        self,
        transport: HttpTransport,
        routes: Routes,
        *,
        attempts_max: int,
        faults: FaultTable | None,
        compression_threshold_bytes: int | None,
        is_idempotent: bool = False,
        copies: int = 1,
        group: str | None,
        statistics: ClientStatistics,
    ) -> None:
        self._transport = transport
        self._attempts = Attempts(routes, faults)
        self._attempts_max = attempts_max
        self._compression_threshold = compression_threshold_bytes
        self._is_idempotent = is_idempotent
        self._group = group
        self._statistics = statistics
        self._copies = copies if copies > 1 else None  # None: not in the request
        # Brokers by URL that know no positions, or no delayed records: until when, monotonic.
        self._without_lanes: dict[str, float] = {}
        self._without_delays: dict[str, float] = {}
        self._unique_ids: UniqueIds | None = None
        self._decoder = msgspec.json.Decoder(BatchReceipt)
        self._json_decoder = msgspec.json.Decoder(SendReceipts)

    async def send(self, batch: PendingBatch) -> None:
        """Send *batch* and set its results or its error."""
        if batch.whole is None:
            batch.drop_cancelled()
        if not batch.messages or (batch.whole is not None and batch.whole.done()):
            return
        begun_at = time.monotonic()
        try:
            stored = await self._send_whole(batch)
        except _CONTENT_ERRORS as error:
            if batch.whole is not None or len(batch.messages) == 1:
                batch.fail(error)
                self._account(batch, begun_at, failed=True)
                return
            if batch.seat is not None:
                batch.seat.is_divided = True
            middle = len(batch.messages) // 2
            for part in (batch.part(0, middle), batch.part(middle, len(batch.messages))):
                await self.send(part)  # one after the other, because they may be ordered
        except ErucaError as error:
            batch.fail(error)
            self._account(batch, begun_at, failed=True)
        else:
            batch.succeed(stored)
            self._account(batch, begun_at)

    async def send_one(self, batch: PendingBatch) -> Stored:
        """Send a batch of one message that nobody can withdraw; return its place.

        Raises:
            ErucaError: It is refused, or every attempt failed.
        """
        assert len(batch.messages) == 1
        begun_at = time.monotonic()
        try:
            stored = await self._send_whole(batch)
        except ErucaError:
            self._account(batch, begun_at, failed=True)
            raise
        self._account(batch, begun_at)
        return stored

    def _account(self, batch: PendingBatch, begun_at: float, *, failed: bool = False) -> None:
        messages = batch.messages
        self._statistics.add_call(
            "send", messages[0].topic, self._group, len(messages), begun_at, failed=failed
        )

    async def _send_whole(self, batch: PendingBatch) -> Stored:
        """Store *batch*, with as many attempts as necessary; return its place."""
        course = _Course(batch)
        while True:
            course.attempt += 1
            try:
                return await self._attempt(course)
            except ErucaError as error:
                if course.had_position and self._goes_again(course, error):
                    continue
                course.failures.append((course.broker_name or "no broker", error))
                if self._is_idempotent and may_be_stored(error):
                    course.kept_queue = course.queue
                await self._prepare_next(course, error)

    async def _attempt(self, course: _Course) -> Stored:
        batch = course.batch
        topic = batch.messages[0].topic
        view = self._attempts.known_view(topic)
        if view is None:
            view = await self._attempts.view(topic, batch.deadline)
        course.view = view
        queue = batch.queue or course.kept_queue
        queue = course.queue = queue or self._attempts.choose(
            view, course.broker_name, course.patience
        )
        course.broker_name = queue.broker_name
        if view.is_missed(queue):
            view = course.view = await self._attempts.view_with(queue, batch.deadline)
        url = view.url_of(queue)
        host = view.store_hosts.get(queue.broker_name, NO_HOST)
        if any_delayed(batch.messages):
            return await self._store_delayed(course, queue, url, host)
        return await self._store_records(course, queue, url, host)

    async def _store_delayed(
        self, course: _Course, queue: MessageQueue, url: str, host: Host
    ) -> Stored:
        """Store a batch with a delayed message, as records or as JSON.

        If a broker refuses the records, their form or their content is at fault: it is asked once
        more, in JSON. Only if that is stored, the form was at fault.
        """
        if self._is_idempotent or _is_until(self._without_delays, url):
            return await self._store_json(course, queue, url)
        try:
            return await self._store_records(course, queue, url, host, are_delayed=True)
        except MalformedBatchError:
            stored = await self._store_json(course, queue, url)
            self._without_delays[url] = time.monotonic() + WITHOUT_FORM_SECONDS
            return stored

    async def _store_records(
        self,
        course: _Course,
        queue: MessageQueue,
        url: str,
        host: Host,
        *,
        are_delayed: bool = False,
    ) -> StoredBatch:
        batch = course.batch
        encoded = course.encoded
        if encoded is None or course.encoded_for != (queue.queue_id, host.is_v6):
            if batch.message_ids is None:
                batch.message_ids = self._ids_of(batch.messages)
            large_size = self._size_to_compress(batch)
            if large_size >= THREAD_COMPRESSION_SIZE:  # zlib releases the interpreter's lock
                encoded = await asyncio.to_thread(self._encode, batch, queue, host, large_size)
            else:
                encoded = self._encode(batch, queue, host, large_size)
            course.encoded = encoded
            course.encoded_for = (queue.queue_id, host.is_v6)
        target = _records_target(queue.topic, queue.queue_id, self._copies)
        headers = self._headers(_RECORDS_HEADERS, batch)
        parts = with_delays(encoded.body) if are_delayed else (encoded.body,)
        request = _Request(url, target, headers, parts, self._decoder, _count_of)
        if batch.turns is None:
            receipt = await self._post(course, queue, request, self._transport)
        else:
            may_have_position = not self._is_idempotent and not are_delayed
            receipt = await self._post_in_turn(
                course, queue, request, may_have_position=may_have_position
            )
        assert batch.message_ids is not None
        return StoredBatch(
            batch.message_ids, queue, receipt, encoded.sizes, host, course.is_replayed
        )

    async def _store_json(self, course: _Course, queue: MessageQueue, url: str) -> StoredMessages:
        batch = course.batch
        if batch.message_ids is None:
            batch.message_ids = self._ids_of(batch.messages)
        path = f"/v1/topics/{path_segment(queue.topic)}/messages"
        target = target_of(path, queue_id=queue.queue_id, copies=self._copies)
        body = json_batch(batch.messages, batch.message_ids)
        headers = self._headers(_JSON_HEADERS, batch)
        request = _Request(url, target, headers, (body,), self._json_decoder, _count_of_each)
        receipts = (await self._post_in_turn(course, queue, request)).messages
        return StoredMessages(queue, receipts, course.is_replayed)

    def _headers(
        self, headers: Sequence[tuple[str, str]], batch: PendingBatch
    ) -> Sequence[tuple[str, str]]:
        properties = batch.messages[0].properties
        if TRACE_PARENT in properties:
            headers = (*headers, *_trace_headers(properties))
        if not self._is_idempotent:
            return headers
        assert batch.message_ids is not None
        return (*headers, (HEADER, encode_key(batch.message_ids[0])))

    async def _prepare_next(self, course: _Course, error: ErucaError) -> None:
        """Wait until the next attempt is due; raise the final error if there is none."""
        batch, view = course.batch, course.view
        awaits_master = is_awaited(view, course.queue, error)
        if awaits_master:
            course.away.add(course.broker_name)
            attempts_left = 1
        else:
            course.counted += 1
            attempts_left = self._attempts_max - course.counted
        retry = next_retry(
            error,
            attempt=course.attempt,
            attempts_max=course.attempt + attempts_left,
            deadline=batch.deadline,
            last_broker=course.broker_name,
            next_brokers=course.next_brokers - course.away,
            patience=course.patience,
            awaits_master=awaits_master,
        )
        if retry is None:
            raise _final_error(course, error) from error
        await self._attempts.until_next(batch.messages[0].topic, retry, error, batch.deadline)

    def _size_to_compress(self, batch: PendingBatch) -> int:
        """Return the number of bytes in bodies that are large enough to be compressed."""
        threshold = self._compression_threshold
        if threshold is None:
            return 0
        return sum(size for message in batch.messages if (size := len(message.body)) >= threshold)

    def _encode(
        self, batch: PendingBatch, queue: MessageQueue, host: Host, large_size: int
    ) -> EncodedBatch:
        assert batch.message_ids is not None
        return encode_messages(
            batch.messages,
            batch.message_ids,
            queue_id=queue.queue_id,
            born_timestamp=time.time_ns() // 1_000_000,
            store_host_v6=host.is_v6,
            compression_threshold_bytes=self._compression_threshold if large_size else None,
        )

    def _ids_of(self, messages: Sequence[Message]) -> Sequence[str]:
        if self._unique_ids is None:
            self._unique_ids = UniqueIds(local_address(), random.getrandbits(32))
        if len(messages) == 1:
            own = messages[0].message_id
            now_ms = time.time_ns() // 1_000_000
            return (self._unique_ids.next(now_ms, process_id()) if own is None else own,)
        made = self._unique_ids.take(len(messages), time.time_ns() // 1_000_000, process_id())
        if {message.message_id for message in messages} == {None}:
            return made
        return [
            own if (own := message.message_id) is not None else new
            for message, new in zip(messages, made, strict=True)
        ]

    async def _post_in_turn(
        self,
        course: _Course,
        queue: MessageQueue,
        request: _Request[T],
        *,
        may_have_position: bool = False,
    ) -> T:
        """Post a batch, in an ordered lane when its turn comes."""
        batch = course.batch
        turns, seat = batch.turns, batch.seat
        if turns is None or seat is None:
            return await self._post(course, queue, request, self._transport)
        can_have_position = (
            may_have_position
            and not course.is_position_refused
            and not _is_until(self._without_lanes, request.url)
        )
        course.had_position = course.is_ahead = False
        sending = await turns.turn(
            seat, request.url, may_have_position=can_have_position, deadline=batch.deadline
        )
        course.had_position = sending.position is not None
        course.is_ahead = sending.is_ahead
        try:
            answer = await self._post(course, queue, request, sending.transport, sending.position)
        except BaseException as error:
            if seat.is_under_way:  # else the batch has left the lane, which is closed
                turns.failed(seat, sending, error)
            raise
        if course.is_position_refused and may_have_position:  # only its position was refused
            self._without_lanes[request.url] = time.monotonic() + WITHOUT_FORM_SECONDS
        turns.stored(seat, sending)
        return answer

    def _goes_again(self, course: _Course, error: ErucaError) -> bool:
        """Tell whether a batch with a position goes again because of the position alone.

        If an earlier batch of the lane was not stored, this one was not either, and it waits for
        another turn. So it does if the lane has no connection of its own: it goes on a pooled one.
        If the broker refuses the content, an earlier version may have refused the position: the
        batch goes without one. Only if it is stored then, the position was at fault.
        """
        if isinstance(error, (LaneGapError, *_PIPE_ERRORS)):
            return course.is_ahead
        if isinstance(error, MalformedBatchError):
            course.is_position_refused = True
            return True
        return False

    async def _post(
        self,
        course: _Course,
        queue: MessageQueue,
        request: _Request[T],
        transport: HttpTransport,
        position: LanePosition | None = None,
    ) -> T:
        attempts_left = self._attempts_max - course.counted
        if course.view is not None and course.view.has_successor(queue.broker_name):
            attempts_left = max(attempts_left, 2)  # or a silent master would take all of the time
        timeout = attempt_seconds(remaining_seconds(course.batch.deadline), attempts_left)
        body = request.body
        if position is not None:
            [whole] = body
            body = with_position(bytes(whole), position)
        what = f"POST {request.url}{request.target}"
        started = time.monotonic()
        try:
            answer = await transport.request(
                "POST",
                request.url,
                request.target,
                headers=request.headers,
                body=body,
                timeout=timeout,
            )
            if answer.status >= 300:
                raise problem_error(answer, what)
            receipt = request.decoder.decode(answer.body)
            _check_count(queue, request.count_of(receipt), course.batch)
            course.is_replayed = REPLAYED_HEADER in answer.headers
        except UNREADABLE as error:
            failure = TransportError(f"{what}: the receipt is invalid: {error}")
            self._attempts.report(queue, started, failure)
            raise failure from error
        except ErucaError as error:
            if not (course.is_ahead and isinstance(error, _PIPE_ERRORS)):  # no fault of the broker
                self._attempts.report(queue, started, error)
            raise
        self._attempts.report(queue, started, None)
        return receipt


class _Request(NamedTuple, Generic[T]):
    """A request's body, the decoder of its answer, and the number of stored messages there."""

    url: str
    target: str
    headers: Sequence[tuple[str, str]]
    body: tuple[Buffer, ...]
    decoder: msgspec.json.Decoder[T]
    count_of: Callable[[T], int]


class _Course:
    """The progress of sending one batch."""

    __slots__ = (
        "attempt",
        "away",
        "batch",
        "broker_name",
        "counted",
        "encoded",
        "encoded_for",
        "failures",
        "had_position",
        "is_ahead",
        "is_position_refused",
        "is_replayed",
        "kept_queue",
        "patience",
        "queue",
        "view",
    )

    def __init__(self, batch: PendingBatch) -> None:
        self.batch = batch
        self.attempt = 0
        self.counted = 0  # failed attempts that count
        self.away: set[str | None] = set()  # brokers that are awaited
        self.broker_name: str | None = None  # of the last attempt
        self.queue: MessageQueue | None = None  # the last attempt's
        self.kept_queue: MessageQueue | None = None  # where it may already be stored
        self.is_replayed = False
        self.had_position = False  # whether the last attempt named the batch's position in its lane
        self.is_ahead = False  # … and was sent before earlier ones were answered
        self.is_position_refused = False  # perhaps: the broker refused the batch as malformed
        self.view: PublishView | None = None
        self.encoded: EncodedBatch | None = None
        self.encoded_for = (-1, False)  # queue id, whether the store host is IPv6
        self.failures: list[tuple[str, ErucaError]] = []
        self.patience = Patience()

    @property
    def next_brokers(self) -> set[str]:
        """The brokers that the next attempt can use."""
        if (queue := self.batch.queue or self.kept_queue) is not None:
            return {queue.broker_name}
        return set() if self.view is None else {queue.broker_name for queue in self.view.queues}


def _is_until(refused: dict[str, float], url: str) -> bool:
    """Tell whether a broker has refused a form of batches lately."""
    until = refused.get(url)
    if until is not None and until < time.monotonic():
        del refused[url]
        return False
    return until is not None


def _trace_headers(properties: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield the headers of a request in the trace of its first message.

    Only one trace can be the request's. The other messages have theirs in their properties.
    """
    for name in sorted(TRACE_CONTEXT & properties.keys()):
        value = properties[name]
        if value.isascii() and value.isprintable():  # a program may have set anything
            yield name, value


@lru_cache(maxsize=1_024)
def _records_target(topic: str, queue_id: int, copies: int | None) -> str:
    path = f"/v1/topics/{path_segment(topic)}/queues/{queue_id}/records"
    return target_of(path, copies=copies)


def _count_of(receipt: BatchReceipt) -> int:
    return receipt.count


def _count_of_each(receipts: SendReceipts) -> int:
    return len(receipts.messages)


def _check_count(queue: MessageQueue, stored_count: int, batch: PendingBatch) -> None:
    if stored_count != len(batch.messages):
        raise TransportError(
            f"{queue.broker_name}: expected {len(batch.messages)} stored messages, found"
            f" {stored_count}"
        )


def _final_error(course: _Course, error: ErucaError) -> ErucaError:
    if is_raised_unchanged(error, course.failures) or course.broker_name is None:
        return error  # no broker has failed
    attempts, how = tried(course.failures)
    count = len(course.batch.messages)
    what = "1 message" if count == 1 else f"{count} messages"
    return SendFailedError(
        f"{what} to {course.batch.messages[0].topic}: {attempts} failed: {how}",
        attempts=course.failures,
    )
