"""Tickets sold in transactions: some committed, some rolled back, some left to the checker.

The local work of a sale is an entry in a book. The clerk commits a third of the flights at once and
rolls back another third. For the rest it answers nothing, as after a crash, although half of those
are in the book. The checker asks, and the book has the answer.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import eruca
from demo.dataset import Flight
from demo.journey import Progress

TOPIC: Final = "tickets"
GROUP: Final = "box-office"
SALES_COUNT: Final = 600
IMMUNITY_SECONDS: Final = 1.0  # until the first check; the checker's default is 6 s

CLERKS: Final = 16  # concurrent sales
SEND_SECONDS: Final = 30.0  # for one message or one decision; slow machines take a while
_LOOK_SECONDS: Final = 0.1
_STALLED_SECONDS: Final = 30.0


@dataclass(slots=True)
class Sales:
    """The clerks' verdicts, the book, and the deliveries; keys are the flights' rows."""

    said: dict[int, eruca.Verdict] = field(default_factory=dict)
    sold: set[int] = field(default_factory=set)  # in the book
    checked: Counter[eruca.Verdict] = field(default_factory=Counter)  # answers to checks
    delivered: Counter[int] = field(default_factory=Counter)
    rows: dict[str, int] = field(default_factory=dict)  # by transaction id
    undecided: int = 0  # at the end
    seconds: float = 0.0

    def count(self, verdict: eruca.Verdict) -> int:
        """Return the number of sales with this verdict of the clerks."""
        return sum(said == verdict for said in self.said.values())

    def delivered_of(self, verdict: eruca.Verdict) -> int:
        """Return the number of delivered tickets with this verdict of the clerks."""
        return sum(self.delivered[row] for row, said in self.said.items() if said == verdict)

    def asked_about(self) -> str | None:
        """Return a transaction that was left to the checker although the ticket was sold."""
        asked = (
            transaction
            for transaction, row in self.rows.items()
            if self.said.get(row) == "unknown" and row in self.sold
        )
        return next(asked, None)

    def faults(self, count: int) -> list[str]:
        """Return the discrepancies; there are *count* sales."""
        left_and_sold = sum(self.said.get(row) == "unknown" for row in self.sold)
        left = self.count("unknown")
        expected = Counter(commit=left_and_sold, rollback=left - left_and_sold)
        found = []
        if len(self.said) != count:
            found.append(f"expected {count} ticket sales, found {len(self.said)}")
        if self.undecided:
            found.append(f"{self.undecided} sales are still undecided")
        if self.checked != expected:
            found.append(f"checks were answered {dict(self.checked)}, expected {dict(expected)}")
        if self.delivered != Counter(self.sold):
            found.append(
                f"{len(self.sold)} tickets were sold, {self.delivered.total()} were delivered"
            )
        return found


async def sell_tickets(
    client: eruca.AsyncClient, flights: Sequence[Flight], progress: Progress
) -> Sales:
    """Sell a ticket for each flight, and wait until every sale is decided."""
    sales = Sales()

    async def check(asked: eruca.TransactionCheck) -> eruca.Verdict:
        verdict: eruca.Verdict = "rollback"
        if sales.rows[asked.transaction_id] in sales.sold:
            verdict = "commit"
        sales.checked[verdict] += 1
        return verdict

    clerks = asyncio.Semaphore(CLERKS)

    async def sell(flight: Flight) -> None:
        async def enter(half: eruca.HalfMessage) -> eruca.Verdict:
            sales.rows[half.transaction_id] = flight.row
            verdict = verdict_of(flight)
            if verdict == "commit" or (verdict == "unknown" and flight.row % 2):
                sales.sold.add(flight.row)
            return verdict

        message = eruca.Message(TOPIC, str(flight.row), keys=flight.number)
        async with clerks:
            result = await producer.send_in_transaction(
                message, enter, check_immunity_seconds=IMMUNITY_SECONDS
            )
        sales.said[flight.row] = result.verdict

    started_at = time.perf_counter()
    async with client.transaction_producer(
        GROUP, check=check, send_timeout_seconds=SEND_SECONDS, decision_timeout_seconds=SEND_SECONDS
    ) as producer:
        await asyncio.gather(*map(sell, flights))
        await _collect(client, sales, progress)
        sales.undecided = await _undecided(client)
    sales.seconds = time.perf_counter() - started_at
    return sales


def verdict_of(flight: Flight) -> eruca.Verdict:
    """Return the clerk's verdict on a flight's ticket."""
    verdicts: tuple[eruca.Verdict, ...] = ("commit", "rollback", "unknown")
    return verdicts[flight.row % len(verdicts)]


async def _collect(client: eruca.AsyncClient, sales: Sales, progress: Progress) -> None:
    """Receive deliveries until nothing is undecided, or no progress is made for too long."""
    moved_at = time.perf_counter()
    async with client.pull_consumer(topics=TOPIC) as consumer:
        while time.perf_counter() - moved_at < _STALLED_SECONDS:
            undecided = await _undecided(client)
            messages = await consumer.poll(wait_seconds=_LOOK_SECONDS)
            for message in messages:
                sales.delivered[int(message.text())] += 1
            if messages:
                moved_at = time.perf_counter()
            elif undecided == 0:
                progress(len(sales.said))
                return
            progress(min(len(sales.said) - undecided, len(sales.said) - 1))


async def _undecided(client: eruca.AsyncClient) -> int:
    transactions = client.admin.transactions.undecided(producer_group=GROUP)
    return sum([1 async for _ in transactions])
