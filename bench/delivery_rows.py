"""Deliveries: messages received and acknowledged per second, one by one or by 32.

Many tasks of one group each handle one message at a time, like programs in other languages over
plain HTTP. Other tasks take 32 at a time.
"""

from __future__ import annotations

import asyncio
import time
from typing import Final

import eruca
from bench.batches import TOPIC, batch_request
from bench.calls import send_each
from bench.http_rows import WARM, create_topic
from bench.machine import cpu_seconds
from bench.report import Report
from bench.servers import broker, name_server

_QUEUES: Final = 8
_TASKS: Final = 32
_BATCH: Final = 1_000
_MESSAGES_MAX: Final = 64_000  # more than a run consumes
_GROUP: Final = "bench"


async def run(report: Report, seconds: float) -> None:
    """Measure every row."""
    for flush_mode in ("async", "sync"):
        for count in (1, 32):
            await _round_trips(report, seconds, flush_mode=flush_mode, count=count)


async def _round_trips(report: Report, seconds: float, *, flush_mode: str, count: int) -> None:
    with (
        name_server() as namesrv,
        broker(namesrv_urls=namesrv.url, flush_mode=flush_mode, **WARM) as server,
    ):
        create_topic(server, TOPIC, _QUEUES)
        for queue_id in range(_QUEUES):
            batch = batch_request(_BATCH, queue_id=queue_id)
            send_each(server, [batch] * (_MESSAGES_MAX // _QUEUES // _BATCH))
        async with eruca.AsyncClient(namesrv.url) as client:
            consumer = client.simple_consumer(_GROUP, topics=[TOPIC], start="earliest")
            async with consumer:
                await _work(consumer, count, until=time.perf_counter() + 0.3)
                cpu_before, began = cpu_seconds(server.process_id), time.perf_counter()
                done = await asyncio.gather(
                    *(_work(consumer, count, until=began + seconds) for _ in range(_TASKS))
                )
                elapsed = time.perf_counter() - began
                used = cpu_seconds(server.process_id) - cpu_before
    report.figure(
        f"receive and acknowledge {count}, {_TASKS} at the same time, {flush_mode} flush",
        f"{sum(done) / elapsed:,.0f} messages/s, {sum(done) / used:,.0f} per CPU-s of the broker",
    )


async def _work(consumer: eruca.AsyncSimpleConsumer, count: int, *, until: float) -> int:
    """Receive and acknowledge; return the number of messages."""
    done = 0
    while time.perf_counter() < until:
        deliveries = await consumer.receive(count, wait_seconds=1)
        assert deliveries, "there are not enough messages"
        await consumer.ack(deliveries)
        done += len(deliveries)
    return done
