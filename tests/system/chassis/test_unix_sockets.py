"""A service on a Unix socket: its file, its peers, and settings that rule one another out."""

from __future__ import annotations

import asyncio
import os
import socket
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from eruca_broker.settings import BrokerSettings
from eruca_chassis.app import ServiceApp
from eruca_chassis.connections.exchange import AnswerHead, Exchange
from eruca_chassis.running.serving import embedded
from eruca_chassis.running.settings import ServiceSettings, SettingsError
from eruca_chassis.sockets.unix_sockets import listen_at
from support.hot_routes import Hot, hot_router

pytestmark = pytest.mark.anyio
OK = AnswerHead(200)
V2 = b"\r\n\r\n\x00\r\nQUIT\n\x21\x11\x00\x0c" + bytes([192, 0, 2, 7, 10, 0, 0, 1, 0, 9, 1, 187])


def who(exchange: Exchange) -> None:
    exchange.answer(OK, repr(exchange.client).encode())


def service() -> ServiceApp:
    @asynccontextmanager
    async def lifespan(app: ServiceApp) -> AsyncIterator[None]:
        app.open_routes()
        app.readiness.ready()
        yield

    return ServiceApp(
        title="T", summary="", description="", version="1", lifespan=lifespan,
        routers=[hot_router(Hot("GET", "/v1/who", who))],
    )  # fmt: skip


@asynccontextmanager
async def listening(path: Path, peer: str = "none") -> AsyncIterator[Path]:
    settings = ServiceSettings(listen=f"unix:{path}", listen_peer=peer)  # type: ignore[arg-type] # of a literal
    async with embedded(service(), settings):
        yield path


async def said(path: Path, *requests: bytes) -> list[str]:
    """Return the answers to requests on one connection: the client as the service knows it."""
    reader, writer = await asyncio.open_unix_connection(path)
    answers = []
    for request in requests:
        writer.write(request)
        head = await reader.readuntil(b"\r\n\r\n")
        size = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
        answers.append((await reader.readexactly(size)).decode())
    writer.close()
    await writer.wait_closed()
    return answers


def request(*headers: str) -> bytes:
    lines = ["GET /v1/who HTTP/1.1", "Host: localhost", *headers]
    return "".join(f"{line}\r\n" for line in [*lines, ""]).encode()


async def test_it_serves_there_and_removes_its_file(tmp_path: Path) -> None:
    path = tmp_path / "thing.sock"
    async with listening(path):
        assert stat.S_IMODE(path.stat().st_mode) == 0o660
        forged = request("Forwarded: for=192.0.2.1")
        assert await said(path, request(), forged) == ["None", "None"]

    assert not path.exists()


async def test_forwarded_counts_for_each_request(tmp_path: Path) -> None:
    async with listening(tmp_path / "thing.sock", "forwarded") as path:
        first, second = (request(f"Forwarded: for=192.0.2.{n}") for n in (1, 2))

        got = await said(path, first, first, second, request())

    assert got == ["('192.0.2.1', 0)", "('192.0.2.1', 0)", "('192.0.2.2', 0)", "None"]


async def test_a_proxy_head_counts_for_its_connection(tmp_path: Path) -> None:
    async with listening(tmp_path / "thing.sock", "proxy_protocol") as path:
        assert await said(path, V2 + request(), request()) == ["('192.0.2.7', 9)"] * 2
        reader, writer = await asyncio.open_unix_connection(path)
        writer.write(request())

        # Without that head it is no connection of the proxy.
        with suppress(ConnectionResetError):
            assert await reader.read() == b""
        writer.transport.abort()


async def test_a_stale_file_is_removed_and_a_living_one_refused(tmp_path: Path) -> None:
    path = tmp_path / "thing.sock"
    listen_at(path, 0o660, 1).close()  # as a process that was killed leaves it
    assert path.is_socket()

    async with listening(path):
        with pytest.raises(OSError, match="a process listens there"):
            listen_at(path, 0o660, 1)
        assert await said(path, request()) == ["None"]


def test_another_kind_of_file_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("mine")

    with pytest.raises(OSError, match="not a socket"):
        listen_at(path, 0o660, 1)

    assert path.read_text() == "mine"


@pytest.mark.parametrize(
    ("settings", "fault"),
    [
        ({"LISTEN": "/run/x.sock"}, "expected unix:/PATH"),
        ({"LISTEN": "unix:relative.sock"}, "expected unix:/PATH"),
        ({"LISTEN": "unix:/" + 120 * "x"}, "exceeds 107 bytes"),
        ({"LISTEN": "unix:/run/x.sock", "LISTEN_MODE": "rw"}, "octal digits"),
        ({"LISTEN": "unix:/run/x.sock"}, "ERUCA_BROKER_ADVERTISED_URL: required with"),
        (
            {"LISTEN": "unix:/run/x.sock", "ADVERTISED_URL": "https://b:1"},
            "through its proxy, and there are no rules",
        ),
        ({"LISTEN_PEER": "forwarded"}, "only for a Unix socket"),
        ({"TLS_KEY_FILE": "/etc/x.key"}, "needs tls_cert_file"),
        (
            {
                "LISTEN": "unix:/run/x.sock",
                "ADVERTISED_URL": "https://b:1",
                "TLS_CERT_FILE": "/etc/x.pem",
            },
            "there the proxy speaks TLS",
        ),
    ],
)
def test_settings_that_cannot_be_are_refused(
    settings: dict[str, str], fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in os.environ if name.startswith("ERUCA_BROKER_")]:
        monkeypatch.delenv(name)
    for name, value in settings.items():
        monkeypatch.setenv(f"ERUCA_BROKER_{name}", value)

    with pytest.raises(SettingsError, match=fault):
        BrokerSettings.load()


def test_the_socket_is_a_unix_socket(tmp_path: Path) -> None:
    with listen_at(tmp_path / "thing.sock", 0o600, 1) as listener:
        assert listener.family == socket.AF_UNIX
