"""TLS of a service: what a handshake needs, how certificates change, and what passes through."""

from __future__ import annotations

import asyncio
import os
import ssl
import subprocess
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path

import httpx
import pytest
from prometheus_client import generate_latest
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from eruca_chassis.admission.needs import PUBLIC
from eruca_chassis.app import ServiceApp
from eruca_chassis.connections import entrance, tls_door
from eruca_chassis.connections.exchange import AnswerHead, BodyLimit, Exchange
from eruca_chassis.connections.lending import chunk_of, lender_of
from eruca_chassis.routes.router import Router
from eruca_chassis.running.serving import Server
from eruca_chassis.running.settings import ServiceSettings
from eruca_chassis.sockets.tls import ServerTls
from eruca_chassis.start import StartError
from support.authority import Authority, Pair
from support.budgets import ManualBudget
from support.hot_routes import Hot, hot_router
from support.services import raw_connection, serving
from support.waiting import until

pytestmark = pytest.mark.anyio
LARGE = 3 * 1024 * 1024  # bytes; a body that bypasses the parser
PIECE = b"x" * 100_000


OK = AnswerHead(200)
BUDGET = ManualBudget(64 * LARGE)


def take(exchange: Exchange) -> None:
    exchange.expect_body(BodyLimit(BUDGET, LARGE, "body_bytes_max"))


def answer(exchange: Exchange) -> None:
    exchange.answer(OK, b"%d" % len(exchange.body))


class _Lent(Response):
    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = [(b"content-type", b"text/plain")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"begin ", "more_body": True})
        lender = lender_of(scope)
        assert lender is not None
        async with lender.lent() as connection:
            for _ in range(20):
                chunk = chunk_of([PIECE])
                await asyncio.get_running_loop().sock_sendall(connection, chunk)
        await send({"type": "http.response.body", "body": b" end"})


def service() -> ServiceApp:
    router = Router()

    @router.get("/v1/lent", needs=PUBLIC)
    async def lent() -> Response:
        return _Lent()

    @asynccontextmanager
    async def lifespan(app: ServiceApp) -> AsyncIterator[None]:
        app.open_routes()
        app.readiness.ready()
        yield

    return ServiceApp(
        title="T", summary="", description="", version="1", lifespan=lifespan,
        routers=[router, hot_router(Hot("POST", "/v1/hot", answer, take))],
    )  # fmt: skip


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@asynccontextmanager
async def encrypted(
    pair: Pair, **settings: object
) -> AsyncIterator[tuple[Server, ServiceApp, tuple[str, int]]]:
    app = service()
    given = ServiceSettings(port=0, tls_cert_file=pair.cert, tls_key_file=pair.key, **settings)  # type: ignore[arg-type] # of each their own
    async with serving(app, given) as (server, address):
        yield server, app, address


def client(
    authority: Authority, address: tuple[str, int], pair: Pair | None = None
) -> httpx.AsyncClient:
    context = ssl.create_default_context(cafile=str(authority.ca_file))
    if pair is not None:
        context.load_cert_chain(pair.cert, pair.key)
    url = f"https://127.0.0.1:{address[1]}"
    return httpx.AsyncClient(verify=context, base_url=url, trust_env=False, timeout=20)


async def s_client(address: tuple[str, int], *options: str) -> subprocess.CompletedProcess[str]:
    """Return what openssl says of a handshake."""
    command = ["openssl", "s_client", "-connect", f"127.0.0.1:{address[1]}", "-brief", *options]
    return await asyncio.to_thread(
        subprocess.run, command, input="", capture_output=True, text=True, timeout=20, check=False
    )


async def test_hot_and_other_requests_and_large_bodies_pass_through(authority: Authority) -> None:
    async with (
        encrypted(authority.pair("127.0.0.1")) as (_, _, address),
        client(authority, address) as http,
    ):
        for _ in range(2):  # the second head is known
            small = await http.post("/v1/hot", content=b"abc")
            large = await http.post("/v1/hot", content=os.urandom(LARGE))
            ready = await http.get("/readyz")
            too_large = await http.post("/v1/hot", content=b"x" * (LARGE + 1))

    assert (small.text, large.text, ready.status_code) == ("3", str(LARGE), 200)
    assert too_large.status_code == 413


