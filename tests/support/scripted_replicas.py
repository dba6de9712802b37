"""Replicas that report what a test says, for commands that ask them; each on a port of its own."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

from eruca.contract.replication import ReplicationStatus

STATUS_PATH: Final = "/v1/replication/status"


class ScriptedReplica:
    """A replica's HTTP side.

    Attributes:
        url: Where it listens.
        status: What it reports; None: it answers 503.
        on_switch: Called with the body of a request to hand over; returns the answer's.
    """

    def __init__(self, url: str, status: ReplicationStatus | None) -> None:
        self.url = url
        self.status = status
        self.on_switch: Callable[[dict[str, Any]], dict[str, Any]] = lambda _: {}


@contextmanager
def scripted_replica(status: ReplicationStatus | None) -> Iterator[ScriptedReplica]:
    """Yield a replica that reports *status*."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            told = replica.status if self.path == STATUS_PATH else None
            self._answer(None if told is None else told.model_dump_json().encode())

        def do_POST(self) -> None:
            size = int(self.headers["content-length"])
            result = replica.on_switch(json.loads(self.rfile.read(size)))
            self._answer(json.dumps(result).encode())

        def log_message(self, format: str, *args: object) -> None:
            """Print nothing."""

        def _answer(self, body: bytes | None) -> None:
            self.send_response(503 if body is None else 200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body or b"")))
            self.end_headers()
            self.wfile.write(body or b"")

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        replica = ScriptedReplica(f"http://127.0.0.1:{server.server_port}", status)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield replica
        finally:
            server.shutdown()
            thread.join()
