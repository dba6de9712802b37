"""The workloads, and the process that runs them when asked: the same for every Python client.

A request is one line of JSON on standard input: ``{"row": "one", "seconds": 1.0, …}``. The process
answers ``{"began": true}`` when the measurement begins, and ``{"messages": …, "seconds": …}`` when
it ends. So the other side can take the CPU time of all processes at both moments. A failure ends
the process with its traceback on standard error.

Clients run in an environment of their own, so this module imports the standard library and uvloop.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from typing import Any, Final

import uvloop

SENT: Final = "sends"
BACKLOG: Final = "backlog"
QUEUES: Final = 4
BODY_SIZE: Final = 1024
BATCH: Final = 1_000
IN_FLIGHT: Final = 64
HANDLED: Final = 32  # messages a handler gets at most in the row "handlers32"
POLLED: Final = 1_000  # messages a poll returns at most, where the client lets one choose
_FIRST_SECONDS_MAX: Final = 60.0
_YOUNG_OBJECTS: Final = 50_000  # created between two collections of reference cycles
_LOOKS: Final = 64  # messages between two looks at the clock

BODY: Final = os.urandom(BODY_SIZE)


class Counter:
    """Counts the messages of a backlog from the first to the last, or until the time is up."""

    def __init__(self, count: int, seconds: float) -> None:
        self.ended = asyncio.Event()
        self.number = 0
        self._count = count
        self._seconds = seconds
        self._began_at = 0.0
        self._ended_at = 0.0

    def add(self, body: bytes) -> None:
        """Count a message."""
        if self.ended.is_set():
            return
        if len(body) != BODY_SIZE:
            raise ValueError(f"expected a body of {BODY_SIZE} bytes, found {len(body)}")
        if self.number == 0:
            say(began=True)
            self._began_at = time.perf_counter()
        self.number += 1
        if self.number % _LOOKS == 0 or self.number == self._count:
            now = time.perf_counter()
            if self.number == self._count or now - self._began_at > self._seconds:
                self._ended_at = now
                self.ended.set()

    async def handle(self, body: bytes) -> None:
        """Be the handler of a message."""
        self.add(body)

    async def handle_all(self, bodies: list[bytes]) -> None:
        """Be the handler of several messages."""
        for body in bodies:
            self.add(body)

    def result(self) -> dict[str, float]:
        """Return what was measured."""
        return {"messages": self.number, "seconds": self._ended_at - self._began_at}


class Client(ABC):
    """A system's client with all that a user of it would keep open."""

    backlog = 0

    @abstractmethod
    async def open(self, address: str) -> None:
        """Connect to the servers at *address*, and create what the workloads use."""

    @abstractmethod
    async def send(self) -> None:
        """Send a message, and return when it is acknowledged."""

    @abstractmethod
    async def send_batch(self, target: str = SENT) -> None:
        """Send ``BATCH`` messages at once to *target*, and return when all are acknowledged."""

    @abstractmethod
    async def consume(self, row: str, group: str, counter: Counter) -> None:
        """Read the backlog as a new group from its beginning until the counter has ended."""

    async def fill(self, count: int) -> int:
        """Put messages into the backlog; return their number."""
        for _ in range(0, count, BATCH):
            await self.send_batch(BACKLOG)
        return count

    async def many(self, ends_at: float) -> int:
        """Send with 64 tasks until the time is up; return the number of messages."""
        return await together(self.send, ends_at)

    async def row(self, row: str, ends_at: float) -> int:
        """Run a row of sends until the time is up; return the number of messages."""
        if row == "many":
            return await self.many(ends_at)
        steps: dict[str, tuple[Callable[[], Awaitable[None]], int]] = {
            "one": (self.send, 1),
            "bulk": (self.send_batch, BATCH),
        }
        return await repeated(*steps[row], ends_at)


async def repeated(step: Callable[[], Awaitable[None]], size: int, ends_at: float) -> int:
    """Run a step of *size* messages until the time is up; return the number of messages."""
    count = 0
    while time.perf_counter() < ends_at:
        await step()
        count += size
    return count


async def together(step: Callable[[], Awaitable[None]], ends_at: float) -> int:
    """Run a step of one message in 64 tasks until the time is up; return their number."""
    return sum(await asyncio.gather(*(repeated(step, 1, ends_at) for _ in range(IN_FLIGHT))))


def say(**answer: object) -> None:
    """Write a line for the other side."""
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


def serve(client: Client) -> None:
    """Run workloads until standard input ends; the address is the program's first argument."""
    uvloop.run(_serve(client, sys.argv[1]))


async def _serve(client: Client, address: str) -> None:
    await client.open(address)
    gc.collect()
    gc.freeze()
    gc.set_threshold(_YOUNG_OBJECTS, 10, 10)  # as suits programs that create many objects
    say(open=True)
    while line := await asyncio.to_thread(sys.stdin.readline):
        say(**await _measured(client, json.loads(line)))
    os._exit(0)  # libraries' threads and connections end with the process


async def _measured(client: Client, request: dict[str, Any]) -> dict[str, float]:
    row, seconds = request["row"], request["seconds"]
    if row in ("handler", "handlers32", "pulls"):
        counter = Counter(client.backlog, seconds)
        async with asyncio.timeout(_FIRST_SECONDS_MAX + seconds):
            await client.consume(row, request["group"], counter)
        return counter.result()
    say(began=True)
    began_at = time.perf_counter()
    if row == "fill":
        count = client.backlog = await client.fill(request["count"])
    else:
        count = await client.row(row, began_at + seconds)
    return {"messages": count, "seconds": time.perf_counter() - began_at}