async def test_what_a_borrower_writes_is_encrypted_by_the_service(authority: Authority) -> None:
    async with (
        encrypted(authority.pair("127.0.0.1")) as (_, _, address),
        client(authority, address) as http,
    ):
        for _ in range(2):
            got = await http.get("/v1/lent")

            assert got.content == b"begin " + 20 * PIECE + b" end"


@pytest.mark.parametrize("version", ["-tls1", "-tls1_1"])
async def test_old_versions_are_refused(authority: Authority, version: str) -> None:
    async with encrypted(authority.pair("127.0.0.1")) as (_, app, address):
        # level 0: otherwise this openssl would refuse by itself
        done = await s_client(address, version, "-cipher", "ALL:@SECLEVEL=0")

        assert done.returncode != 0
        await until(lambda: failures(app) == {"protocol": 1})


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
async def test_todays_versions_are_spoken_with_todays_ciphers(
    authority: Authority, version: str
) -> None:
    option = "-" + version.lower().replace("v", "").replace(".", "_")
    async with encrypted(authority.pair("127.0.0.1")) as (_, _, address):
        done = await s_client(address, option, "-CAfile", str(authority.ca_file))
        weak = await s_client(address, "-tls1_2", "-cipher", "AES256-SHA:ECDHE-ECDSA-AES128-SHA")

    assert f"Protocol version: {version}" in done.stderr
    assert "Verification: OK" in done.stderr
    assert weak.returncode != 0


async def test_a_foreign_authority_is_refused_by_the_client(
    authority: Authority, tmp_path: Path
) -> None:
    other = Authority(tmp_path, "other-ca")
    async with (
        encrypted(other.pair("127.0.0.1")) as (_, _, address),
        client(authority, address) as http,
    ):
        with pytest.raises(httpx.ConnectError, match="unable to get local issuer"):
            await http.get("/readyz")


async def test_an_expired_certificate_and_a_wrong_name_are_refused_by_the_client(
    authority: Authority,
) -> None:
    for pair, why in (
        (
            authority.pair("127.0.0.1", file="old", days=-1, begins_days_ago=30),
            "certificate has expired",
        ),
        (authority.pair("10.0.0.1", "broker-a"), "IP address mismatch"),
    ):
        async with encrypted(pair) as (_, _, address), client(authority, address) as http:
            with pytest.raises(httpx.ConnectError, match=why):
                await http.get("/readyz")


@pytest.mark.parametrize("kind", ["required", "optional"])
async def test_client_certificates(authority: Authority, tmp_path: Path, kind: str) -> None:
    pair = authority.pair("127.0.0.1")
    ours = authority.pair("checkout", file="checkout")
    foreign = Authority(tmp_path, "other-ca").pair("checkout", file="foreign")
    async with encrypted(
        pair, tls_client_ca_file=authority.ca_file, tls_client_certificates=kind
    ) as (_, app, address):
        async with client(authority, address, ours) as http:
            assert (await http.get("/readyz")).status_code == 200
        async with client(authority, address, foreign) as http:
            with pytest.raises(httpx.HTTPError):
                await http.get("/readyz")
        async with client(authority, address) as http:
            if kind == "optional":
                assert (await http.get("/readyz")).status_code == 200
            else:
                with pytest.raises(httpx.HTTPError):
                    await http.get("/readyz")
        refused = 1 if kind == "optional" else 2
        await until(lambda: failures(app).get("certificate") == refused)


def tls_of(server: Server) -> ServerTls:
    assert server.tls is not None
    return server.tls


def _is_entering(door: tls_door.TlsDoor, count: int) -> bool:
    return door.entering_count == count


def failures(app: ServiceApp) -> dict[str, float]:
    """Return the failed handshakes by reason."""
    lines = generate_latest(app.registry).decode().splitlines()
    begin = 'eruca_tls_handshakes_failed_total{reason="'
    found = (line.removeprefix(begin).split('"} ') for line in lines if line.startswith(begin))
    return {reason: float(value) for reason, value in found}


