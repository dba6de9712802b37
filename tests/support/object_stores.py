"""An S3 store for tests: moto's server in a process of its own, and a door that can refuse."""

from __future__ import annotations

import json
import subprocess
import sys
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from urllib.parse import urlsplit

import boto3  # type: ignore[import-untyped]
import httpx
from aiohttp import ClientSession, web
from anyio.from_thread import start_blocking_portal

from eruca_deploy.ports import free_ports
from support.processes import clean_environment
from support.tcp_proxy import TcpProxy
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


@contextmanager
def requiring_credentials(url: str) -> Iterator[None]:
    """Have a store check the credentials of every request in the block."""
    httpx.post(f"{url}/moto-api/reset-auth", content="0", trust_env=False).raise_for_status()
    try:
        yield
    finally:
        httpx.post(f"{url}/moto-api/reset-auth", content="inf", trust_env=False).raise_for_status()


def created_user(url: str) -> tuple[str, str]:
    """Create a user who may do everything in S3; return the access key and its secret."""
    iam = boto3.client(
        "iam",
        endpoint_url=url,
        region_name=REGION,
        aws_access_key_id="root",
        aws_secret_access_key="root",
    )
    name = f"user-{uuid.uuid4().hex}"
    iam.create_user(UserName=name)
    statement = {"Effect": "Allow", "Action": "s3:*", "Resource": "*"}
    policy = {"Version": "2012-10-17", "Statement": [statement]}
    iam.put_user_policy(UserName=name, PolicyName="all", PolicyDocument=json.dumps(policy))
    key = iam.create_access_key(UserName=name)["AccessKey"]
    return key["AccessKeyId"], key["SecretAccessKey"]


def _has_begun(url: str) -> bool:
    try:
        return httpx.get(f"{url}/moto-api/", trust_env=False).status_code < 500
    except httpx.TransportError:
        return False


@contextmanager
def network_to(url: str) -> Iterator[tuple[str, Callable[[], None], Callable[[], None]]]:
    """Yield the URL of a way to a store, and what cuts and what heals it; for tests without a loop.

    Those that use it run clients as processes: some hold the interpreter while they wait.
    """
    parts = urlsplit(url)
    assert parts.port is not None
    proxy = TcpProxy((_HOST, parts.port))
    with start_blocking_portal() as portal:
        portal.call(proxy.start)
        try:
            yield (
                f"http://{_HOST}:{proxy.port}",
                lambda: portal.call(proxy.cut),
                lambda: portal.call(proxy.heal),
            )
        finally:
            portal.call(proxy.cut)


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
