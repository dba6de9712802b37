"""The flights' journey: send, pull, find, and the time each step takes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

import msgspec

import eruca
from demo.dataset import Flight
from demo.ledger import Ledger
from eruca.contract.topics import QueueOffsets

TOPIC: Final = "flights"
LIVE_TOPIC: Final = "departures"
QUEUES_PER_BROKER: Final = 4
BULK: Final = 5_000  # flights handed to the producer at a time

_STALLED_SECONDS: Final = 20.0  # no message for so long, although some are missing: a fault
_TICK: Final = 200  # flights read between two turns of the event loop

Progress = Callable[[int], None]
"""Called with the number of messages processed so far."""


class RowNumber(msgspec.Struct):
    """The only field of a body that the demo reads; otherwise bodies are compared as bytes."""

    row: int


@dataclass(slots=True)
class Timing:
    """The duration of a phase, and the times of single messages in it."""

    messages: int = 0
    seconds: float = 0.0
    latencies_ms: list[float] = field(default_factory=list)
    transit_ms: list[float] = field(default_factory=list)  # from send to the consumer


@dataclass(frozen=True, slots=True)
class Found:
    """One flight, looked up in three ways."""

    flight: Flight
    result: eruca.SendResult
    by_offset_id: str  # the body found
    by_unique_id: list[str]
    by_key: list[str]

    def faults(self, by_key_count: int) -> list[str]:
        """Return the look-ups that failed; *by_key_count* flights have its number."""
        body = self.flight.body.decode()
        found = []
        if self.by_offset_id != body:
            found.append(f"offset id {self.result.offset_message_id}: {self.by_offset_id}")
        if self.by_unique_id != [body]:
            found.append(f"unique id {self.result.message_id}: {self.by_unique_id}")
        if len(self.by_key) != by_key_count:
            found.append(
                f"key {self.flight.number}: found {len(self.by_key)}, expected {by_key_count}"
            )
        return found


async def send_flights(
    producer: eruca.AsyncProducer, flights: Iterable[Flight], ledger: Ledger, progress: Progress
) -> tuple[Timing, list[tuple[Flight, eruca.SendResult]]]:
    """Send every flight; return the timing, and the result of the first flight of each bulk.

    While one bulk is being sent the next is read from the file. There are never two in flight, so
    that an aircraft's flights stay in order across bulks.
    """
    timing = Timing()
    samples: list[tuple[Flight, eruca.SendResult]] = []

    async def send(bulk: list[Flight], messages: list[eruca.Message]) -> None:
        sent_at = time.perf_counter()
        results = await producer.send_many(messages)
        timing.latencies_ms.append((time.perf_counter() - sent_at) * 1000)
        timing.messages += len(results)
        samples.append((bulk[0], results[0]))
        progress(timing.messages)

    under_way: asyncio.Task[None] | None = None
    started_at = time.perf_counter()
    rows = iter(flights)
    while bulk := await _read_bulk(rows, ledger):
        messages = [message_of(TOPIC, flight) for flight in bulk]
        if under_way is not None:
            await under_way
        under_way = asyncio.create_task(send(bulk, messages))
    if under_way is not None:
        await under_way
    timing.seconds = time.perf_counter() - started_at
    return timing, samples


async def _read_bulk(rows: Iterator[Flight], ledger: Ledger) -> list[Flight]:
    bulk: list[Flight] = []
    for flight in islice(rows, BULK):
        ledger.note_sent(flight)
        bulk.append(flight)
        if len(bulk) % _TICK == 0:
            await asyncio.sleep(0)  # reading never waits; let the send in progress run
    return bulk


async def pull_flights(
    consumer: eruca.AsyncPullConsumer, ledger: Ledger, progress: Progress
) -> Timing:
    """Pull until as many messages have arrived as were sent, or no more arrive."""
    timing = Timing()
    started_at = time.perf_counter()
    while ledger.received < ledger.sent:
        messages = await consumer.poll(2_000, wait_seconds=_STALLED_SECONDS)
        if not messages:
            break  # the ledger reports the missing ones
        for message in messages:
            ledger.note_received(
                row=message.json(RowNumber).row,
                body=message.body,
                carrier=message.tag,
                tail=message.sharding_key,
                queue=(message.broker_name, message.queue_id),
            )
        progress(ledger.received)
    timing.messages = ledger.received
    timing.seconds = time.perf_counter() - started_at
    return timing


def _text_of(message: eruca.PulledMessage) -> str:
    """Return a message's body as text; empty if it is damaged or not text."""
    return "" if message.body is None else message.body.text or ""


async def find_flight(admin: eruca.AsyncAdmin, flight: Flight, result: eruca.SendResult) -> Found:
    """Look up a flight by offset id, by unique id, and by its number."""
    record = await admin.message_by_offset_id(result.offset_message_id)
    same_id = await admin.messages_by_key(TOPIC, result.message_id)
    same_number = await admin.messages_by_key(TOPIC, flight.number)
    return Found(
        flight,
        result,
        by_offset_id=_text_of(record.message),
        by_unique_id=[_text_of(message) for message in same_id],
        by_key=[_text_of(message) for message in same_number],
    )


async def queue_ranges(admin: eruca.AsyncAdmin) -> dict[eruca.MessageQueue, QueueOffsets]:
    """Return the offsets of each queue of the flights, in queue order."""
    return dict(sorted((await admin.queues(TOPIC)).items()))


async def fly_live(
    client: eruca.AsyncClient, flights: Iterable[Flight], count: int, progress: Progress
) -> Timing:
    """Send flights one by one to a waiting consumer, and time each."""
    timing = Timing()
    departures = list(islice(flights, count))
    sent_at: dict[int, float] = {}

    async def consume(consumer: eruca.AsyncPullConsumer) -> None:
        while timing.messages < len(departures):
            messages = await consumer.poll(wait_seconds=_STALLED_SECONDS)
            now = time.perf_counter()
            if not messages:
                return
            for message in messages:
                timing.transit_ms.append((now - sent_at[message.json(RowNumber).row]) * 1000)
            timing.messages += len(messages)

    async with (
        client.pull_consumer(topics=LIVE_TOPIC) as consumer,
        client.producer() as producer,
    ):
        await consumer.poll(wait_seconds=0)
        consuming = asyncio.create_task(consume(consumer))
        started_at = time.perf_counter()
        for number, flight in enumerate(departures, 1):
            message = message_of(LIVE_TOPIC, flight)
            sent_at[flight.row] = time.perf_counter()
            await producer.send(message)
            timing.latencies_ms.append((time.perf_counter() - sent_at[flight.row]) * 1000)
            progress(number)
        await consuming
        timing.seconds = time.perf_counter() - started_at
    return timing


def message_of(topic: str, flight: Flight) -> eruca.Message:
    """Convert a flight to a message: ordered by aircraft, with flight and date as keys."""
    return eruca.Message(
        topic,
        flight.body,
        tag=flight.carrier,
        keys=(flight.number, flight.date),
        sharding_key=flight.tail,
    )
