"""The store by itself, in this process: the storage function, group commit, index, recovery."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import time
from collections.abc import Awaitable, Callable, Sequence
from itertools import cycle
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import uvloop

from bench.batches import QUEUES, TOPIC, distinct_batches, records
from bench.report import Report
from eruca.contract.records import Host
from eruca.contract.wire import encode_batch
from eruca_broker.core.batches.batch import Batch, check_batch
from eruca_broker.core.state.events import TopicPut
from eruca_broker.store.index.index_file import Int64Array, KeyHashes
from eruca_broker.store.index.key_index import KeyIndex
from eruca_broker.store.message_store import MessageStore
from eruca_broker.store.settings import FlushMode, StoreSettings
from eruca_chassis.clock import SystemClock
from eruca_chassis.running.process import freeze_start_up_objects, keep_freed_memory

_HOST = Host.parse("127.0.0.1", 10911)
_GIB = 1024**3
_SEGMENT_SIZE = 2_000_000_000  # bytes; warm, and larger than the rows need
_INDEX_KEYS = 1_000_000
_SQLITE_KEYS = 100_000
_COMMITS_IN_FLIGHT = 64


def run(report: Report, seconds: float) -> None:
    """Measure every row, in a process set up like a broker's."""
    keep_freed_memory()
    freeze_start_up_objects()
    uvloop.run(_storage_function(report))
    uvloop.run(_group_commit(report, seconds))
    _index(report)
    uvloop.run(_recovery(report))


def _body(count: int, queue_id: int) -> bytes:
    return encode_batch(records(count, queue_id=queue_id))


def _check(body: bytes, queue_id: int = 0) -> Batch:
    return check_batch(bytearray(body), topic=TOPIC, queue_id=queue_id, store_host=_HOST)


async def _open(directory: str, mode: FlushMode = FlushMode.ASYNC) -> MessageStore:
    settings = StoreSettings(
        store_host=_HOST, flush_mode=mode, segment_bytes=_SEGMENT_SIZE, is_log_warmed=True
    )
    store = await MessageStore.open(Path(directory) / "store", settings, SystemClock())
    await store.change(TopicPut(TOPIC, QUEUES, QUEUES, "rw"))
    return store


