"""Held pulls: the time to wake one among a thousand, and the memory of each.

The client uses plain blocking sockets, so that the timing shows the broker and not a client's loop.
"""

from __future__ import annotations

import socket
import statistics
import time
from contextlib import ExitStack
from typing import Final

from bench.batches import TOPIC, batch_request
from bench.http_rows import create_topic
from bench.load import request
from bench.machine import private_memory
from bench.report import Report
from bench.servers import Server, broker, raw_server
from eruca.contract.wire import RECORDS_MEDIA_TYPE

HELD: Final = 1_000  # pulls, one per queue
_WAKES: Final = 300
_RECEIVE_SIZE: Final = 65_536


def run(report: Report, _seconds: float) -> None:
    """Measure every row."""
    with ExitStack() as stack:
        raw = stack.enter_context(raw_server())
        server = stack.enter_context(broker())
        create_topic(server, TOPIC, HELD)
        raw_median = statistics.median(_round_trips(raw, stack))
        idle = private_memory(server.process_id)
        asking = _connect(server, stack)
        for queue_id in range(_WAKES):  # otherwise the creation of a queue's first file is timed
            asking.sendall(batch_request(1, queue_id=queue_id))
            _answer(asking)
        pulls = [_connect(server, stack) for _ in range(HELD)]
        for queue_id, pull in enumerate(pulls):
            pull.sendall(_pull(queue_id, offset=int(queue_id < _WAKES)))
        while _held_count(asking) < HELD:
            pass
        report.ratio("held-memory", (private_memory(server.process_id) - idle) / HELD / 1024)
        wakes = [_wake(asking, pulls[queue_id], queue_id) for queue_id in range(_WAKES)]
    median, last = statistics.median(wakes), statistics.quantiles(wakes, n=100)[98]
    report.figure("wake of a held pull", f"p50 {median:.0f} us, p99 {last:.0f} us")
    report.figure("raw request, one connection", f"p50 {raw_median:.0f} us")
    report.ratio("wake", median / raw_median)


def _round_trips(raw: Server, stack: ExitStack) -> list[float]:
    connection = _connect(raw, stack)
    sent = request("POST", "/sink", bytes(1024))
    times = []
    for _ in range(2_000):
        began = time.perf_counter()
        connection.sendall(sent)
        _answer(connection)  # read all of it: a rest would count as part of the next answer
        times.append((time.perf_counter() - began) * 1e6)
    return times


def _wake(sender: socket.socket, held: socket.socket, queue_id: int) -> float:
    """Send one message; return the microseconds until the held pull has it."""
    sent = batch_request(1, queue_id=queue_id)
    began = time.perf_counter()
    sender.sendall(sent)
    _answer(held)
    elapsed = (time.perf_counter() - began) * 1e6
    _answer(sender)
    return elapsed


def _connect(server: Server, stack: ExitStack) -> socket.socket:
    connection = stack.enter_context(socket.create_connection(("127.0.0.1", server.port)))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def _pull(queue_id: int, *, offset: int) -> bytes:
    path = f"/v1/topics/{TOPIC}/queues/{queue_id}/messages?offset={offset}&wait_seconds=30"
    return request("GET", path, b"", f"accept: {RECORDS_MEDIA_TYPE}")


def _held_count(connection: socket.socket) -> int:
    connection.sendall(request("GET", "/v1/status"))
    body = _answer(connection)
    at = body.index(b'"held_requests":') + len(b'"held_requests":')
    return int(body[at:].split(b",", 1)[0])


def _answer(connection: socket.socket) -> bytes:
    received = b""
    while b"\r\n\r\n" not in received:
        received += connection.recv(_RECEIVE_SIZE)
    head, _, body = received.partition(b"\r\n\r\n")
    size = int(head.lower().split(b"content-length: ")[1].split(b"\r\n", 1)[0])
    while len(body) < size:
        body += connection.recv(_RECEIVE_SIZE)
    return body
