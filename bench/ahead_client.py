"""A producer of one queue in its own process; it prints its result as JSON.

``python -m bench.ahead_client ROLE NAMESRV SECONDS BATCHES`` with ROLE one of ``many`` (four tasks
that ``send_many`` 1 000 messages to one queue) and ``paced`` (2 000 messages a second with one
sharding key). BATCHES may be under way at a time.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from typing import Final

import uvloop

import eruca
from bench.batches import TOPIC

_BATCH: Final = 1_000
_TASKS: Final = 8
_RATE: Final = 2_000  # messages a second, paced
_TICK_SECONDS: Final = 0.001
_BODY: Final = os.urandom(100)  # bytes: the delay counts, and not the bandwidth


def _message() -> eruca.Message:
    return eruca.Message(TOPIC, _BODY, sharding_key="one")


async def _many(producer: eruca.AsyncProducer, seconds: float) -> dict[str, float]:
    latencies: list[float] = []
    ends_at = time.perf_counter() + seconds

    async def work() -> int:
        sent = 0
        while (began := time.perf_counter()) < ends_at:
            await producer.send_many([_message() for _ in range(_BATCH)])
            latencies.append(time.perf_counter() - began)
            sent += _BATCH
        return sent

    began = time.perf_counter()
    total = sum(await asyncio.gather(*(work() for _ in range(_TASKS))))
    return _result(total, time.perf_counter() - began, latencies)


async def _paced(producer: eruca.AsyncProducer, seconds: float) -> dict[str, float]:
    latencies: list[float] = []
    total = 0
    began = time.perf_counter()
    while (elapsed := time.perf_counter() - began) < seconds:
        while total < elapsed * _RATE:
            at = time.perf_counter()
            future = await producer.submit(_message())
            future.add_done_callback(
                lambda _, at=at: latencies.append(time.perf_counter() - at)  # type: ignore[misc]
            )
            total += 1
        await asyncio.sleep(_TICK_SECONDS)
    await producer.flush()
    return _result(total, time.perf_counter() - began, latencies)


def _result(total: int, seconds: float, latencies: list[float]) -> dict[str, float]:
    latencies.sort()
    return {
        "rate": total / seconds,
        "p50_ms": latencies[len(latencies) // 2] * 1e3,
        "p99_ms": latencies[len(latencies) * 99 // 100] * 1e3,
        "per_cpu_second": total / time.process_time(),
    }


async def _main(role: str, namesrv: str, seconds: float, batches: int) -> None:
    batching = eruca.Batching(in_flight_max=batches)
    async with (
        eruca.AsyncClient(namesrv) as client,
        client.producer(batching=batching) as producer,
    ):
        await producer.send_many([_message() for _ in range(_BATCH)], timeout_seconds=60)
        run = _many if role == "many" else _paced
        sys.stdout.write(json.dumps(await run(producer, seconds)))


if __name__ == "__main__":
    uvloop.run(_main(sys.argv[1], sys.argv[2], float(sys.argv[3]), int(sys.argv[4])))
