"""Each fault of a link, as the two parties see it: real sockets on both sides."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from chaos.proxies import Direction, Link, Network
from support.waiting import stays, until

pytestmark = pytest.mark.anyio


class Echo:
    """A server that answers each line with itself in capitals, and remembers what it was sent."""

    def __init__(self) -> None:
        self.received = b""
        self._server: asyncio.Server | None = None

    async def start(self) -> tuple[str, int]:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        host, port = self._server.sockets[0].getsockname()
        return host, port

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65_536):
                self.received += data
                writer.write(data.upper())
                await writer.drain()
        except ConnectionError:
            pass  # a link that fails is the test
        finally:
            writer.close()

    def close(self) -> None:
        assert self._server is not None
        self._server.close()


class Stage:
    """A link to an echo, and the clients that connect to it."""

    def __init__(self, link: Link, echo: Echo) -> None:
        self.link = link
        self.echo = echo
        self._writers: list[asyncio.StreamWriter] = []

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.link.port)
        self._writers.append(writer)
        return reader, writer

    async def answer(self, request: bytes) -> bytes:
        reader, writer = await self.connect()
        writer.write(request)
        return await reader.readexactly(len(request))

    def disconnect(self) -> None:
        for writer in self._writers:
            writer.transport.abort()


@asynccontextmanager
async def staged() -> AsyncIterator[Stage]:
    echo = Echo()
    network = Network()
    link = network.link("client", "server", await echo.start())
    await network.start()
    stage = Stage(link, echo)
    try:
        yield stage
    finally:
        stage.disconnect()
        await network.close()
        echo.close()


async def test_a_sound_link_passes_everything_on() -> None:
    async with staged() as stage:
        link, echo = stage.link, stage.echo
        reader, writer = await stage.connect()
        large = b"x" * 3_000_000
        writer.write(large)
        writer.write_eof()

        assert await reader.read() == large.upper()
        assert echo.received == large
        assert link.bytes_passed[Direction.THERE] == link.bytes_passed[Direction.BACK] == len(large)


async def test_a_cut_link_resets_connections_and_new_ones_until_it_heals() -> None:
    async with staged() as stage:
        link, echo = stage.link, stage.echo
        reader, writer = await stage.connect()
        writer.write(b"a")
        assert await reader.read(1) == b"A"

        link.cut()

        with pytest.raises(ConnectionError):
            await reader.readexactly(1)
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await stage.answer(b"c")
        assert echo.received == b"a"
        link.heal()
        assert await stage.answer(b"b") == b"B"


async def test_a_held_request_arrives_when_the_link_heals() -> None:
    async with staged() as stage:
        link, echo = stage.link, stage.echo
        reader, writer = await stage.connect()
        link.hold(Direction.THERE)
        writer.write(b"later")

        await stays(lambda: not echo.received)

        link.heal()
        assert await reader.readexactly(5) == b"LATER"


async def test_a_held_answer_is_to_a_request_that_was_done() -> None:
    async with staged() as stage:
        link, echo = stage.link, stage.echo
        reader, writer = await stage.connect()
        link.hold(Direction.BACK)
        writer.write(b"done")

        await until(lambda: echo.received == b"done")

        reading = asyncio.create_task(reader.readexactly(4))
        await stays(lambda: not reading.done())
        link.heal()
        assert await reading == b"DONE"


async def test_a_pulled_cable_swallows_new_connections_too() -> None:
    async with staged() as stage:
        link, echo = stage.link, stage.echo
        link.hold()
        reader, writer = await stage.connect()
        writer.write(b"x")
        await stays(lambda: not echo.received)

        link.heal()
        assert await reader.readexactly(1) == b"X"


async def test_a_slow_link_keeps_the_order() -> None:
    async with staged() as stage:
        link, echo = stage.link, stage.echo
        reader, writer = await stage.connect()
        link.slow(0.2, Direction.THERE)
        begun = asyncio.get_running_loop().time()
        for part in (b"one ", b"two ", b"three"):
            writer.write(part)
            await asyncio.sleep(0.02)  # so that they are three pieces

        assert await reader.readexactly(13) == b"ONE TWO THREE"
        assert asyncio.get_running_loop().time() - begun >= 0.2
        assert echo.received == b"one two three"


async def test_a_slow_link_that_heals_does_not_overtake() -> None:
    async with staged() as stage:
        link, echo = stage.link, stage.echo
        reader, writer = await stage.connect()
        link.slow(60.0, Direction.THERE)
        writer.write(b"first ")
        await stays(lambda: not echo.received)

        link.heal()
        writer.write(b"second")

        assert await reader.readexactly(12) == b"FIRST SECOND"


async def test_an_answer_is_torn_once() -> None:
    async with staged() as stage:
        link = stage.link
        reader, writer = await stage.connect()
        link.tear(3)
        writer.write(b"abcdef")

        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)) as torn:
            await reader.readexactly(6)

        if isinstance(torn.value, asyncio.IncompleteReadError):
            assert torn.value.partial == b"ABC"
        assert await stage.answer(b"abcdef") == b"ABCDEF"


async def test_without_a_target_a_connection_is_reset() -> None:
    async with staged() as stage:
        stage.echo.close()
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await stage.answer(b"x")


async def test_a_client_that_does_not_read_slows_the_server_and_not_the_proxy() -> None:
    async with staged() as stage:
        link, echo = stage.link, stage.echo
        link.hold(Direction.BACK)
        reader, writer = await stage.connect()
        sent = 0
        while sent < 64_000_000:
            writer.write(b"y" * 1_000_000)
            sent += 1_000_000
            try:
                await asyncio.wait_for(writer.drain(), 0.5)
            except TimeoutError:
                break
        assert len(echo.received) < 64_000_000

        link.heal()
        assert await reader.readexactly(10) == b"Y" * 10


async def test_links_are_found_by_their_parties() -> None:
    network = Network()
    for source, target in (("a", "b"), ("b", "a"), ("c", "a"), ("c", "b")):
        network.link(source, target, ("127.0.0.1", 1))

    def names(links: list[Link]) -> list[str]:
        return [str(link.name) for link in links]

    assert names(network.between(["a", "c"], ["b"])) == ["a→b", "c→b"]
    assert names(network.around("a")) == ["a→b", "b→a", "c→a"]
