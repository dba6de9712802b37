"""The network of a run: a TCP proxy on every link, so that each link can fail by itself.

A **link** leads from one party to another and has a port of its own. The party at its start knows
the other by that port alone. Its faults:

| Fault | What the two see |
|---|---|
| cut | connections are reset, new ones at once |
| held there, held back | bytes in that direction stay on the way, and arrive when it heals |
| slow | bytes arrive later, in their order |
| torn | the connection is reset after so many more bytes in that direction |

Held in both directions is a pulled cable: connections are accepted by the kernel, and nothing
arrives. Held back alone is a request that is done and never answered.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, NamedTuple

from eruca_deploy.ports import free_ports

_BACKLOG_MAX: Final = 256 * 1024  # bytes on the way in one direction; then the sender is slowed


_NOT_AT_ALL: Final = struct.pack("ii", 1, 0)  # lingering: the kernel resets the connection


class Direction(Enum):
    """A direction of a link."""

    THERE = "there"  # from the party that connects: requests
    BACK = "back"  # answers


class LinkName(NamedTuple):
    """The two parties of a link."""

    source: str
    target: str

    def __str__(self) -> str:
        return f"{self.source}→{self.target}"


@dataclass(slots=True)
class _Faults:
    is_cut: bool = False
    held: set[Direction] = field(default_factory=set)
    delay_seconds: dict[Direction, float] = field(default_factory=dict)
    bytes_left: dict[Direction, int] = field(default_factory=dict)  # before the connection is torn


class Link:
    """One link of the network; made by :class:`Network`."""

    def __init__(self, name: LinkName, target: tuple[str, int], port: int) -> None:
        self.name = name
        self.port = port
        self.bytes_passed: dict[Direction, int] = dict.fromkeys(Direction, 0)
        self._target = target
        self._faults = _Faults()
        self._connections: set[_Connection] = set()
        self._server: asyncio.Server | None = None

    @property
    def url(self) -> str:
        """The URL by which the source knows the target."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def target_port(self) -> int:
        """The port at which the target listens."""
        return self._target[1]

    async def listen(self) -> None:
        """Accept connections from now on."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(self._accepted, "127.0.0.1", self.port)

    async def close(self) -> None:
        """Reset every connection and accept no more."""
        assert self._server is not None
        self._server.close()
        self._reset_all()
        await asyncio.sleep(0)

    def cut(self) -> None:
        """Reset every connection, and each new one at once."""
        self._faults.is_cut = True
        self._reset_all()

    def hold(self, *directions: Direction) -> None:
        """Keep on the way what goes in these directions, both if none is named."""
        self._faults.held |= set(directions or Direction)

    def slow(self, seconds: float, *directions: Direction) -> None:
        """Deliver later what goes in these directions from now on, both if none is named."""
        for direction in directions or Direction:
            self._faults.delay_seconds[direction] = seconds

    def tear(self, size: int, direction: Direction = Direction.BACK) -> None:
        """Reset the connection on which the next *size* bytes in *direction* end: once."""
        self._faults.bytes_left[direction] = size

    def heal(self) -> None:
        """End all faults; what is on the way arrives."""
        self._faults = _Faults()
        for connection in list(self._connections):
            connection.flush()

    def _accepted(self) -> _Side:
        connection = _Connection(self)
        self._connections.add(connection)
        return connection.near

    def _reset_all(self) -> None:
        for connection in list(self._connections):
            connection.reset()


class _Side(asyncio.Protocol):
    """One end of a connection: what it receives goes to the other end."""

    def __init__(self, connection: _Connection, direction: Direction) -> None:
        self.transport: asyncio.Transport | None = None
        self.direction = direction  # of what arrives here
        self._connection = connection

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self._connection.made(self)

    def data_received(self, data: bytes) -> None:
        self._connection.received(self, data)

    def eof_received(self) -> bool:
        self._connection.received(self, b"")
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        self._connection.reset()

    def pause_writing(self) -> None:
        self._connection.pause(self)

    def resume_writing(self) -> None:
        self._connection.resume(self)


class _Connection:
    """A connection through a link, which is two connections."""

    def __init__(self, link: Link) -> None:
        self.near = _Side(self, Direction.THERE)
        self.far = _Side(self, Direction.BACK)
        self._link = link
        self._backlog: dict[Direction, deque[tuple[float, bytes]]] = {
            direction: deque() for direction in Direction
        }
        self._ended: set[Direction] = set()
        self._is_reset = False
        self._timers: dict[Direction, asyncio.TimerHandle] = {}
        self._connecting: asyncio.Task[None] | None = None

    def made(self, side: _Side) -> None:
        """Go on: the far side is connected once the near one is there."""
        if self._link._faults.is_cut or self._is_reset:
            self.reset()
        elif side is self.near:
            self._connecting = asyncio.create_task(self._connect())
        else:
            self.flush()

    async def _connect(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            await loop.create_connection(lambda: self.far, *self._link._target)
        except OSError:
            self.reset()  # its target does not run: the source learns it by the reset

    def received(self, side: _Side, data: bytes) -> None:
        """Pass on what arrived; nothing is the end of the stream."""
        loop = asyncio.get_running_loop()
        due = loop.time() + self._link._faults.delay_seconds.get(side.direction, 0.0)
        self._backlog[side.direction].append((due, data))
        self._flush(side.direction)
        if sum(len(part) for _, part in self._backlog[side.direction]) > _BACKLOG_MAX:
            assert side.transport is not None
            side.transport.pause_reading()

    def flush(self) -> None:
        """Deliver what may arrive now, in both directions."""
        for direction in Direction:
            self._flush(direction)

    def _flush(self, direction: Direction) -> None:
        source, sink = (
            (self.near, self.far) if direction is Direction.THERE else (self.far, self.near)
        )
        faults = self._link._faults
        backlog = self._backlog[direction]
        now = asyncio.get_running_loop().time()
        while backlog and sink.transport is not None and direction not in faults.held:
            due, data = backlog[0]
            if due > now and faults.delay_seconds.get(direction):
                self._flush_at(direction, due)
                return
            backlog.popleft()
            if not data:
                self._end(direction, sink)
                continue
            left = faults.bytes_left.get(direction)
            if left is not None and len(data) >= left:
                del faults.bytes_left[direction]
                sink.transport.write(data[:left])
                self.reset()
                return
            if left is not None:
                faults.bytes_left[direction] = left - len(data)
            self._link.bytes_passed[direction] += len(data)
            sink.transport.write(data)
        if not backlog and source.transport is not None and not source.transport.is_closing():
            source.transport.resume_reading()

    def _end(self, direction: Direction, sink: _Side) -> None:
        assert sink.transport is not None
        self._ended.add(direction)
        if self._ended != set(Direction):
            with suppress(OSError):  # the other side has been reset meanwhile
                sink.transport.write_eof()
            return
        for side in (self.near, self.far):  # what was written before still arrives
            if side.transport is not None:
                side.transport.close()

    def _flush_at(self, direction: Direction, due: float) -> None:
        timer = self._timers.pop(direction, None)
        if timer is not None:
            timer.cancel()
        loop = asyncio.get_running_loop()
        self._timers[direction] = loop.call_at(due, self._flush, direction)

    def pause(self, sink: _Side) -> None:
        """Receive no more for a side that is slow to read."""
        source = self.far if sink is self.near else self.near
        if source.transport is not None:
            source.transport.pause_reading()

    def resume(self, sink: _Side) -> None:
        """Receive again."""
        source = self.far if sink is self.near else self.near
        if source.transport is not None and not source.transport.is_closing():
            source.transport.resume_reading()

    def reset(self) -> None:
        """End the connection at once, at both sides."""
        self._is_reset = True
        self._link._connections.discard(self)
        for timer in self._timers.values():
            timer.cancel()
        for side in (self.near, self.far):
            if side.transport is not None and not side.transport.is_closing():
                connected: socket.socket = side.transport.get_extra_info("socket")
                connected.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NOT_AT_ALL)
                side.transport.abort()


class Network:
    """All links of a run."""

    def __init__(self) -> None:
        self._links: dict[LinkName, Link] = {}

    def link(self, source: str, target: str, address: tuple[str, int]) -> Link:
        """Add a link; it listens once the network is started."""
        name = LinkName(source, target)
        [port] = free_ports("127.0.0.1", 1)
        self._links[name] = Link(name, address, port)
        return self._links[name]

    async def start(self) -> None:
        """Listen on every link."""
        for link in self._links.values():
            await link.listen()

    async def close(self) -> None:
        """Reset everything."""
        for link in self._links.values():
            await link.close()

    def between(self, sources: Iterable[str], targets: Iterable[str]) -> list[Link]:
        """Return the links that lead from one of *sources* to one of *targets*."""
        froms, tos = set(sources), set(targets)
        return [
            link
            for name, link in self._links.items()
            if name.source in froms and name.target in tos
        ]

    def around(self, party: str) -> list[Link]:
        """Return the links that lead to a party or from it."""
        return [link for name, link in self._links.items() if party in name]

    def heal(self) -> None:
        """End all faults of all links."""
        for link in self._links.values():
            link.heal()
