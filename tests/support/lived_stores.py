"""The store of a broker that has lived: its log holds records of every kind, in small segments."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import anyio
import httpx
import msgspec

from eruca_broker.core.state.epoch_events import EpochBegan
from eruca_broker.store.message_store import MessageStore
from eruca_broker.store.settings import FlushMode, StoreSettings
from support.brokers import BrokerParts, broker_of, client_of, open_broker
from support.clocks import ManualClock
from support.stores import STORE_HOST, all_answers, new_term

SEGMENT_SIZE = 64 * 1024
CLOCK = ManualClock()
QUEUES = {"read_queue_count": 2, "write_queue_count": 2}


def settings(*, is_replica: bool, flush_mode: FlushMode = FlushMode.ASYNC) -> StoreSettings:
    return StoreSettings(
        store_host=STORE_HOST,
        flush_mode=flush_mode,
        segment_bytes=SEGMENT_SIZE,
        queue_file_entries=64,
        index_slots=64,
        index_entries=256,
        is_replica=is_replica,
    )


def epoch_began(epoch: int) -> EpochBegan:
    host = f"10.0.0.{epoch % 3}:10911"
    return EpochBegan(epoch, epoch % 3, "9f2c51d07ab3e846", host, CLOCK.now_ms(), epoch == 5)


async def live(client: httpx.AsyncClient, broker: BrokerParts, random: Random, rounds: int) -> None:
    """Have a broker store records of every kind."""

    async def ask(method: str, path: str, **body: object) -> dict[str, Any]:
        answer = await client.request(method, path, json=body or None)
        assert answer.is_success, answer.text
        answered: dict[str, Any] = answer.json() if answer.content else {}
        return answered

    async def send(topic: str, count: int, **fields: object) -> None:
        CLOCK.advance(0.7)
        messages = [
            {"body": {"text": "x" * random.randrange(2_000)}, **fields} for _ in range(count)
        ]
        await ask("POST", f"/topics/{topic}/messages", messages=messages)

    async def half(outcome: str | None) -> None:
        message = {"body": {"text": "paid"}, "keys": ["k2"]}
        begun = await ask(
            "POST", "/transactions", topic="orders", producer_group="shop", message=message
        )
        if outcome is not None:
            path = f"/transactions/{begun['transaction_id']}:{outcome}"
            await ask("POST", path, producer_group="shop")

    for topic in ("orders", "passing"):
        await ask("PUT", f"/topics/{topic}", **QUEUES)
    await ask("PUT", "/groups/billing", start="earliest", retries_max=2)
    for number in range(rounds):
        await send("orders", 9, keys=[f"k{number % 3}", "all"], tag=["red", "blue"][number % 2])
        await send("passing", 3, keys=["k1"])
        await send("orders", 2, delay_seconds=2 + number)
        await half(["commit", "rollback", None][number % 3])
        received = await ask(
            "POST", "/groups/billing/deliveries", topic="orders", count_max=4, start="earliest"
        )
        handles = [delivery["handle"] for delivery in received["deliveries"]]
        await ask("POST", "/groups/billing/deliveries:ack", handles=handles[:2])
        await ask("POST", "/groups/billing/deliveries:nack", handles=handles[2:])
        CLOCK.advance(1.5)
        while await broker.timers.fire():
            pass
        if number % 5 == 1:
            await new_term(broker.store, epoch_began(number // 2 + 1))
        if number % 4 == 3:
            await ask("DELETE", "/topics/passing")
            await ask("PUT", "/topics/passing", **QUEUES)
            await send("passing", number, tag="red")


def broker_directory(directory: Path, seed: int, *, rounds: int = 12) -> Path:
    """Have a broker live in *directory*; it deletes a topic in every fourth round."""

    async def run() -> None:
        async with (
            open_broker(directory, CLOCK, segment_bytes=SEGMENT_SIZE) as app,
            client_of(app) as client,
        ):
            await live(client, broker_of(app), Random(seed), rounds)

    anyio.run(run)
    return directory


def assert_same(replica: MessageStore, source: MessageStore) -> None:
    """Compare everything that two stores have and answer."""
    assert files_of(replica, "commitlog") == files_of(source, "commitlog")
    assert files_of(replica, "consumequeue") == files_of(source, "consumequeue")
    assert all_answers(replica) == all_answers(source)
    assert state_of(replica) == state_of(source)


def files_of(store: MessageStore, folder: str) -> dict[str, bytes]:
    directory = store.directory / folder
    return {
        path.relative_to(directory).as_posix(): path.read_bytes()
        for path in directory.rglob("*")
        if path.is_file() and path.read_bytes().strip(b"\0")  # but for one made in advance
    }


def state_of(store: MessageStore) -> dict[str, object]:
    """Return the whole state, as a snapshot of it would be, but in an order of its own."""
    lists: dict[str, list[object]] = {}
    for _, part in store._snapshot_batches():
        for name, items in msgspec.structs.asdict(part).items():
            lists[name] = lists.get(name, []) + (items if isinstance(items, list) else [items])
    lists["timers"] = store.timers.rows().tolist()
    return {name: sorted(items, key=repr) for name, items in lists.items()}
