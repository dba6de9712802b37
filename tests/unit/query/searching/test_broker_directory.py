"""Asking name servers for the brokers: seldom, and not once more while they say nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import pytest

import eruca
from eruca.contract.fields import BrokerRole
from eruca.contract.records import Host
from eruca.contract.routes import BrokerAddress, BrokerGroup
from eruca_query.searching.broker_directory import (
    REMEMBER_SECONDS,
    BrokerDirectory,
    KnownBrokers,
    known_of,
)
from support.clocks import ManualClock

pytestmark = pytest.mark.anyio
NOW = datetime(2026, 11, 21, tzinfo=UTC)


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
    assert "no complete answer before the deadline" in str(answers[0].fault)


def test_a_replicated_broker_is_known_by_every_address_it_ever_had() -> None:
    def broker(broker_id: int, role: BrokerRole) -> BrokerAddress:
        return BrokerAddress(
            broker_id=broker_id,
            epoch=8,
            role=role,
            urls={"default": f"http://b{broker_id}", "lan": f"http://lan{broker_id}"},
            store_host=f"10.0.0.{broker_id + 1}:1",
            data_version=1,
            last_seen_at=NOW,
            expires_at=NOW,
        )

    def known(*brokers: BrokerAddress) -> KnownBrokers:
        group = BrokerGroup(
            cluster="c",
            broker_name="broker-a",
            epoch=8,
            brokers=list(brokers),
            former_store_hosts=["10.9.9.9:1"],
        )
        return known_of([group], "lan")

    assert known(broker(0, "master"), broker(2, "standby")).urls == {"broker-a": "http://lan0"}
    alone = known(broker(2, "standby"))
    assert alone.urls == {"broker-a": "http://lan2"}
    assert alone.hosts == dict.fromkeys(
        map(Host.from_text, ("10.0.0.3:1", "10.9.9.9:1")), "broker-a"
    )
