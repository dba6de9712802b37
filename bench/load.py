"""A closed loop of HTTP requests: as fast as answers arrive, over kept-alive connections.

The generator must be cheap compared with the server, so it is not an HTTP client. Requests are
prepared bytes, and of an answer it reads only the status and the length. It runs in its own
process, on its own core.
"""

from __future__ import annotations

import asyncio
import json
import os
import ssl
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import uvloop

LATENCIES_MAX = 200_000  # kept per run; enough for a 99th percentile


class Load(NamedTuple):
    """The result of a run of the generator."""

    requests: int
    seconds: float
    errors: int  # answers other than 2xx
    latencies_us: list[float]  # sorted

    @property
    def rate(self) -> float:
        """Requests per second of wall time."""
        return self.requests / self.seconds

    def percentile(self, part: float) -> float:
        """Return a percentile of the latencies in microseconds; *part* is from 0 to 1."""
        return self.latencies_us[
            min(int(len(self.latencies_us) * part), len(self.latencies_us) - 1)
        ]


def request(method: str, path: str, body: bytes = b"", *headers: str) -> bytes:
    """Return the bytes of one request."""
    lines = [
        f"{method} {path} HTTP/1.1",
        "host: localhost",
        f"content-length: {len(body)}",
        *headers,
    ]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def run_load(
    port: int,
    requests: Sequence[bytes],
    *,
    connections: int,
    seconds: float,
    core: int | None = None,
    ca_file: Path | None = None,
) -> Load:
    """Send *requests* in turn to a port of this machine; return the result.

    With *ca_file* the connections speak TLS, and trust the authorities in it.
    """
    with TemporaryDirectory(prefix="eruca-bench-") as directory:
        for number, each in enumerate(requests):
            (Path(directory) / f"{number:04d}").write_bytes(each)
        command = [sys.executable, "-m", "bench.load", directory, str(port), str(connections)]
        command += [str(seconds), str(-1 if core is None else core)]
        command += [] if ca_file is None else [str(ca_file)]
        output = subprocess.run(
            command, check=True, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parent.parent
        ).stdout
    return Load(**json.loads(output))


def tls_context(ca_file: Path | None) -> ssl.SSLContext | None:
    """Return the context of connections that trust *ca_file*; None without one."""
    return None if ca_file is None else ssl.create_default_context(cafile=ca_file)


class _Connection(asyncio.Protocol):
    def __init__(self, run: _Run) -> None:
        self._run = run
        self._received = bytearray()
        self._missing = 0  # bytes of the answer's body that are missing
        self._sent_at = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: asyncio.Transport = transport  # type: ignore[assignment]
        self._next()

    def _next(self) -> None:
        self._sent_at = time.perf_counter()
        if self._sent_at >= self._run.ends_at:
            self._run.finished(self._transport)
        else:
            self._transport.write(self._run.next_request())

    def data_received(self, data: bytes) -> None:
        if self._missing:
            self._missing -= len(data)
            if not self._missing:
                self._answered()
            return
        self._received += data
        end = self._received.find(b"\r\n\r\n")
        if end < 0:
            return
        head = bytes(self._received[:end]).lower()
        at = head.find(b"content-length: ")
        size = int(head[at + 16 :].split(b"\r\n", 1)[0]) if at >= 0 else 0
        if not head.startswith(b"http/1.1 2"):
            self._run.errors += 1
        self._missing = end + 4 + size - len(self._received)
        self._received.clear()
        if not self._missing:
            self._answered()

    def _answered(self) -> None:
        run = self._run
        run.count += 1
        if len(run.latencies) < LATENCIES_MAX:
            run.latencies.append((time.perf_counter() - self._sent_at) * 1e6)
        self._next()

    def connection_lost(self, exc: Exception | None) -> None:
        self._run.lost()


class _Run:
    def __init__(self, requests: Sequence[bytes], connections: int, seconds: float) -> None:
        self._requests = requests
        self._next = 0
        self._open = connections
        self.count = self.errors = 0
        self.latencies: list[float] = []
        self.ends_at = time.perf_counter() + seconds
        self.done = asyncio.get_running_loop().create_future()

    def next_request(self) -> bytes:
        self._next += 1
        return self._requests[self._next % len(self._requests)]

    def finished(self, transport: asyncio.Transport) -> None:
        transport.close()

    def lost(self) -> None:
        self._open -= 1
        if not self._open:
            self.done.set_result(None)


async def _main(
    requests: Sequence[bytes],
    port: int,
    connections: int,
    seconds: float,
    context: ssl.SSLContext | None,
) -> None:
    loop = asyncio.get_running_loop()
    run = _Run(requests, connections, seconds)
    began = time.perf_counter()
    for _ in range(connections):
        await loop.create_connection(lambda: _Connection(run), "127.0.0.1", port, ssl=context)
    await run.done
    elapsed = time.perf_counter() - began
    result = Load(run.count, elapsed, run.errors, sorted(run.latencies))
    sys.stdout.write(json.dumps(result._asdict()))


if __name__ == "__main__":
    if int(sys.argv[5]) >= 0:
        os.sched_setaffinity(0, {int(sys.argv[5])})
    prepared = [path.read_bytes() for path in sorted(Path(sys.argv[1]).iterdir())]
    trusted = tls_context(Path(sys.argv[6]) if len(sys.argv) > 6 else None)
    port, connections, seconds = int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])
    uvloop.run(_main(prepared, port, connections, seconds, trusted))
