"""A service within somebody else's process: there, away, back, and gone without a trace."""

from __future__ import annotations

import asyncio
import gc
import signal
import socket
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import httpx
import pytest
import uvloop

from eruca_chassis.admission.needs import PUBLIC
from eruca_chassis.app import ServiceApp
from eruca_chassis.routes.router import Router
from eruca_chassis.running.serving import EmbeddedServer, embedded
from eruca_chassis.running.settings import ServiceSettings
from eruca_chassis.start import StartError
from support.patience import PATIENCE_SECONDS

pytestmark = pytest.mark.anyio


class Thing:
    """A service with one route, which is answered when it is let go."""

    def __init__(self) -> None:
        self.is_asked = asyncio.Event()
        self.may_answer = asyncio.Event()
        router = Router(prefix="/v1")

        @router.get("/things", needs=PUBLIC)
        async def things() -> list[str]:
            self.is_asked.set()
            await self.may_answer.wait()
            return ["thing"]

        self.app = ServiceApp(
            title="T",
            summary="",
            description="",
            version="1",
            routers=[router],
            lifespan=self._lifespan,
        )
        self.app.stop_hooks.append(self.may_answer.set)

    @asynccontextmanager
    async def _lifespan(self, app: ServiceApp) -> AsyncIterator[None]:
        app.readiness.ready()
        yield


@pytest.fixture
async def thing() -> Thing:
    return Thing()


def url_of(server: EmbeddedServer) -> str:
    [(host, port)] = server.service.addresses
    return f"http://{host}:{port}"


def client_of(server: EmbeddedServer) -> httpx.AsyncClient:
    return httpx.AsyncClient(base_url=url_of(server), trust_env=False, timeout=20)


async def test_the_process_stays_as_it_was(thing: Thing) -> None:
    before = (signal.getsignal(signal.SIGINT), gc.get_threshold())
    frozen_count = gc.get_freeze_count()
    assert threading.current_thread() is threading.main_thread()

    async with embedded(thing.app, ServiceSettings()) as server, client_of(server) as client:
        assert (await client.get("/healthz")).status_code == 200
        during = (signal.getsignal(signal.SIGINT), gc.get_threshold())
        assert gc.get_freeze_count() <= frozen_count  # what others had frozen may be gone by now

    assert during == before


async def test_its_end_waits_for_requests_and_for_nothing_else(thing: Thing) -> None:
    async with embedded(thing.app, ServiceSettings()) as server:
        client = client_of(server)  # still there, with a connection, when the block ends
        asked = asyncio.create_task(client.get("/v1/things"))
        await thing.is_asked.wait()

    assert (await asked).json() == ["thing"]
    assert not server.watch.connections
    with pytest.raises(httpx.ConnectError):
        await client.get("/healthz")
    await client.aclose()


async def test_what_does_not_end_is_cut(thing: Thing) -> None:
    thing.app.stop_hooks.clear()  # so nobody lets the request go
    async with embedded(thing.app, ServiceSettings(stop_seconds=1)) as server:
        client = client_of(server)
        asked = asyncio.create_task(client.get("/v1/things"))
        await thing.is_asked.wait()

    with pytest.raises(httpx.TransportError):
        await asked
    assert not server.server_state.tasks
    await client.aclose()


async def test_while_it_is_away_nobody_reaches_it_and_then_it_is_where_it_was(thing: Thing) -> None:
    async with embedded(thing.app, ServiceSettings()) as server, client_of(server) as client:
        asked = asyncio.create_task(client.get("/v1/things"))
        await thing.is_asked.wait()

        await server.go_away()
        with pytest.raises(httpx.TransportError):
            await asked
        with pytest.raises(httpx.ConnectError):
            await client.get("/healthz")
        await server.come_back()

        assert (await client.get("/healthz")).status_code == 200


def test_a_connection_that_is_just_being_accepted_is_cut_as_well() -> None:
    """Between the kernel's accept and the protocol's lie some turns of the loop."""

    async def in_turns() -> None:
        async with embedded(Thing().app, ServiceSettings()) as server:
            for turns in range(8):
                with socket.create_connection(server.service.addresses[0]) as client:
                    client.setblocking(False)
                    for _ in range(turns):
                        await asyncio.sleep(0)
                    await server.go_away()
                    with suppress(ConnectionResetError):
                        assert await asyncio.get_running_loop().sock_recv(client, 1) == b""
                await server.come_back()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:  # as services have
        runner.run(asyncio.wait_for(in_turns(), PATIENCE_SECONDS))


async def test_it_may_end_while_it_is_away(thing: Thing) -> None:
    async with embedded(thing.app, ServiceSettings()) as server:
        await server.go_away()

    assert not server.watch.connections


async def test_one_that_refuses_to_start_keeps_no_port() -> None:
    @asynccontextmanager
    async def lifespan(app: ServiceApp) -> AsyncIterator[None]:
        assert app.addresses
        addresses.extend(app.addresses)
        raise StartError("the store is on fire; put it out")
        yield

    addresses: list[tuple[str, int]] = []
    app = ServiceApp(title="T", summary="", description="", version="1", lifespan=lifespan)

    with pytest.raises(StartError, match="on fire"):
        async with embedded(app, ServiceSettings()):
            pass

    socket.create_server(addresses[0]).close()


async def test_a_port_that_is_taken_is_an_error(thing: Thing) -> None:
    async with embedded(thing.app, ServiceSettings()) as server:
        [(_, port)] = server.service.addresses

        with pytest.raises(OSError, match="in use"):
            async with embedded(Thing().app, ServiceSettings(port=port)):
                pass
