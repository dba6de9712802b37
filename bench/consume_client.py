"""A consumer in its own process, through the SDK; it prints its result as JSON.

``python -m bench.consume_client KIND NAMESRV GROUP COUNT``: consume COUNT messages of 1 KiB from
the beginning, as fast as they arrive, and read each body. KIND is one of

- ``pull``: a pull consumer that polls 2 048 at a time;
- ``concurrent``, ``orderly``: a push consumer with an async handler for each message;
- ``threads``: with a plain function as handler;
- ``batches``: with an async handler for up to 32 messages;
- ``member``: a push consumer with the shortest session, until it is killed. It prints ``ready`` on
  a line of its own once it has queues of the topic.

The measurement goes from the first message to the last: joining and starting up are excluded.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import json
import sys
import time
from typing import Any, Final

import uvloop

import eruca
from bench.batches import BODY_SIZE, TOPIC
from eruca.contract.limits import SESSION_SECONDS_MIN
from eruca.core.messages.accelerators import loading_numpy

BATCH: Final = 32
_PREFETCH = 20_000
_YOUNG_OBJECTS = 50_000  # created between two collections of reference cycles


class _Count:
    """Counts messages and their time; thread-safe."""

    def __init__(self, count: int) -> None:
        self.done = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._count = count
        self._numbers = itertools.count(1)  # next() is atomic
        self._size = 0
        self._began_at = self._cpu_before = 0.0
        self._seconds = self._cpu_seconds = 0.0

    def add(self, message: eruca.ReceivedMessage) -> None:
        """Count a message."""
        number = next(self._numbers)
        if number == 1:
            self._began_at, self._cpu_before = time.perf_counter(), time.process_time()
        self._size = max(self._size, len(message.body))
        if number == self._count:
            self._cpu_seconds = time.process_time() - self._cpu_before
            self._seconds = time.perf_counter() - self._began_at
            self._loop.call_soon_threadsafe(self.done.set)

    def result(self) -> dict[str, float]:
        """Return the rates, once all messages have arrived."""
        assert self._size == BODY_SIZE
        return {
            "messages": self._count,
            "rate": self._count / self._seconds,
            "per_cpu_second": self._count / self._cpu_seconds,
        }


async def _pull(client: eruca.AsyncClient, group: str, count: int) -> dict[str, float]:
    counted = _Count(count)
    async with client.pull_consumer(
        group, topics=[TOPIC], start="earliest", prefetch_count_max=_PREFETCH
    ) as consumer:
        while not counted.done.is_set():
            for message in await consumer.poll(2_048, wait_seconds=60):
                counted.add(message)
            await asyncio.sleep(0)  # let ``done`` be set
    return counted.result()


async def _push(client: eruca.AsyncClient, kind: str, group: str, count: int) -> dict[str, float]:
    counted = _Count(count)
    consumer = client.push_consumer(
        group,
        start="earliest",
        ordered=kind == "orderly",
        batch_count_max=BATCH if kind == "batches" else 1,
    )

    async def one(message: eruca.ReceivedMessage) -> None:
        counted.add(message)

    async def several(messages: list[eruca.ReceivedMessage]) -> None:
        for message in messages:
            counted.add(message)

    def in_thread(message: eruca.ReceivedMessage) -> None:
        counted.add(message)

    handlers: dict[str, Any] = {"threads": in_thread, "batches": several}
    consumer.subscribe(TOPIC, handler=handlers.get(kind, one))
    async with consumer:
        await counted.done.wait()
    return counted.result()


async def _member(client: eruca.AsyncClient, group: str) -> dict[str, float]:
    def on_assigned(queues: list[eruca.MessageQueue]) -> None:
        if any(queue.topic == TOPIC for queue in queues):
            sys.stdout.write("ready\n")
            sys.stdout.flush()

    consumer = client.push_consumer(
        group,
        start="earliest",
        membership=eruca.Membership(session_seconds=SESSION_SECONDS_MIN),
        listeners=eruca.Listeners(on_assigned=on_assigned),
    )

    async def handle(_message: eruca.ReceivedMessage) -> None:
        return None

    consumer.subscribe(TOPIC, handler=handle)
    await consumer.run()
    return {}


async def _main(kind: str, namesrv: str, group: str, count: int) -> None:
    loading_numpy().result()
    gc.collect()
    gc.freeze()
    gc.set_threshold(_YOUNG_OBJECTS, 10, 10)
    async with eruca.AsyncClient(namesrv) as client:
        if kind == "pull":
            result = await _pull(client, group, count)
        elif kind == "member":
            result = await _member(client, group)
        else:
            result = await _push(client, kind, group, count)
    sys.stdout.write(json.dumps(result))


if __name__ == "__main__":
    uvloop.run(_main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])))
