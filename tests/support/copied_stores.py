"""Two stores that copy each other's logs, in both flush modes.

Nothing is confirmed but by the test.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from eruca_broker.core.state.events import EpochBegan, Event, StateSnapshot
from eruca_broker.store.log.receipts import Receipt
from eruca_broker.store.message_store import MessageStore
from eruca_broker.store.settings import FlushMode
from support.clocks import ManualClock
from support.log_model import LogModel, read_log
from support.message_stores import ORDERS
from support.stores import all_answers, batch, small_settings
from support.waiting import until

CLOCK = ManualClock()


def began(epoch: int) -> EpochBegan:
    return EpochBegan(epoch, 1, "9f2c51d07ab3e846", f"10.0.0.{epoch}:10911", CLOCK.now_ms())


def never(_: int) -> None:
    """Confirm nothing by itself."""


async def opened_replica(directory: Path, mode: FlushMode = FlushMode.ASYNC) -> MessageStore:
    settings = replace(small_settings(flush_mode=mode), is_replica=True)
    store = await MessageStore.open(directory, settings, CLOCK)
    store.role.on_durable = never
    return store


async def durable(store: MessageStore) -> int:
    """Return the log's end once all of it is durable."""
    await until(lambda: store._log.end_offset == store.log_max_offset == store.durable_offset)
    return store.log_max_offset


async def confirmed(store: MessageStore) -> None:
    store.role.confirm(await durable(store))
    assert store.confirmed_offset == store.log_max_offset


async def lead(store: MessageStore, epoch: int) -> Receipt:
    leading = store.role.lead(began(epoch))
    await confirmed(store)
    return await leading


async def send(
    store: MessageStore, *texts: str, queue_id: int = 0
) -> list[asyncio.Future[Receipt]]:
    sent = [store.append(batch("orders", queue_id, [t.encode()], keys="k1")) for t in texts]
    await durable(store)
    return sent


async def change(store: MessageStore, *events: Event) -> Sequence[asyncio.Future[int]]:
    changing = [asyncio.ensure_future(store.change(event)) for event in events]
    await asyncio.sleep(0)
    await durable(store)
    return changing


async def feed(replica: MessageStore, master: MessageStore, bytes_max: int = 700) -> None:
    """Have a replica hold all that its master has written."""
    while run := b"".join(master.log.run(offset := replica.log_max_offset, bytes_max)):
        await replica.role.copy(memoryview(run), offset)
    assert replica.log_max_offset == replica.durable_offset == master.log_max_offset


def log_of(store: MessageStore) -> dict[str, bytes]:
    paths = sorted((store.directory / "commitlog").iterdir())
    logs = {path.name: path.read_bytes() for path in paths}
    return {name: data for name, data in logs.items() if data.strip(b"\0")}


@asynccontextmanager
async def pair(
    directory: Path, mode: FlushMode
) -> AsyncIterator[tuple[MessageStore, MessageStore]]:
    """Yield a master of epoch 1 and its replica, with a topic, equal and confirmed."""
    one, two = (
        await opened_replica(directory / "one", mode),
        await opened_replica(directory / "two", mode),
    )
    await lead(one, 1)
    await change(one, ORDERS)
    await confirmed(one)
    await feed(two, one)
    await confirmed(two)
    yield one, two
    for store in (one, two):
        await store.close()


async def assert_sound(store: MessageStore, directory: Path) -> None:
    """Check the log by itself, and that it leads to the same answers without any other file."""
    LogModel(read_log(store.directory))
    answers, timers = all_answers(store), sorted(map(tuple, store.timers.rows().tolist()))
    copy = directory / "from the log"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(store.directory / "commitlog", copy / "commitlog")
    rebuilt = await opened_replica(copy)
    assert all_answers(rebuilt) == answers
    assert sorted(map(tuple, rebuilt.timers.rows().tolist())) == timers
    assert rebuilt.role.epochs() == store.role.epochs()
    await rebuilt.close()


def queue_ends(store: MessageStore) -> dict[tuple[str, int], int]:
    """Return what a snapshot would say now of the queues of messages."""
    ends: dict[tuple[str, int], int] = {}
    for _, part in store._snapshot_batches():
        assert isinstance(part, StateSnapshot)
        ends |= {(end.topic, end.queue_id): end.next_offset for end in part.queue_ends}
    return {key: end for key, end in ends.items() if key[0] == "orders"}
