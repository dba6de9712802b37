"""Held pulls: how fast one is woken among a thousand, and what each costs in memory."""

from __future__ import annotations

import asyncio
import statistics
import time

from bench.batches import TOPIC, batch_request
from bench.http_rows import create_topic, per_cpu_second
from bench.load import request
from bench.machine import private_memory
from bench.report import Report
from bench.servers import Server, broker, raw_server
from eruca.contract.wire import RECORDS_MEDIA_TYPE

HELD = 1_000
_WAKES = 200
_QUEUES = HELD  # one held pull per queue


def run(report: Report, seconds: float) -> None:
    """Measure every row."""
    with raw_server() as raw, broker() as server:
        create_topic(server, TOPIC, _QUEUES)
        _, idle = per_cpu_second(
            raw, [request("POST", "/sink", bytes(1024))], connections=1, seconds=seconds
        )
        before = private_memory(server.process_id)
        wakes, held = asyncio.run(_wake(server))
    median = statistics.median(wakes)
    raw_median = idle.percentile(0.5)
    report.figure("wake of a held pull", f"p50 {median:.0f} us; raw request {raw_median:.0f} us")
    report.ratio("wake", median / raw_median)
    report.ratio("held-memory", (held - before) / HELD / 1024)


async def _wake(server: Server) -> tuple[list[float], int]:
    """Hold a pull on each queue, then send to one queue after the other."""
    streams = []
    for queue_id in range(HELD):
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(_pull(queue_id, 0))
        streams.append((reader, writer))
    sender_reader, sender = await asyncio.open_connection("127.0.0.1", server.port)
    while await _held_count(sender_reader, sender) < HELD:
        pass
    held_memory = private_memory(server.process_id)
    wakes = []
    for queue_id in range(_WAKES):
        reader, _ = streams[queue_id]
        began = time.perf_counter()
        sender.write(batch_request(1, queue_id=queue_id))
        await reader.readuntil(b"\r\n\r\n")
        wakes.append((time.perf_counter() - began) * 1e6)
        await _answer(sender_reader)
    for _, writer in [*streams, (sender_reader, sender)]:
        writer.close()
    return wakes, held_memory


def _pull(queue_id: int, offset: int) -> bytes:
    path = f"/v1/topics/{TOPIC}/queues/{queue_id}/messages?offset={offset}&wait_seconds=30"
    return request("GET", path, b"", f"accept: {RECORDS_MEDIA_TYPE}")


async def _held_count(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> int:
    writer.write(request("GET", "/v1/status"))
    body = await _answer(reader)
    at = body.index(b'"held_requests":') + len(b'"held_requests":')
    return int(body[at:].split(b",", 1)[0])


async def _answer(reader: asyncio.StreamReader) -> bytes:
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    size = int(head.split(b"content-length: ")[1].split(b"\r\n", 1)[0])
    return await reader.readexactly(size)
