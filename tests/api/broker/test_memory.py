"""A broker that has stopped leaves nothing of itself in its process."""

from __future__ import annotations

import asyncio
import gc
import weakref
from pathlib import Path

from eruca_broker.store.message_store import MessageStore
from support.brokers import broker_of, client_of, open_broker


async def store_of_a_stopped_broker(directory: Path) -> weakref.ref[MessageStore]:
    async with open_broker(directory) as app, client_of(app) as client:
        assert (await client.get("/status")).status_code == 200
        return weakref.ref(broker_of(app).store)


def test_a_stopped_broker_keeps_no_store_in_memory(tmp_path: Path) -> None:
    store = asyncio.run(store_of_a_stopped_broker(tmp_path))

    gc.collect()

    assert store() is None
