"""Reads that cost more than memory: a backlog on a slow disk, and conditions on properties.

A consumer reads a backlog that is not in memory, as fast as a slow disk gives it, while one sender
awaits its sends. The disk's rate is the kernel's limit for the broker's process.
"""

from __future__ import annotations

import http.client
import threading
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import uvloop

from bench.batches import TOPIC, batch_request
from bench.calls import send_each
from bench.disks import forget, slow_reads
from bench.http_rows import create_topic
from bench.load import Load, run_load
from bench.machine import LOAD_CORE
from bench.report import Report
from bench.servers import Server, broker
from eruca.contract.properties import UNIQ_KEY, encode_properties
from eruca.contract.records import Host, Record, encode_unstamped
from eruca.contract.wire import RECORDS_MEDIA_TYPE, encode_batch
from eruca.core.filters.sql92 import Sql92Filter, compile_sql92
from eruca_broker.core.batches.batch import check_batch
from eruca_broker.core.state.events import TopicPut
from eruca_broker.store.message_store import MessageStore
from eruca_broker.store.settings import StoreSettings
from eruca_chassis.clock import SystemClock

_BACKLOG: Final = 128  # batches of 1 000 messages of 1 KiB
_DISK_RATE: Final = 20 * 1024**2  # bytes a second: the backlog lasts for seven seconds
_SENDER_QUEUE: Final = 1  # the backlog is in queue 0
_PULL: Final = f"/v1/topics/{TOPIC}/queues/0/messages?count_max=256&bytes_max=4000000&offset="
_MESSAGES: Final = 100_000  # of a backlog that is filtered
_CONDITIONS: Final = 10  # groups with one of their own; each excludes 999 messages of 1 000
_HOST: Final = Host.parse("127.0.0.1", 10_911)


def run(report: Report, seconds: float) -> None:
    """Measure every row."""
    with TemporaryDirectory(prefix="eruca-bench-") as directory:
        _slow_disk(report, seconds, Path(directory) / "store")
    with TemporaryDirectory(prefix="eruca-bench-") as directory:
        uvloop.run(_conditions(report, Path(directory) / "store"))


def _slow_disk(report: Report, seconds: float, directory: Path) -> None:
    with broker(directory) as server:
        create_topic(server)
        send_each(server, (batch_request(1_000, first=n * 1_000) for n in range(_BACKLOG)))
    forget(directory)
    with broker(directory) as server, slow_reads(server.process_id, directory, _DISK_RATE) as can:
        if not can:
            report.figure("cold reads", "skipped: the kernel lets us limit no disk")
            return
        _acks(server, seconds)  # the first sends read the log's last page
        idle = _acks(server, seconds)
        reader = _Reader(server)
        reader.start()
        beside = _acks(server, seconds)
        size, elapsed = reader.stop()
    for name, load in (("alone", idle), ("beside cold reads", beside)):
        p50, p99 = load.percentile(0.5), load.percentile(0.99)
        report.figure(f"acks {name}", f"p50 {p50:.0f} us, p99 {p99:.0f} us, {load.rate:.0f}/s")
    report.figure("cold reads", f"{size / elapsed / 1024**2:.1f} MiB/s, disk 20 MiB/s")
    report.ratio("cold-ack-p99", beside.percentile(0.99) / idle.percentile(0.99))


def _acks(server: Server, seconds: float) -> Load:
    """Send single messages, one after the other."""
    sent = [batch_request(1, queue_id=_SENDER_QUEUE, first=n) for n in range(256)]
    return run_load(server.port, sent, connections=1, seconds=seconds, core=LOAD_CORE)


class _Reader(threading.Thread):
    """Pulls the backlog from its beginning on."""

    def __init__(self, server: Server) -> None:
        super().__init__()
        self._port = server.port
        self._is_over = threading.Event()
        self._began = time.perf_counter()
        self._size = 0
        self._elapsed = 0.0

    def run(self) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self._port)
        offset = 0
        while not self._is_over.is_set() and offset < _BACKLOG * 1_000:
            connection.request("GET", f"{_PULL}{offset}", headers={"accept": RECORDS_MEDIA_TYPE})
            self._size += len(connection.getresponse().read())
            self._elapsed = time.perf_counter() - self._began
            offset += 256
        connection.close()

    def stop(self) -> tuple[int, float]:
        """Return the bytes that were read, and the seconds that it took."""
        self._is_over.set()
        self.join()
        return self._size, self._elapsed


async def _conditions(report: Report, directory: Path) -> None:
    store = await MessageStore.open(directory, StoreSettings(store_host=_HOST), SystemClock())
    await store.change(TopicPut(TOPIC, 1, 1, "rw"))
    for first in range(0, _MESSAGES, 1_000):
        batch = encode_batch([_numbered(number) for number in range(first, first + 1_000)])
        checked = check_batch(bytearray(batch), topic=TOPIC, queue_id=0, store_host=_HOST)
        await store.append(checked)
    conditions = [compile_sql92(f"price = {number * 7}") for number in range(_CONDITIONS)]
    evaluated, elapsed = [], []
    for _ in range(2):
        before, began = store.queues.evaluated_count, time.process_time()
        found = sum(_drain(store, condition) for condition in conditions)
        evaluated.append(store.queues.evaluated_count - before)
        elapsed.append(time.process_time() - began)
        assert found == _CONDITIONS * _MESSAGES // 1_000
    for name, count, spent in zip(("first", "second"), evaluated, elapsed, strict=True):
        report.figure(
            f"{name} reader of {_CONDITIONS} conditions",
            f"{count:,} evaluations, {spent / _CONDITIONS / _MESSAGES * 1e6:.2f} us a message",
        )
    report.ratio("spared-evaluations", evaluated[0] / evaluated[1])
    await store.close()


def _numbered(number: int) -> bytes:
    properties = {UNIQ_KEY: f"{number:032X}", "price": str(number % 1_000)}
    return encode_unstamped(
        Record(topic=TOPIC, body=b"x" * 200, properties=encode_properties(properties))
    )


def _drain(store: MessageStore, condition: Sql92Filter) -> int:
    """Return the number of matches in the backlog."""
    offset = found = 0
    while offset < _MESSAGES:
        read = store.queues.read(
            TOPIC, 0, offset, count_max=256, bytes_max=4_000_000, sql92=condition
        )
        found += read.count
        offset = read.next_offset
    return found
