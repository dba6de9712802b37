"""Lending a connection: the body of an answer, written by another process.

A service that passes on what a process of its own makes would copy every byte twice more, and keep
everybody else waiting meanwhile. So it may lend that process the client's connection, between the
head of an answer and its end: the other one writes chunks to it, and the service nothing. Whoever
lends it sees to it that only one process writes at a time.

A connection that was lent is watched like any other: what its client has yet to read is what the
kernel still holds of it.

Source: unix(7), SCM_RIGHTS; tty_ioctl(4), TIOCOUTQ; RFC 9112 section 7.1.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import socket
import struct
import termios
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from typing import Final, Protocol, TypeAlias

from eruca_chassis.asgi import ClientGoneError, Scope

Piece: TypeAlias = bytes | memoryview

_EXTENSION: Final = "eruca.lending"  # of a scope …
_LENDER: Final = "lender"  # … with this in it
_COUNT: Final = struct.Struct("i")


class Lender(Protocol):
    """A connection that can be lent."""

    def lent(self) -> AbstractAsyncContextManager[socket.socket]:
        """Lend the connection once everything that was written to it is on its way.

        Whoever leaves with an exception has told half an answer: the connection ends.

        Raises:
            ClientGoneError: There is no connection any more.
        """
        ...


def lending_by(lender: Lender) -> dict[str, dict[object, object]]:
    """Return the extensions of a scope that let its handler borrow its connection."""
    return {_EXTENSION: {_LENDER: lender}}


def lender_of(scope: Scope) -> Lender | None:
    """Return what lends the connection of the request in *scope*; None: its answer has no body."""
    lender: Lender | None = scope["extensions"].get(_EXTENSION, {}).get(_LENDER)
    return lender


@asynccontextmanager
async def lent_socket(
    transport: asyncio.Transport, drain: Callable[[], Awaitable[None]]
) -> AsyncIterator[socket.socket]:
    """Lend a transport's socket once all that was written to it is on its way, as a Lender does.

    Args:
        transport: Nobody else writes to it meanwhile.
        drain: Waits until it is no longer full.

    Raises:
        ClientGoneError: There is no connection any more.
    """
    if not transport.is_closing():
        transport.set_write_buffer_limits(0)  # full as long as anything waits
        await drain()
    if transport.is_closing():
        raise ClientGoneError
    # One of our own: the transport's may be closed meanwhile, and its number another's.
    lent = socket.socket(fileno=os.dup(transport.get_extra_info("socket").fileno()))
    lent.settimeout(0)  # it does not block as it is, but this object does not know that
    try:
        with lent:
            try:
                yield lent
            except BaseException:
                _sever(lent)  # whoever else holds it
                raise
    finally:
        if not transport.is_closing():
            transport.set_write_buffer_limits()


def chunk_of(pieces: Sequence[Piece]) -> bytes:
    """Return *pieces*, of which one at least is not empty, as a chunk of an HTTP/1.1 body."""
    return b"".join((b"%x\r\n" % sum(map(len, pieces)), *pieces, b"\r\n"))


def unread_size(connection: socket.socket) -> int:
    """Return how many bytes the kernel holds that the other end has not taken yet."""
    answer = fcntl.ioctl(connection.fileno(), termios.TIOCOUTQ, bytes(_COUNT.size))
    (size,) = _COUNT.unpack(answer)
    return int(size)


def _sever(connection: socket.socket) -> None:
    with suppress(OSError):  # the client was faster
        connection.shutdown(socket.SHUT_RDWR)