async def test_plain_http_gets_an_answer_that_says_what_to_write(authority: Authority) -> None:
    async with (
        encrypted(authority.pair("127.0.0.1")) as (_, app, address),
        raw_connection(address) as (reader, writer),
    ):
        writer.write(b"GET /readyz HTTP/1.1\r\nhost: localhost\r\n\r\n")
        got = await reader.read()

        assert got.startswith(b"HTTP/1.1 400 ")
        assert b"write https:// instead of http://" in got
        assert failures(app) == {"plain": 1}


async def test_a_peer_that_is_silent_or_stops_in_its_handshake_is_cut(authority: Authority) -> None:
    async with encrypted(authority.pair("127.0.0.1"), tls_handshake_seconds=0.2) as (
        _,
        app,
        address,
    ):
        for begin in (b"", b"\x16\x03\x01\x02\x00"):
            async with raw_connection(address) as (reader, writer):
                writer.write(begin)
                assert await reader.read() == b""
        assert failures(app) == {"timeout": 2}


async def test_the_longest_handshake_makes_room_for_others(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(entrance, "ENTERING_MAX", 3)
    async with encrypted(authority.pair("127.0.0.1")) as (server, app, address):
        [door] = server.servers
        assert isinstance(door, tls_door.TlsDoor)
        async with AsyncExitStack() as stack:
            dead = []
            for count in range(1, 4):
                dead.append(await stack.enter_async_context(raw_connection(address)))
                await until(partial(_is_entering, door, count))
            async with client(authority, address) as http:
                assert (await http.get("/readyz")).status_code == 200

            assert await dead[0][0].read() == b""
        assert failures(app)["crowded"] == 1


async def test_a_renewed_certificate_is_used_without_a_failed_request(
    authority: Authority, tmp_path: Path
) -> None:
    async with encrypted(authority.pair("127.0.0.1", days=5)) as (server, _, address):
        tls = tls_of(server)
        first = tls.expires_at
        is_done = asyncio.Event()
        statuses: set[int] = set()

        async def load(*, is_new: bool) -> None:
            async with AsyncExitStack() as stack:
                http = await stack.enter_async_context(client(authority, address))
                while not is_done.is_set():
                    if is_new:
                        http = await stack.enter_async_context(client(authority, address))
                    statuses.add((await http.post("/v1/hot", content=b"abc")).status_code)

        async with asyncio.TaskGroup() as group:
            group.create_task(load(is_new=False))
            group.create_task(load(is_new=True))
            authority.pair("127.0.0.1", days=50)
            await until(lambda: tls.expires_at > first)
            is_done.set()

        assert statuses == {200}
        shown = await s_client(address, "-CAfile", str(authority.ca_file))
        assert "Verification: OK" in shown.stderr


async def test_files_that_do_not_belong_together_leave_the_former_in_use(
    authority: Authority, tmp_path: Path
) -> None:
    pair = authority.pair("127.0.0.1")
    async with encrypted(pair) as (server, app, address), client(authority, address) as http:
        tls = tls_of(server)
        other = authority.pair("127.0.0.1", file="other")
        pair.key.write_bytes(other.key.read_bytes())
        await until(lambda: tls.fault is not None)
        metrics = generate_latest(app.registry).decode()

        assert "eruca_tls_files_invalid 1.0" in metrics
        assert (await http.get("/readyz")).status_code == 200
        pair.cert.write_bytes(other.cert.read_bytes())
        await until(lambda: tls.fault is None)
        assert (await http.get("/readyz")).status_code == 200


async def test_a_service_does_not_start_with_files_that_cannot_be_used(
    authority: Authority, tmp_path: Path
) -> None:
    pair = authority.pair("127.0.0.1")
    missing = Pair(pair.cert, tmp_path / "none.key")

    with pytest.raises(StartError, match=r"none\.key cannot be used: No such file"):
        Server(service(), ServiceSettings(tls_cert_file=missing.cert, tls_key_file=missing.key))
