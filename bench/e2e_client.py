"""A producer or a consumer in its own process, through the SDK; it prints its result as JSON.

``python -m bench.e2e_client ROLE NAMESRV SECONDS RATE`` with ROLE one of ``send`` (1 024 tasks that
await each message), ``paced`` (RATE messages a second), ``many`` (``send_many`` of 1 000) and
``consume`` (until nothing has arrived for a second).

Starting up is not measured: a producer sends some messages to warm up, and each process prints
``ready`` on a line of its own afterwards; a producer then waits for a line on stdin. Bodies and
keys exist beforehand; messages are created when they are sent, each with a tag and a key. Times are
those of the monotonic clock, which both processes share.

Reference cycles are collected rarely, as suits a program that creates a hundred thousand objects a
second: the SDK leaves none behind.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import cycle, islice

import uvloop

import eruca
from bench.batches import BODY_SIZE, TOPIC
from eruca.core.messages.accelerators import loading_numpy

TASKS = 1_024
BATCH = 1_000
WARM_UP = 10 * BATCH  # messages that are not measured
_QUIET_SECONDS = 1.0
_TICK_SECONDS = 0.005  # of the paced producer
_YOUNG_OBJECTS = 50_000  # created between two collections of cycles
_WARM_UP_SECONDS = 60.0  # right after the start the route may take a while

_BODY = os.urandom(BODY_SIZE)
_KEYS = cycle([f"key-{number:08d}" for number in range(100_000)])


def _message() -> eruca.Message:
    return eruca.Message(TOPIC, _BODY, tag="AA", keys=next(_KEYS))


def _batch() -> list[eruca.Message]:
    return [eruca.Message(TOPIC, _BODY, tag="AA", keys=key) for key in islice(_KEYS, BATCH)]


@asynccontextmanager
async def _warm_producer(client: eruca.AsyncClient) -> AsyncIterator[eruca.AsyncProducer]:
    async with client.producer() as producer:
        for _ in range(WARM_UP // BATCH):
            await producer.send_many(_batch(), timeout_seconds=_WARM_UP_SECONDS)
        _say_ready()
        await asyncio.to_thread(sys.stdin.readline)
        yield producer


def _say_ready() -> None:
    loading_numpy().result()
    gc.collect()
    gc.freeze()
    gc.set_threshold(_YOUNG_OBJECTS, 10, 10)
    sys.stdout.write("ready\n")
    sys.stdout.flush()


async def _send(client: eruca.AsyncClient, seconds: float) -> dict[str, float]:
    latencies: list[float] = []
    async with _warm_producer(client) as producer:
        cpu_before = time.process_time()
        ends_at = time.perf_counter() + seconds

        async def work() -> int:
            sent = 0
            while (began := time.perf_counter()) < ends_at:
                await producer.send(_message())
                latencies.append(time.perf_counter() - began)
                sent += 1
            return sent

        began_at = time.monotonic()
        total = sum(await asyncio.gather(*(work() for _ in range(TASKS))))
        return _result(total, began_at, cpu_before, latencies)


async def _paced(client: eruca.AsyncClient, seconds: float, rate: float) -> dict[str, float]:
    latencies: list[float] = []
    async with _warm_producer(client) as producer:
        cpu_before = time.process_time()
        began_at = time.monotonic()
        total = 0
        while (elapsed := time.monotonic() - began_at) < seconds:
            while total < elapsed * rate:
                future = await producer.submit(_message())
                at = time.perf_counter()
                future.add_done_callback(
                    lambda _, at=at: latencies.append(time.perf_counter() - at)  # type: ignore[misc]
                )
                total += 1
            await asyncio.sleep(_TICK_SECONDS)
        await producer.flush()
        return _result(total, began_at, cpu_before, latencies)


async def _many(client: eruca.AsyncClient, seconds: float) -> dict[str, float]:
    latencies: list[float] = []
    async with _warm_producer(client) as producer:
        cpu_before = time.process_time()
        ends_at = time.perf_counter() + seconds

        async def work() -> int:
            sent = 0
            while (began := time.perf_counter()) < ends_at:
                await producer.send_many(_batch())
                latencies.append(time.perf_counter() - began)
                sent += BATCH
            return sent

        began_at = time.monotonic()
        total = sum(await asyncio.gather(*(work() for _ in range(4))))
        return _result(total, began_at, cpu_before, latencies)


async def _consume(client: eruca.AsyncClient) -> dict[str, float]:
    total = size = 0
    cpu_before: float | None = None
    last_at: float | None = None
    async with client.pull_consumer(topics=[TOPIC], prefetch_count_max=20_000) as consumer:
        while messages := await consumer.poll(
            2_048, wait_seconds=_QUIET_SECONDS if total > WARM_UP else 60
        ):
            last_at = time.monotonic()
            total += len(messages)
            size += sum([len(message.body) for message in messages])
            if total >= WARM_UP and cpu_before is None:
                _say_ready()
                cpu_before = time.process_time()
    assert cpu_before is not None
    assert last_at is not None
    seconds = time.process_time() - cpu_before
    return {
        "messages": total,
        "bytes": size,
        "ended_at": last_at,
        "per_cpu_second": (total - WARM_UP) / seconds,
    }


def _result(
    total: int, began_at: float, cpu_before: float, latencies: list[float]
) -> dict[str, float]:
    latencies.sort()
    return {
        "messages": total,
        "began_at": began_at,
        "per_cpu_second": total / (time.process_time() - cpu_before),
        "p50_ms": latencies[len(latencies) // 2] * 1e3,
        "p99_ms": latencies[len(latencies) * 99 // 100] * 1e3,
    }


async def _main(role: str, namesrv: str, seconds: float, rate: float) -> None:
    async with eruca.AsyncClient(namesrv) as client:
        if role == "send":
            result = await _send(client, seconds)
        elif role == "paced":
            result = await _paced(client, seconds, rate)
        elif role == "many":
            result = await _many(client, seconds)
        else:
            result = await _consume(client)
    sys.stdout.write(json.dumps(result))


if __name__ == "__main__":
    uvloop.run(_main(sys.argv[1], sys.argv[2], float(sys.argv[3]), float(sys.argv[4])))
