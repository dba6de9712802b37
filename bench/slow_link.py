"""A TCP proxy that delivers each byte later: ``python -m bench.slow_link PORT TARGET SECONDS``.

It leads to the port TARGET, and delays each direction by SECONDS. Bytes keep their order, and
connections are opened without a delay.
"""

from __future__ import annotations

import asyncio
import sys
from typing import cast

import uvloop


class _End(asyncio.Protocol):
    """One end of a connection; what it receives goes to the other end, later."""

    def __init__(self, delay_seconds: float) -> None:
        self._delay_seconds = delay_seconds
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._early: list[bytes] = []  # received before the other end was connected
        self.other: _End | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Store the transport."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Deliver it when it is time."""
        self._loop.call_later(self._delay_seconds, self._deliver, data)

    def connection_lost(self, exc: Exception | None) -> None:
        """Close the other end as well, after what was sent to it."""
        self._loop.call_later(self._delay_seconds, self._close_other)

    def join(self, other: _End) -> None:
        """Connect two ends."""
        self.other, other.other = other, self
        for end in (self, other):
            early, end._early = end._early, []
            for data in early:
                end._deliver(data)

    def _close_other(self) -> None:
        if self.other is not None and self.other._transport is not None:
            self.other._transport.close()

    def _deliver(self, data: bytes) -> None:
        if self.other is None:
            self._early.append(data)
        elif self.other._transport is not None and not self.other._transport.is_closing():
            self.other._transport.write(data)


async def _serve(port: int, target_port: int, delay_seconds: float) -> None:
    loop = asyncio.get_running_loop()
    tasks: set[asyncio.Task[None]] = set()

    def accepted() -> _End:
        near = _End(delay_seconds)
        task = loop.create_task(connected(near))
        tasks.add(task)
        task.add_done_callback(tasks.discard)
        return near

    async def connected(near: _End) -> None:
        _, far = await loop.create_connection(lambda: _End(delay_seconds), "127.0.0.1", target_port)
        near.join(far)

    server = await loop.create_server(accepted, "127.0.0.1", port)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(_serve(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])))
