"""A feed of slaves when a slave or its broker does not do what it should."""

from __future__ import annotations

import asyncio
import json
import struct
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress

import pytest

import eruca
from eruca.cli.slaves import slave_feed
from eruca.cli.slaves.slave_feed import SLAVES_MAX, SlaveEvent, SlaveFeed
from eruca_testing import InMemoryBroker
from support.waiting import until

pytestmark = pytest.mark.anyio

HEADER = struct.Struct(">qi")


class Stage:
    """A feed in this process, and the events that it tells."""

    def __init__(self, client: eruca.AsyncClient) -> None:
        self.events: list[SlaveEvent] = []
        self.port = 0
        self._feed = SlaveFeed(client, "broker-a", self.events.append)

    async def run(self, *slaves: tuple[str, int]) -> None:
        """Serve until cancelled."""
        await self._feed.serve("127.0.0.1", 0, listening=self._listening, slaves=slaves)

    async def slave(
        self, report: int | None = 0
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect a slave that reports once."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        if report is not None:
            writer.write(struct.pack(">q", report))
        return reader, writer

    def kinds(self) -> list[str]:
        """Return the kinds of the events so far."""
        return [event.kind for event in self.events]

    async def until_kinds(self, kinds: list[str]) -> None:
        """Wait until it has told these kinds of events, and no others."""
        await until(lambda: self.kinds() == kinds)

    def _listening(self, _: str, port: int) -> None:
        self.port = port


@asynccontextmanager
async def feeding(broker: InMemoryBroker, *slaves: tuple[str, int]) -> AsyncIterator[Stage]:
    async with eruca.AsyncClient(broker.namesrv_urls) as client:
        stage = Stage(client)
        task = asyncio.create_task(stage.run(*slaves))
        await until(lambda: stage.port)
        try:
            yield stage
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


@pytest.fixture
async def stage(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[InMemoryBroker, Stage]]:
    monkeypatch.setattr(slave_feed, "HEARTBEAT_SECONDS", 0.05)
    monkeypatch.setattr(slave_feed, "PAUSE_SECONDS", 0.05)
    with InMemoryBroker() as broker:
        async with feeding(broker) as running:
            yield broker, running


async def frame(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    """Return the next frame's log offset and bytes."""
    log_offset, size = HEADER.unpack(await reader.readexactly(HEADER.size))
    return log_offset, await reader.readexactly(size)


class Broker:
    """A RocketMQ broker that learns where its master is."""

    def __init__(self, code: int) -> None:
        self.told: list[dict[str, str]] = []
        self._code = code

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request of RocketMQ's protocol."""
        size, header_size = struct.unpack(">II", await reader.readexactly(8))
        assert size == 4 + header_size, "it has no body"
        request = json.loads(await reader.readexactly(header_size))
        assert request["code"] == 906
        self.told.append(request["extFields"])
        header = json.dumps({"code": self._code, "opaque": request["opaque"], "remark": "no"})
        writer.write(struct.pack(">II", 4 + len(header), len(header)) + header.encode())
        writer.close()


@pytest.mark.parametrize(("code", "kind"), [(0, "told"), (1, "not told")])
async def test_a_slave_is_told_where_its_master_is_until_it_connects(
    monkeypatch: pytest.MonkeyPatch, code: int, kind: str
) -> None:
    monkeypatch.setattr(slave_feed, "INTRODUCTION_SECONDS", 0.02)
    broker = Broker(code)
    server = await asyncio.start_server(broker.answer, "127.0.0.1", 0)
    address = server.sockets[0].getsockname()[:2]
    with InMemoryBroker() as source:
        async with server, feeding(source, address) as stage:
            await until(lambda: len(broker.told) > 2)
            assert broker.told[0]["masterHaAddress"] == f"127.0.0.1:{stage.port}"
            assert stage.kinds() == [kind]  # once, though it is repeated
            _, writer = await stage.slave()
            await until(lambda: "begins" in stage.kinds())
            writer.close()


async def test_a_slave_that_is_away_is_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slave_feed, "INTRODUCTION_SECONDS", 0.02)
    server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
    address = server.sockets[0].getsockname()[:2]
    with InMemoryBroker() as source:
        async with feeding(source, address) as stage:
            await until(lambda: stage.kinds() == ["not told"])
            server.close()
            await until(lambda: len(stage.events) == 2)
            assert all("it cannot be reached" in str(event) for event in stage.events)


async def test_a_slave_that_stays_silent_is_disconnected(
    stage: tuple[InMemoryBroker, Stage], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, feed = stage
    monkeypatch.setattr(slave_feed, "SILENCE_SECONDS_MAX", 0.2)
    for report, kinds in ((None, ["refused"]), (0, ["refused", "begins", "refused"])):
        reader, writer = await feed.slave(report)

        while await reader.read(1024):
            pass
        await feed.until_kinds(kinds)
        assert "it has reported nothing" in str(feed.events[-1])
        writer.close()


async def test_while_the_broker_is_away_a_slave_has_heartbeats(
    stage: tuple[InMemoryBroker, Stage],
) -> None:
    broker, feed = stage
    reader, writer = await feed.slave()
    begin, data = await frame(reader)
    end = begin + len(data)
    with broker.away():
        await until(lambda: feed.kinds() == ["begins", "waits"])
        for _ in range(3):
            assert await frame(reader) == (end, b"")
    await until(lambda: feed.kinds() == ["begins", "waits", "goes on"])
    writer.close()
    await until(lambda: feed.kinds()[-1] == "left")
    assert feed.events[-1].log_offset == 0  # it never acknowledged


async def test_one_slave_more_than_there_may_be_is_refused(
    stage: tuple[InMemoryBroker, Stage],
) -> None:
    _, feed = stage
    async with AsyncExitStack() as stack:
        for _ in range(SLAVES_MAX):
            reader, writer = await feed.slave()
            stack.callback(writer.close)
            await frame(reader)
        reader, writer = await feed.slave()
        stack.callback(writer.close)

        with suppress(ConnectionResetError):
            assert await reader.read() == b""
        await until(lambda: feed.kinds()[-1] == "refused")
        assert f"{SLAVES_MAX} slaves are connected already" in str(feed.events[-1])


async def test_a_refusal_is_told_once_until_something_else_happens(
    stage: tuple[InMemoryBroker, Stage],
) -> None:
    _, feed = stage
    for report in (10**12, 10**12, 0, 10**12):
        reader, writer = await feed.slave(report)
        if not report:
            await frame(reader)
        else:
            with suppress(ConnectionResetError):
                assert await reader.read() == b""
        writer.close()
    await until(lambda: feed.kinds().count("refused") == 2)
    assert "begins" in feed.kinds()
