"""Sending: from a request's messages to a place in the log, as durable as configured.

Nothing is changed before the whole request has been checked: not even a topic is created for a
batch that is then refused.

Source: RocketMQ 5.3, ``SendMessageProcessor``, ``AbstractSendMessageProcessor.msgCheck``.
"""

from __future__ import annotations

import os
import secrets
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import Final

from eruca.contract.errors import ValidationError
from eruca.contract.message_ids import encode_offset_id
from eruca.contract.messages import BatchReceipt, NewMessage, SendReceipt
from eruca.contract.records import Host
from eruca.core.unique_ids import UniqueIds
from eruca_broker.core.batch import Batch, batch_of_records, check_batch
from eruca_broker.core.new_messages import encode_messages, queue_of_sharding_keys
from eruca_broker.core.times import rfc3339
from eruca_broker.processors.topics import Topics
from eruca_broker.store.message_store import MessageStore
from eruca_broker.store.writer import Receipt, renewed
from eruca_chassis.clock import Clock

APPEND_BUCKETS: Final = (
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0,
)  # fmt: skip  # seconds, upper bounds
TURNS_MAX: Final = 100_000  # topics whose turn is remembered


class SendCounts:
    """What has been sent since the start: counted per request, never per message."""

    __slots__ = ("append_buckets", "append_seconds", "bytes", "messages", "requests")

    def __init__(self) -> None:
        self.messages = 0
        self.bytes = 0  # of records
        self.requests = 0
        self.append_seconds = 0.0  # from the append to its answer, all of them together
        self.append_buckets = [0] * (len(APPEND_BUCKETS) + 1)


class Sender:
    """Sends to topics of this broker."""

    def __init__(
        self,
        store: MessageStore,
        topics: Topics,
        *,
        broker_name: str,
        store_host: Host,
        clock: Clock,
    ) -> None:
        self.counts = SendCounts()
        self._store = store
        self._topics = topics
        self._broker_name = broker_name
        self._store_host = store_host
        self._clock = clock
        self._unique_ids = UniqueIds(store_host.address, secrets.randbits(32), secrets.randbits(16))
        self._process_id = os.getpid()
        self._turns: dict[str, int] = {}  # round robin: the queue each topic has its turn at

    def admit(self, topic: str, queue_id: int | None) -> None:
        """Raise what :meth:`send_records` would, as far as it is known without the body."""
        if self._store.refusal is not None:
            raise renewed(self._store.refusal)
        self._topics.for_sending(topic, queue_id)

    async def send_records(
        self, topic: str, queue_id: int, chunks: Iterable[bytes], born_host: Host
    ) -> BatchReceipt:
        """Append a batch of records, given as it came over the wire.

        Raises:
            MalformedBatchError: It is not sound.
            TooLargeError: A message in it exceeds a limit.
        """
        wanted = self._topics.for_sending(topic, queue_id)
        batch = check_batch(chunks, topic=topic, queue_id=queue_id, store_host=self._store_host)
        if not wanted.created_at:
            await self._topics.created(wanted)
        place = await self._append(batch, born_host)
        return BatchReceipt(
            queue_id=queue_id,
            queue_offset=place.queue_offset,
            log_offset=place.log_offset,
            count=batch.count,
            store_timestamp=place.store_timestamp,
            durability=place.durability,
        )

    async def send(
        self,
        topic: str,
        queue_id: int | None,
        messages: Sequence[NewMessage],
        pointers: Sequence[str],
        born_host: Host,
    ) -> list[SendReceipt]:
        """Append messages that came as JSON, to one queue, all or none.

        Args:
            topic: Where they go.
            queue_id: None: their sharding key says it, or the topic's queues take turns.
            messages: At least one.
            pointers: Where each stands in the request, for errors to point at.
            born_host: The peer's address.

        Raises:
            ValidationError: A message is not allowed, or sharding keys disagree with the queue.
            TooLargeError: A message or all of them together exceed a limit.
        """
        wanted = self._topics.for_sending(topic, queue_id)
        by_key = queue_of_sharding_keys(messages, pointers, wanted.write_queue_count)
        if by_key is not None and queue_id not in (None, by_key):
            detail = f"the sharding key selects queue {by_key}, not {queue_id}"
            raise ValidationError(detail, errors=[{"pointer": "/query/queue_id", "detail": detail}])
        if queue_id is None:
            queue_id = by_key if by_key is not None else self._turn(wanted.write_queue_count, topic)
        now_ms = self._clock.now_ms()
        records, unique_ids = encode_messages(
            messages,
            pointers=pointers,
            topic=topic,
            queue_id=queue_id,
            born_host=born_host,
            store_host=self._store_host,
            now_ms=now_ms,
            next_unique_id=lambda: self._unique_ids.next(now_ms, self._process_id),
        )
        if not wanted.created_at:
            await self._topics.created(wanted)
        batch = batch_of_records(topic, queue_id, records)
        place = await self._append(batch, born_host)
        stored_at = rfc3339(place.store_timestamp)
        return [
            SendReceipt(
                topic=topic,
                broker_name=self._broker_name,
                queue_id=queue_id,
                queue_offset=place.queue_offset + index,
                log_offset=place.log_offset + start,
                message_id=unique_ids[index],
                offset_message_id=encode_offset_id(self._store_host, place.log_offset + start),
                stored_at=stored_at,
                durability=place.durability,
            )
            for index, start in enumerate(_starts(batch))
        ]

    async def _append(self, batch: Batch, born_host: Host) -> Receipt:
        started = self._clock.monotonic()
        place = await self._store.append(batch, born_host)
        seconds = self._clock.monotonic() - started
        counts = self.counts
        counts.requests += 1
        counts.messages += batch.count
        counts.bytes += batch.size
        counts.append_seconds += seconds
        counts.append_buckets[bisect_left(APPEND_BUCKETS, seconds)] += 1
        return place

    def _turn(self, queue_count: int, topic: str) -> int:
        if len(self._turns) > TURNS_MAX:
            self._turns.clear()  # deleted topics may be the most of them
        turn = self._turns.get(topic, 0) % queue_count
        self._turns[topic] = turn + 1
        return turn


def _starts(batch: Batch) -> list[int]:
    starts = batch.starts
    return starts if isinstance(starts, list) else [int(start) for start in starts]