async def _storage_function(report: Report) -> None:
    """Measure check, stamp, write and dispatch per batch, against pwrite of the same bytes."""
    with TemporaryDirectory(prefix="eruca-bench-") as directory:
        store = await _open(directory)
        spent = {}
        for count, rounds in ((100, 2_000), (1000, 400)):
            bodies = distinct_batches(count)
            following = cycle(bodies)
            spent[count] = await _cpu_of(lambda: store.append(_check(next(following))), rounds)  # noqa: B023
            raw = _pwrite_cpu(Path(directory) / "raw", bodies, rounds)
            report.figure(
                f"storage function, batch of {count}",
                f"{count / spent[count]:,.0f} messages per CPU-s; pwrite {count / raw:,.0f}",
            )
            report.ratio(f"store-{count}", raw / spent[count])
        mixed = [_body(1000 // QUEUES, queue_id) for queue_id in range(QUEUES)]

        async def append_mixed() -> None:
            await asyncio.gather(
                *(store.append(_check(body, queue)) for queue, body in enumerate(mixed))
            )

        spent_mixed = await _cpu_of(lambda: asyncio.ensure_future(append_mixed()), 200)
        report.ratio("store-mixed", spent[1000] / spent_mixed)
        await store.close()


async def _cpu_of(append: Callable[[], Awaitable[object]], rounds: int) -> float:
    for _ in range(rounds // 10):
        await append()
    before = time.thread_time()
    for _ in range(rounds):
        await append()
    return (time.thread_time() - before) / rounds


def _pwrite_cpu(path: Path, bodies: Sequence[bytes], rounds: int) -> float:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT)
    try:
        for _ in range(2):  # the first round allocates the pages for the second
            before = time.thread_time()
            for number, data in zip(range(rounds), cycle(bodies), strict=False):
                os.pwrite(descriptor, data, number * len(data))
        return (time.thread_time() - before) / rounds
    finally:
        os.close(descriptor)
        path.unlink()


async def _group_commit(report: Report, seconds: float) -> None:
    """Measure many appends in flight, with one flush for all that wait."""
    with TemporaryDirectory(prefix="eruca-bench-") as directory:
        store = await _open(directory, FlushMode.SYNC)
        body = _body(1, 0)
        flushes = 0
        reached = store.flushed_offset
        ends_at = time.perf_counter() + seconds

        async def produce() -> int:
            nonlocal flushes, reached
            count = 0
            while time.perf_counter() < ends_at:
                await store.append(_check(body))
                count += 1
                if store.flushed_offset != reached:
                    reached = store.flushed_offset
                    flushes += 1
            return count

        total = sum(await asyncio.gather(*(produce() for _ in range(_COMMITS_IN_FLIGHT))))
        report.figure("group commit, 64 in flight", f"{total / seconds:,.0f} messages/s")
        report.ratio("group-commit", total / max(flushes, 1))
        await store.close()


def _index(report: Report) -> None:
    """Insert keys in batches of 1 000, against three-column rows in SQLite's WAL mode."""
    rng = np.random.default_rng(17)
    hashes = rng.integers(0, 2**31, _INDEX_KEYS, dtype=np.int32)
    offsets = np.arange(_INDEX_KEYS) * 1_200
    timestamps = np.full(_INDEX_KEYS, 1_700_000_000_000)
    for _ in range(2):  # the first round allocates the pages for the second
        with TemporaryDirectory(prefix="eruca-bench-") as directory:
            own = _keys_per_second(Path(directory), hashes, offsets, timestamps)
            other = _sqlite_keys_per_second(Path(directory), hashes, offsets, timestamps)
    report.figure("key index", f"{own:,.0f} keys per CPU-s; SQLite {other:,.0f}")
    report.ratio("index", own / other)


def _keys_per_second(
    directory: Path, hashes: KeyHashes, offsets: Int64Array, timestamps: Int64Array
) -> float:
    index = KeyIndex.open(directory / "index")
    before = time.thread_time()
    for first in range(0, _INDEX_KEYS, 1000):
        rows = slice(first, first + 1000)
        index.put_many(hashes[rows], offsets[rows], timestamps[rows])
    spent = time.thread_time() - before
    index.close()
    return _INDEX_KEYS / spent


def _sqlite_keys_per_second(
    directory: Path, hashes: KeyHashes, offsets: Int64Array, timestamps: Int64Array
) -> float:
    database = sqlite3.connect(directory / "index.db")
    database.execute("pragma journal_mode=wal")
    database.execute("create table keys (hash integer, log_offset integer, stored integer)")
    database.execute("create index by_hash on keys (hash)")
    database.execute("create index by_offset on keys (log_offset)")
    before = time.thread_time()
    for first in range(0, _SQLITE_KEYS, 1000):
        rows = slice(first, first + 1000)
        columns = (hashes[rows].tolist(), offsets[rows].tolist(), timestamps[rows].tolist())
        with database:
            database.executemany("insert into keys values (?, ?, ?)", zip(*columns, strict=True))
    spent = time.thread_time() - before
    database.close()
    return _SQLITE_KEYS / spent


async def _recovery(report: Report) -> None:
    """Open a store that was not closed, with a gibibyte of log and every projection to rebuild."""
    with TemporaryDirectory(prefix="eruca-bench-") as directory:
        store = await _open(directory)
        body = _body(1000, 0)
        while store.log_max_offset < _GIB:
            await store.append(_check(body))
        count = store.queues.range(TOPIC, 0)[1]
        await store.close()
        path = Path(directory) / "store"
        (path / "checkpoint").unlink()
        (path / "abort").touch()
        began = time.perf_counter()
        settings = StoreSettings(store_host=_HOST)
        store = await MessageStore.open(path, settings, SystemClock())
        elapsed = time.perf_counter() - began
        assert store.queues.range(TOPIC, 0)[1] == count
        await store.close()
        began = time.perf_counter()
        store = await MessageStore.open(path, settings, SystemClock())
        normal = time.perf_counter() - began
        await store.close()
    report.figure("recovery after a crash", f"{elapsed:.2f} s per GiB of {count:,} messages")
    report.figure("opening after an orderly stop", f"{normal:.2f} s with a GiB of log")
