"""The pull consumer without a network: what it refuses."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import pytest

import eruca
from eruca.contract.errors import ValidationError
from support.pulled_queues import Queues
from support.scripted_transport import ScriptedTransport

pytestmark = pytest.mark.anyio


def test_another_event_loop_is_refused(queues: Queues, hot: ScriptedTransport) -> None:
    client = eruca.AsyncClient(
        "http://namesrv", hot_transport=hot, transport=ScriptedTransport(queues.rest)
    )
    consumer = client.pull_consumer(topics="orders")

    async def use() -> None:
        assert await consumer.poll(wait_seconds=0.01) == []
        await consumer.pause()  # and so nothing is fetched when the loop ends

    asyncio.run(use())
    with pytest.raises(eruca.ClosedError, match="another event loop"):
        asyncio.run(use())


async def test_a_number_is_no_queue_to_read() -> None:
    client = eruca.AsyncClient("http://127.0.0.1:1")
    async with client:
        with pytest.raises(ValidationError, match=r"queues: \[3\] is not a list of MessageQueue"):
            client.pull_consumer(queues=[3])  # type: ignore[list-item]
        with pytest.raises(
            ValidationError, match=r"3 is (no |not an object of eruca\.)MessageQueue"
        ):
            await client.admin.offset_by_time(3, datetime.now(UTC))  # type: ignore[arg-type]
        with pytest.raises(
            ValidationError, match=r"offsets: \{3: 0\} is not a mapping from an object"
        ):
            await client.admin.groups.commit("g", {3: 0})  # type: ignore[dict-item]
