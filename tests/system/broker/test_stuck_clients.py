"""Clients that are slow, stuck or gone harm nobody else; over real sockets."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from eruca.contract.wire import RECORDS_MEDIA_TYPE
from support.patience import PATIENCE_SECONDS, PAUSE_SECONDS
from support.processes import ServiceProcess, running

STUCK = 12
HELD_GROUP_REQUESTS = "eruca_broker_held_group_requests "


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[ServiceProcess]:
    options = {
        "PORT": "0",
        "STORE_DIR": str(tmp_path / "store"),
        "NAMESRV_URLS": "",
        "SEGMENT_SIZE": str(64 * 1024**2),
        "UNREAD_SECONDS": str(PAUSE_SECONDS),
        "REQUEST_SECONDS": str(PAUSE_SECONDS),
        "BYTES_IN_FLIGHT_MAX": str(16 * 1024**2),
    }
    with running("eruca_broker", {f"ERUCA_BROKER_{k}": v for k, v in options.items()}) as process:
        yield process


@contextmanager
def said(url: str, *pieces: bytes) -> Iterator[socket.socket]:
    """A connection on which *pieces* were said, and nothing is read."""
    parts = urlsplit(url)
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect((parts.hostname, parts.port))
        for piece in pieces:
            connection.sendall(piece)
        yield connection


def serves(url: str) -> None:
    """Assert that an ordinary client is served as if it were alone."""
    message = {"body": {"text": "x" * 1000}}
    with httpx.Client(base_url=f"{url}/v1") as client:
        for _ in range(20):
            sent = client.post("/topics/other/messages?queue_id=0", json=message)
            assert sent.status_code == 201
            offset = sent.json()["queue_offset"]
            pulled = client.get(f"/topics/other/queues/0/messages?offset={offset}")
            assert pulled.json()["messages"][0]["body"] == message["body"]


def until(url: str, condition: Callable[[dict[str, Any]], object]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition(httpx.get(f"{url}/v1/status").json()):
        assert time.monotonic() < deadline


def test_clients_that_never_read_their_answers(broker: ServiceProcess) -> None:
    """Two queues take turns in the log, so that each answer is made of many pieces."""
    with httpx.Client(base_url=f"{broker.url}/v1") as client:
        for number in range(160):
            message = {"body": {"text": "x" * 100_000}}
            client.post(f"/topics/large/messages?queue_id={number % 2}", json=message)
    target = b"/v1/topics/large/queues/0/messages?offset=0&max_count=4096&max_bytes=8388608"
    asked = b"GET %s HTTP/1.1\r\nhost: localhost\r\naccept: %s\r\n\r\n"

    with ExitStack() as stack:
        for media_type in (RECORDS_MEDIA_TYPE.encode(), b"application/json"):
            for _ in range(STUCK):
                stack.enter_context(said(broker.url, asked % (target, media_type)))
        serves(broker.url)

        until(broker.url, lambda status: status["bytes_in_flight"] == 0)
        serves(broker.url)


def test_clients_that_never_finish_their_requests(broker: ServiceProcess) -> None:
    head = (
        b"POST /v1/topics/other/messages HTTP/1.1\r\n"
        b"host: localhost\r\ncontent-type: application/json\r\n"
    )

    with ExitStack() as stack:
        for piece in (b"", b"POST", head, head + b"content-length: 100000\r\n\r\n{"):
            for _ in range(STUCK):
                stack.enter_context(said(broker.url, piece))
        serves(broker.url)

        until(broker.url, lambda status: status["bytes_in_flight"] == 0)


def test_clients_that_vanish_while_they_are_held(broker: ServiceProcess) -> None:
    httpx.post(f"{broker.url}/v1/topics/other/messages?queue_id=0", json={"body": {"text": "x"}})
    asked = (
        b"GET /v1/topics/other/queues/0/messages?offset=1&wait_seconds=30 HTTP/1.1\r\n"
        b"host: localhost\r\n\r\n"
    )
    feed = b"GET /v1/log?from_offset=%d&wait_seconds=30 HTTP/1.1\r\nhost: localhost\r\n\r\n"
    end = httpx.get(f"{broker.url}/v1/status").json()["log"]["max_offset"]

    with ExitStack() as stack:
        for piece in (asked, feed % end):
            for _ in range(STUCK):
                stack.enter_context(said(broker.url, piece))
        until(broker.url, lambda status: status["held_requests"] == 2 * STUCK)

    until(broker.url, lambda status: status["held_requests"] == 0)
    serves(broker.url)


def test_clients_that_vanish_while_they_wait_for_deliveries(broker: ServiceProcess) -> None:
    httpx.put(f"{broker.url}/v1/topics/parcels", json={"read_queue_count": 1})
    wanted = b'{"topic": "parcels", "wait_seconds": 30, "start": "earliest"}'
    asked = (
        b"POST /v1/groups/couriers/deliveries HTTP/1.1\r\nhost: localhost\r\n"
        b"content-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (len(wanted), wanted)
    )

    with ExitStack() as stack:
        for _ in range(STUCK):
            stack.enter_context(said(broker.url, asked))
        until(broker.url, lambda status: held_group_requests(broker.url) == STUCK)
    until(broker.url, lambda status: held_group_requests(broker.url) == 0)

    httpx.post(f"{broker.url}/v1/topics/parcels/messages", json={"body": {"text": "for Ann"}})
    [delivery] = httpx.post(
        f"{broker.url}/v1/groups/couriers/deliveries", json={"topic": "parcels"}
    ).json()["deliveries"]
    assert delivery["attempt"] == 1  # nobody who is gone had it


def held_group_requests(url: str) -> int:
    metrics = httpx.get(f"{url}/metrics").text
    [line] = [line for line in metrics.splitlines() if line.startswith(HELD_GROUP_REQUESTS)]
    return int(float(line.split()[1]))


def test_uploads_that_stop_half_way_give_back_what_they_announced(broker: ServiceProcess) -> None:
    head = (
        b"POST /v1/topics/other/messages HTTP/1.1\r\nhost: localhost\r\n"
        b"content-type: application/json\r\ncontent-length: 6000000\r\n\r\n{"
    )

    with ExitStack() as stack:
        for _ in range(2):
            stack.enter_context(said(broker.url, head))
        until(broker.url, lambda status: status["bytes_in_flight"] >= 12_000_000)
        large = {"body": {"text": "x" * 4_000_000}}
        answer = httpx.post(f"{broker.url}/v1/topics/other/messages", json=large)
        assert answer.status_code in (
            201,
            429,
        )  # whether 4 MB more fit; what counts is what follows
        serves(broker.url)

    until(broker.url, lambda status: status["bytes_in_flight"] == 0)
    sent = httpx.post(f"{broker.url}/v1/topics/other/messages", json=large)
    assert sent.status_code == 201
