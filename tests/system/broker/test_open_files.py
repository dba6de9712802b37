"""Connections leave the store the files it needs; with a real limit of open files."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from support.processes import ServiceProcess, running
from support.waiting import wait_until

LIMIT = 512  # half of it is the store's


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[ServiceProcess]:
    options = {
        "PORT": "0",
        "STORE_DIR": str(tmp_path / "store"),
        "NAMESRV_URLS": "",
        "SEGMENT_BYTES": str(16 * 1024**2),
        "HEAD_SECONDS": "600",
    }
    settings = {f"ERUCA_BROKER_{name}": value for name, value in options.items()}
    with running("eruca_broker", settings, open_files_max=LIMIT) as process:
        yield process


def health(client: httpx.Client) -> int | None:
    """Return how the broker says it is; None: the connection was one too many, and dropped."""
    with suppress(httpx.TransportError):
        return client.get("/healthz").status_code
    return None


@contextmanager
def flooded(url: str, count: int, said: bytes) -> Iterator[None]:
    """Hold connections, of which those that are dropped do not count."""
    parts = urlsplit(url)
    with ExitStack() as stack:
        for _ in range(count):
            with suppress(OSError):  # it was dropped
                address = (parts.hostname, parts.port)
                connection = stack.enter_context(socket.create_connection(address))
                connection.sendall(said)
        yield


@pytest.mark.parametrize(
    "said",
    [
        pytest.param(b"", id="silent"),
        pytest.param(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n", id="idle"),
        pytest.param(
            b"GET /v1/topics/t/queues/0/messages?offset=0 HTTP/1.1\r\nhost: localhost\r\n\r\n",
            id="idle behind a hot request",
        ),
    ],
)
def test_idle_connections_leave_the_store_the_files_it_needs_and_make_room(
    broker: ServiceProcess, said: bytes
) -> None:
    with flooded(broker.url, 2 * LIMIT, said), httpx.Client(base_url=broker.url) as client:
        wait_until(lambda: health(client) == httpx.codes.OK)

        # Each topic has files of its own, of which none is open yet.
        sent = [
            client.post(f"/v1/topics/t-{number}/messages?queue_id=0", json={"body": {"text": "x"}})
            for number in range(100)
        ]

        assert {answer.status_code for answer in sent} == {httpx.codes.CREATED}
        assert client.get("/readyz").status_code == httpx.codes.OK
        status = client.get("/v1/status").json()
        assert status["is_writable"] is True
        assert {projection["failure"] for projection in status["projections"]} == {None}
    assert broker.errors() == []


def test_connections_that_are_all_at_work_leave_others_a_refusal_and_the_broker_its_files(
    broker: ServiceProcess,
) -> None:
    half_a_head = b"GET /healthz HTTP/1.1\r\nhost: loc"
    with (
        flooded(broker.url, 2 * LIMIT, half_a_head),
        pytest.raises((httpx.TransportError, httpx.HTTPStatusError)),
    ):
        httpx.get(f"{broker.url}/healthz").raise_for_status()
    with httpx.Client(base_url=broker.url) as client:
        wait_until(lambda: health(client) == httpx.codes.OK)
    assert broker.errors() == []
