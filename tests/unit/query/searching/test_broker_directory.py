"""Asking name servers for the brokers: seldom, and not once more while they say nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

import eruca
from eruca_query.searching.broker_directory import REMEMBER_SECONDS, BrokerDirectory
from support.clocks import ManualClock

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def silent_name_server(asked: list[str]) -> AsyncIterator[str]:
    """Yield the URL of what takes requests, notes them, and never answers."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            if line.startswith(b"GET "):
                asked.append(line.decode())
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def test_name_servers_that_say_nothing_are_waited_for_once_and_not_by_each_step() -> None:
    asked: list[str] = []
    clock = ManualClock()
    async with (
        silent_name_server(asked) as url,
        eruca.AsyncClient(url, timeout_seconds=0.1) as client,
    ):
        directory = BrokerDirectory(client, clock)
        answers = await asyncio.gather(*(directory.brokers() for _ in range(5)))
        directory.forget()  # a broker was not there
        answers.append(await directory.brokers())
        asked_at_first = len(asked)
        clock.advance(REMEMBER_SECONDS)
        await directory.brokers()

    assert asked_at_first == 1
    assert len(asked) == 2
    assert len({answer.fault for answer in answers}) == 1
    assert "no answer" in str(answers[0].fault)
