"""The store of a broker that has lived: its log holds records of every kind, in small segments."""

from __future__ import annotations

from pathlib import Path
from random import Random

import anyio
import msgspec

from eruca_broker.core.state.epoch_events import EpochBegan
from eruca_broker.store.message_store import MessageStore
from eruca_broker.store.settings import FlushMode, StoreSettings
from support.brokers import broker_of, client_of, open_broker
from support.clocks import ManualClock
from support.lively_brokers import live
from support.stores import STORE_HOST, all_answers, new_term

SEGMENT_SIZE = 64 * 1024
CLOCK = ManualClock()


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


def broker_directory(directory: Path, seed: int, *, rounds: int = 12) -> Path:
    """Have a broker live in *directory*; it deletes a topic in every fourth round."""

    async def run() -> None:
        async with (
            open_broker(directory, CLOCK, segment_bytes=SEGMENT_SIZE) as app,
            client_of(app) as client,
        ):
            broker = broker_of(app)

            async def next_term(number: int) -> None:
                if number % 5 == 1:
                    await new_term(broker.store, epoch_began(number // 2 + 1))

            await live(
                client, broker.timers, CLOCK, Random(seed), rounds=rounds, after_round=next_term
            )

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
