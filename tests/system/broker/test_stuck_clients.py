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
from support.forked import forked_broker
from support.patience import PATIENCE_SECONDS, PAUSE_SECONDS
from support.processes import ServiceProcess

STUCK = 12
HELD_GROUP_REQUESTS = "eruca_broker_held_group_requests "


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[ServiceProcess]:
    options = {
        "PORT": "0",
        "STORE_DIR": str(tmp_path / "store"),
        "NAMESRV_URLS": "",
        "SEGMENT_BYTES": str(64 * 1024**2),
        "UNREAD_SECONDS": str(PAUSE_SECONDS),
        "REQUEST_SECONDS": str(PAUSE_SECONDS),
        "BYTES_IN_FLIGHT_MAX": str(16 * 1024**2),
        "CLIENT_SHARE": "1",
        "CONSUME_BYTES_IN_FLIGHT_MAX": str(32 * 1024**2),
    }
    with forked_broker({f"ERUCA_BROKER_{k}": v for k, v in options.items()}) as process:
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
    target = b"/v1/topics/large/queues/0/messages?offset=0&count_max=4096&bytes_max=8388608"
    asked = b"GET %s HTTP/1.1\r\nhost: localhost\r\naccept: %s\r\n\r\n"

    with ExitStack() as stack:
        for media_type in (RECORDS_MEDIA_TYPE.encode(), b"application/json"):
            for _ in range(STUCK):
                stack.enter_context(said(broker.url, asked % (target, media_type)))
        serves(broker.url)

        until(broker.url, lambda status: status["consume_bytes_in_flight"] == 0)
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


ANNOUNCED = (
    b"POST /v1/topics/other/messages HTTP/1.1\r\nhost: localhost\r\n"
    b"content-type: application/json\r\ncontent-length: 6000000\r\n\r\n"
)
CHUNKED = (
    b"POST /v1/topics/other/messages HTTP/1.1\r\nhost: localhost\r\n"
    b"content-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n1\r\n{\r\n"
)
RECORDS = (
    b"POST /v1/topics/other/queues/0/records HTTP/1.1\r\nhost: localhost\r\n"
    b"content-type: %s\r\ncontent-length: 4000000\r\n\r\n" % RECORDS_MEDIA_TYPE.encode()
)
ORDINARY = (
    b"PUT /v1/topics/other HTTP/1.1\r\nhost: localhost\r\n"
    b"content-type: application/json\r\ncontent-length: 1000000\r\n\r\n{"
)
EXPECTING = ANNOUNCED[:-2] + b"expect: 100-continue\r\n\r\n"


@pytest.mark.parametrize(
    "begun",
    [
        pytest.param(ANNOUNCED, id="announced and silent"),
        pytest.param(ANNOUNCED + b" " * 154, id="announced and begun"),
        pytest.param(CHUNKED, id="chunked"),
        pytest.param(RECORDS, id="records"),
        pytest.param(ORDINARY, id="an ordinary request"),
        pytest.param(EXPECTING, id="expecting to be told to go on"),
    ],
)
def test_bodies_that_are_announced_and_do_not_come_lock_nobody_out(
    broker: ServiceProcess, begun: bytes
) -> None:
    """Of 91 clients that announce hundreds of megabytes and send 14 KB."""
    large = {"body": {"text": "x" * 4_000_000}}
    with ExitStack() as stack:
        for _ in range(91):
            stack.enter_context(said(broker.url, begun))
        serves(broker.url)
        answer = httpx.post(f"{broker.url}/v1/topics/other/messages", json=large)
        assert answer.status_code == 201
        assert httpx.get(f"{broker.url}/readyz").status_code == 200

    until(broker.url, lambda status: status["bytes_in_flight"] == 0)


def test_a_broker_that_refuses_sends_for_lack_of_room_is_not_ready_and_serves_consumers(
    broker: ServiceProcess,
) -> None:
    """The bodies come, but for their last byte; from one client, whose share is all."""
    serves(broker.url)
    url = f"{broker.url}/v1/topics/other"
    with ExitStack() as stack:
        for _ in range(3):
            stack.enter_context(said(broker.url, ANNOUNCED, b" " * 5_550_000))
        until(broker.url, lambda status: status["bytes_in_flight"] >= 16_600_000)

        refused = httpx.post(f"{url}/messages", content=b" " * 1_000_000)
        ready = httpx.get(f"{broker.url}/readyz")
        pulled = httpx.get(f"{url}/queues/0/messages?offset=0")
        committed = httpx.put(
            f"{broker.url}/v1/groups/billing/offsets",
            json={"offsets": [{"topic": "other", "queue_id": 0, "offset": 1}]},
        )

    assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
    assert (ready.status_code, ready.headers["retry-after"]) == (503, "1")
    assert (pulled.status_code, committed.is_success) == (200, True)
    until(broker.url, lambda status: status["bytes_in_flight"] == 0)
    assert httpx.get(f"{broker.url}/readyz").status_code == 200


def test_uploads_that_stop_half_way_give_back_what_has_come(broker: ServiceProcess) -> None:
    with ExitStack() as stack:
        for _ in range(2):
            stack.enter_context(said(broker.url, ANNOUNCED, b" " * 3_000_000))
        until(broker.url, lambda status: status["bytes_in_flight"] >= 6_000_000)
        serves(broker.url)

    until(broker.url, lambda status: status["bytes_in_flight"] == 0)
    large = {"body": {"text": "x" * 4_000_000}}
    sent = httpx.post(f"{broker.url}/v1/topics/other/messages", json=large)
    assert sent.status_code == 201
