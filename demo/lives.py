"""One flight in the query service, found by id and by number; life lines of it and of a ticket."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import Final

import eruca
from demo.dataset import Flight
from demo.journey import TOPIC, Progress
from eruca.contract.queries import LifeEventKind, Timeline

TICKET_LIFE: Final = [
    LifeEventKind.HALF,
    LifeEventKind.CHECKED,
    LifeEventKind.DECIDED,
    LifeEventKind.STORED,
]
_PAGE_SIZE: Final = 1_000
_LOOK_SECONDS: Final = 0.2
_STALLED_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True)
class Lives:
    """One flight in the query service, its life line, and that of a ticket."""

    flight: Flight
    body: str | None  # found by the flight's unique id
    same_number: int  # messages with the flight's number
    flight_life: Timeline
    ticket_life: Timeline | None  # of one that was checked and had been sold

    def faults(self, same_number: int) -> list[str]:
        """Return the discrepancies; *same_number* flights have the flight's number."""
        found = []
        if self.body != self.flight.body.decode():
            found.append(f"the query service returned for {self.flight.number}: {self.body}")
        if self.same_number != same_number:
            found.append(
                f"the query service found {self.same_number} flights {self.flight.number}, "
                f"expected {same_number}"
            )
        if [event.kind for event in self.flight_life.events] != [LifeEventKind.STORED]:
            found.append(f"the flight's life is {_kinds(self.flight_life)}")
        if [group.state for group in self.flight_life.groups] != ["past"]:
            found.append(f"the flight's groups are: {self.flight_life.groups}")
        if self.ticket_life is not None:
            kinds = [event.kind for event in self.ticket_life.events]
            if kinds != TICKET_LIFE:
                found.append(f"the ticket's life is {_kinds(self.ticket_life)}")
        return found


async def look_up(
    client: eruca.AsyncClient, flight: Flight, message_id: str, ticket_id: str | None
) -> Lives:
    """Look up a flight by its id and its number, and the life lines of it and of a ticket."""
    found = await client.query.message(message_id)
    return Lives(
        flight,
        body=None if found.message.body is None else found.message.body.get("text"),
        same_number=await _count_by_key(client, flight.number),
        flight_life=await client.query.timeline(message_id),
        ticket_life=None if ticket_id is None else await client.query.timeline(ticket_id),
    )


async def catch_up(client: eruca.AsyncClient, progress: Progress, total: int) -> None:
    """Wait until the read model holds all records of now; *progress* counts rows up to *total*.

    Answers would be complete even before, because missing rows are read from the brokers. Here they
    should come from the model.

    Raises:
        TimeoutExpiredError: The read model makes no progress.
    """
    statuses = await client.admin.cluster_status()
    ends = {name: status.log.max_offset for name, status in statuses.items()}
    before, moved_at = -1, time.perf_counter()
    while True:
        model = await client.query.status()
        reached = {log.broker_name: log.log_offset or 0 for log in model.followed}
        if all(reached.get(name, 0) >= end for name, end in ends.items()):
            progress(total)
            return
        rows = sum(log.rows for log in model.followed)
        progress(min(rows, total - 1))
        if rows != before:
            before, moved_at = rows, time.perf_counter()
        elif time.perf_counter() - moved_at > _STALLED_SECONDS:
            raise eruca.TimeoutExpiredError(f"the read model stays at {rows} rows: {model.faults}")
        await asyncio.sleep(_LOOK_SECONDS)


async def _count_by_key(client: eruca.AsyncClient, number: str) -> int:
    count, cursor = 0, None
    while True:
        page = await client.query.find(TOPIC, key=number, limit=_PAGE_SIZE, cursor=cursor)
        count += len(page.messages)
        cursor = page.next_cursor
        if cursor is None:
            return count


def _kinds(life: Timeline) -> str:
    return " → ".join(event.kind for event in life.events) or "empty"
