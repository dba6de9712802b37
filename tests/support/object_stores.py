"""An S3 store for tests: moto's server in a process of its own, and a door that can refuse."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import httpx
from aiohttp import ClientSession, web

from eruca_deploy.ports import free_ports
from support.processes import clean_environment
from support.waiting import wait_until

BUCKET = "lake"
REGION = "us-east-1"
_HOST = "127.0.0.1"


@contextmanager
def s3_store() -> Iterator[str]:
    """Yield the URL of an S3 store, which has an empty bucket."""
    [port] = free_ports(_HOST, 1)
    url = f"http://{_HOST}:{port}"
    process = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-m", "moto.server", "-H", _HOST, "-p", str(port)],
        env=clean_environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_until(lambda: _has_begun(url))
        httpx.put(f"{url}/{BUCKET}", trust_env=False).raise_for_status()
        yield url
    finally:
        process.kill()
        process.wait()


def _has_begun(url: str) -> bool:
    try:
        return httpx.get(f"{url}/moto-api/", trust_env=False).status_code < 500
    except httpx.TransportError:
        return False


class Door:
    """The way to a store; it refuses requests with 503 while :attr:`refusals` are left.

    Attributes:
        url: Its own.
        refusals: How many of the next requests are refused.
        refused_count: How many have been.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self.refusals = 0
        self.refused_count = 0


@asynccontextmanager
async def door_to(store_url: str) -> AsyncIterator[Door]:
    """Yield a door to the store at a URL."""
    async with ClientSession(auto_decompress=False) as session:

        async def pass_on(request: web.Request) -> web.Response:
            if door.refusals:
                door.refusals -= 1
                door.refused_count += 1
                return web.Response(status=503, text="<Error><Code>SlowDown</Code></Error>")
            answer = await session.request(
                request.method,
                store_url + request.raw_path,
                headers=request.headers,
                data=await request.read(),
            )
            async with answer:
                kept = {n: v for n, v in answer.headers.items() if n.lower() not in _HOP_BY_HOP}
                body = await answer.read()
                return web.Response(status=answer.status, headers=kept, body=body)

        app = web.Application(client_max_size=64 * 1024**2)
        app.router.add_route("*", "/{path:.*}", pass_on)
        runner = web.AppRunner(app)
        await runner.setup()
        [port] = free_ports(_HOST, 1)
        await web.TCPSite(runner, _HOST, port).start()
        door = Door(f"http://{_HOST}:{port}")
        try:
            yield door
        finally:
            await runner.cleanup()


_HOP_BY_HOP = frozenset(("connection", "transfer-encoding", "content-length", "content-encoding"))
