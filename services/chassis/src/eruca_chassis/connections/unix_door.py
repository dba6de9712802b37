"""The door of a Unix socket: its peer is a proxy, which may say who the client is.

With the PROXY protocol each connection begins with a head that is read here, before the service's
protocol gets the connection. A connection without a valid head is closed: it would be a proxy that
is configured otherwise, and all clients would count as one.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Sequence
from pathlib import Path

import structlog

from eruca_chassis.connections.connections import ServiceProtocol
from eruca_chassis.connections.entrance import Door
from eruca_chassis.connections.peers import HEAD_SIZE, Peer, peer_of, rest_size

_log = structlog.get_logger()


class UnixDoor(Door):
    """The door of a Unix socket.

    Args:
        listeners: The socket.
        make_protocol: Makes the protocol of a connection.
        reads_proxy_head: Whether connections begin with a PROXY head.
        entering_seconds: Limit of that head.
    """

    def __init__(
        self,
        listeners: Sequence[socket.socket],
        make_protocol: Callable[[], ServiceProtocol],
        *,
        reads_proxy_head: bool,
        entering_seconds: float,
    ) -> None:
        self._make_protocol = make_protocol
        self._reads_proxy_head = reads_proxy_head
        super().__init__(listeners, entering_seconds=entering_seconds)

    def close(self) -> None:
        """Remove the socket's file, then stop accepting."""
        for listener in self.sockets:
            if listener.fileno() >= 0:
                Path(listener.getsockname()).unlink(missing_ok=True)
        super().close()

    async def _enter(self, accepted: socket.socket) -> None:
        """Make a connection of the service of an accepted socket, or close it."""
        has_entered = False
        try:
            async with asyncio.timeout(self._seconds):
                peer = await self._read_head(accepted) if self._reads_proxy_head else None
                protocol = self._make_protocol()
                protocol.own_peer = peer
                await self._loop.connect_accepted_socket(lambda: protocol, accepted)
            has_entered = True
        except (TimeoutError, OSError, EOFError):
            pass  # the peer is slow or has left; the socket is closed below
        except ValueError as error:
            _log.error(
                "connection refused", why=str(error), fix="have the proxy send PROXY protocol v2"
            )
        finally:
            if not has_entered:
                accepted.close()

    async def _read_head(self, accepted: socket.socket) -> Peer | None:
        head = await self._exactly(accepted, HEAD_SIZE)
        rest = await self._exactly(accepted, rest_size(head))
        return peer_of(head, rest)

    async def _exactly(self, accepted: socket.socket, size: int) -> bytes:
        """Read so many bytes and no more: the first request follows."""
        data = b""
        while len(data) < size:
            piece = await self._loop.sock_recv(accepted, size - len(data))
            if not piece:
                raise EOFError
            data += piece
        return data
