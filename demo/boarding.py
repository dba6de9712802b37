"""Boarding calls: delayed messages, each due at its own moment; some are recalled.

The lateness is the time from a message's due moment to its storing in its queue. Both times are by
clocks of this machine.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final

import eruca
from demo.dataset import Flight
from demo.journey import Progress

TOPIC: Final = "boarding"
CALLS_COUNT: Final = 600
FIRST_SECONDS: Final = 3.0  # until the first call; all are stored by then
LAST_SECONDS: Final = 6.0
RECALLED_EVERY: Final = 20  # one of so many calls is recalled because its flight is late

_RECALLS: Final = 16  # concurrent
_STALLED_SECONDS: Final = 20.0
_QUIET_SECONDS: Final = 0.5  # after the last call, for one that must not come


@dataclass(slots=True)
class Calls:
    """The calls due and the calls delivered; keys are the flights' rows."""

    due: dict[int, datetime] = field(default_factory=dict)
    recalled: set[int] = field(default_factory=set)
    delivered: Counter[int] = field(default_factory=Counter)
    lateness_ms: list[float] = field(default_factory=list)
    seconds: float = 0.0

    def note(self, row: int, stored_at: datetime) -> None:
        """Record a delivered call."""
        self.delivered[row] += 1
        self.lateness_ms.append((stored_at - self.due[row]) / timedelta(milliseconds=1))

    def faults(self) -> list[str]:
        """Return the discrepancies."""
        expected = Counter(self.due.keys() - self.recalled)
        found = []
        if self.delivered != expected:
            found.append(
                f"{expected.total()} boarding calls were due, {self.delivered.total()} were made"
            )
        if early := sum(lateness < 0 for lateness in self.lateness_ms):
            found.append(f"{early} boarding calls were made too early")
        return found


async def call_passengers(
    client: eruca.AsyncClient, flights: Sequence[Flight], progress: Progress
) -> Calls:
    """Send a call for each flight, recall some, and receive the others when they are due."""
    calls = Calls()
    started_at = time.perf_counter()
    now = datetime.now(UTC)
    span = (LAST_SECONDS - FIRST_SECONDS) / max(len(flights) - 1, 1)
    for number, flight in enumerate(flights):
        due = now + timedelta(seconds=FIRST_SECONDS + number * span)
        calls.due[flight.row] = due.replace(microsecond=due.microsecond // 1000 * 1000)
    async with client.producer() as producer:
        results = await producer.send_many(
            [
                eruca.Message(TOPIC, str(flight.row), deliver_at=calls.due[flight.row])
                for flight in flights
            ]
        )
    # Recall the last one of each lot: these have the most time left.
    late = list(zip(flights, results, strict=True))[RECALLED_EVERY - 1 :: RECALLED_EVERY]
    limit = asyncio.Semaphore(_RECALLS)

    async def recall(flight: Flight, call: eruca.SendResult) -> None:
        assert call.recall_handle is not None  # it was sent with a delay
        async with limit:
            try:
                await client.admin.recall_scheduled(call.recall_handle)
            except eruca.AlreadyDeliveredError:
                return  # on a busy machine the recall comes too late: the call counts as usual
        calls.recalled.add(flight.row)

    await asyncio.gather(*(recall(flight, result) for flight, result in late))
    await _collect(client, calls, progress)
    calls.seconds = time.perf_counter() - started_at
    return calls


async def _collect(client: eruca.AsyncClient, calls: Calls, progress: Progress) -> None:
    """Receive calls until all have arrived, and a moment longer."""
    left = len(calls.due) - len(calls.recalled)
    async with client.pull_consumer(topics=TOPIC) as consumer:
        while True:
            wait = _STALLED_SECONDS if left > 0 else _QUIET_SECONDS
            messages = await consumer.poll(wait_seconds=wait)
            for message in messages:
                calls.note(int(message.text()), message.stored_at)
            if not messages:
                return
            left -= len(messages)
            progress(min(len(calls.delivered) + len(calls.recalled), len(calls.due)))
