"""Delayed messages: their lateness under load, and the cost of a million of them."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
import time
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx

from bench.batches import TOPIC, batch_request
from bench.http_rows import create_topic
from bench.load import run_load
from bench.machine import private_memory
from bench.report import Report
from bench.servers import Server, broker
from eruca.contract.properties import UNIQ_KEY, encode_properties
from eruca.contract.records import Host, Record, encode_record
from eruca_broker.core.batches.batch import Batch, batch_of_records
from eruca_broker.core.records.scheduled import Destination, Wait, waiting
from eruca_broker.core.state.topic_events import TopicPut
from eruca_broker.processors.timers import Timers
from eruca_broker.store.message_store import MessageStore
from eruca_broker.store.settings import StoreSettings
from eruca_chassis.clock import SystemClock

_HOST = Host.parse("127.0.0.1", 10911)
_LATER = 5_000  # delayed messages in the row under load
_PER_REQUEST = 50
_QUEUE = 1  # the load goes to queue 0
_MILLION = 1_000_000
_PER_BATCH = 1_000
_SPREAD_MS = 30 * 86_400_000
_FIRED = 20_000
_MIB = 1024 * 1024


def run(report: Report, seconds: float) -> None:
    """Measure every row."""
    _lateness(report, seconds)
    asyncio.run(_million(report))


def _lateness(report: Report, seconds: float) -> None:
    """Measure delayed messages, idle and while producers send as fast as they can."""
    for name, connections in (("idle", 0), ("under load", 16)):
        with broker() as server:
            create_topic(server)
            due = asyncio.run(_send_later(server, seconds))
            load = threading.Thread(
                target=run_load,
                args=(server.port, [batch_request(1)]),
                kwargs={"connections": connections, "seconds": seconds + 3},
            )
            if connections:
                load.start()
            late = sorted(asyncio.run(_lateness_of(server, due)))
            if connections:
                load.join()
        report.figure(
            f"late delivery, {name}",
            f"p50 {late[len(late) // 2]:.0f} ms, p99 {late[len(late) * 99 // 100]:.0f} ms, "
            f"max {late[-1]:.0f} ms; {len(late)} messages within {seconds:.0f} s",
        )


async def _send_later(server: Server, seconds: float) -> dict[str, float]:
    """Send delayed messages, due evenly from two seconds after the last send on."""
    due: dict[str, float] = {}
    begin = time.time() + 4
    async with httpx.AsyncClient(base_url=f"{server.url}/v1", trust_env=False) as client:
        for first in range(0, _LATER, _PER_REQUEST):
            messages = []
            for number in range(first, first + _PER_REQUEST):
                moment = begin + seconds * number / _LATER
                when = datetime.fromtimestamp(moment).astimezone().isoformat()
                messages.append({"body": {"text": "x" * 200}, "deliver_at": when})
            answer = await client.post(
                f"/topics/{TOPIC}/messages",
                params={"queue_id": _QUEUE},
                json={"messages": messages},
            )
            for receipt in answer.json()["messages"]:
                moment = datetime.fromisoformat(receipt["deliver_at"]).timestamp()
                due[receipt["message_id"]] = moment
    return due


async def _lateness_of(server: Server, due: dict[str, float]) -> list[float]:
    """Pull until all have arrived; return the lateness of each in ms."""
    late: list[float] = []
    offset = 0
    async with httpx.AsyncClient(
        base_url=f"{server.url}/v1", trust_env=False, timeout=60
    ) as client:
        while len(late) < len(due):
            answer = await client.get(
                f"/topics/{TOPIC}/queues/{_QUEUE}/messages",
                params={"offset": offset, "count_max": 1000, "wait_seconds": 20},
            )
            offset = answer.json()["next_offset"]
            for message in answer.json()["messages"]:
                stored = datetime.fromisoformat(message["stored_at"]).timestamp()
                late.append((stored - due[message["message_id"]]) * 1000)
            await asyncio.sleep(0.2)  # pull rarely, to leave the load alone
    return late


async def _million(report: Report) -> None:
    """Fill a store with pending timers, open it again, fire some."""
    with TemporaryDirectory(prefix="eruca-bench-") as temporary:
        directory = Path(temporary) / "store"
        settings = StoreSettings(store_host=_HOST)
        store = await MessageStore.open(directory, settings, SystemClock())
        await store.change(TopicPut(TOPIC, 1, 1, "rw"))
        begin = int(time.time() * 1000) + 3_600_000
        gc.collect()
        before = private_memory(os.getpid())
        for first in range(0, _MILLION, _PER_BATCH):
            await store.append_group([_waiting(range(first, first + _PER_BATCH), begin)])
        gc.collect()
        used = private_memory(os.getpid()) - before
        report.figure("a million pending timers: memory", f"{used / _MIB:.0f} MiB more than none")
        began = time.perf_counter()
        count = sum(len(batch.records) for batch, _ in store._snapshot_batches())
        report.figure(
            "a million pending timers: snapshot",
            f"{count / _MIB:.0f} MiB in {time.perf_counter() - began:.2f} s, once a segment",
        )
        await store.close()
        del store
        began = time.perf_counter()
        store = await MessageStore.open(directory, settings, SystemClock())
        assert len(store.timers) == _MILLION
        report.figure("a million pending timers: start", f"{time.perf_counter() - began:.2f} s")
        await _fire(report, store, begin)
        await store.close()


class _LateClock(SystemClock):
    """A clock for which everything is due."""

    def __init__(self, now_ms: int) -> None:
        self._now_ms = now_ms

    def now_ms(self) -> int:
        return self._now_ms


async def _fire(report: Report, store: MessageStore, begin: int) -> None:
    timers = Timers(store, _LateClock(begin + _SPREAD_MS))
    fired, began = 0, time.thread_time()
    while fired < _FIRED:
        fired += await timers.fire()
    spent = time.thread_time() - began
    report.figure("firing what is overdue", f"{fired / spent:,.0f} timers per CPU-s")


def _waiting(numbers: range, begin: int) -> Batch:
    records = []
    for number in numbers:
        raw = encode_record(
            Record(
                topic=TOPIC,
                body=b"x" * 200,
                properties=encode_properties({UNIQ_KEY: f"{number:032X}"}),
            )
        )
        # Neighbours are due far apart, as with delays of all lengths.
        due_ms = begin + number * 7_919_000 % _SPREAD_MS
        records.append(waiting(raw, Wait(deliver_at_ms=due_ms), Destination(TOPIC, 0)))
    return batch_of_records(*Wait(deliver_at_ms=1).place, records)
