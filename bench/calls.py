"""Single requests to a server under test: to prepare a row, or to read its state."""

from __future__ import annotations

import json
import socket
import urllib.request
from collections.abc import Iterable
from typing import Any, Final

from bench.servers import Server

_RECEIVE_SIZE: Final = 65_536


def send_each(server: Server, requests: Iterable[bytes]) -> None:
    """Send requests one by one; each must succeed, with a short answer."""
    with socket.create_connection(("127.0.0.1", server.port)) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for request in requests:
            connection.sendall(request)
            received = connection.recv(_RECEIVE_SIZE)
            assert received.startswith(b"HTTP/1.1 2"), received


def get_json(server: Server, path: str) -> Any:  # noqa: ANN401  (whatever it is)
    """Return the JSON answer of a GET."""
    with urllib.request.urlopen(server.url + path) as answer:
        return json.loads(answer.read())
