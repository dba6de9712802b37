"""Lend a connection: another process writes the body of an answer.

A service that forwards the output of its own worker process would copy every byte twice more, and
block everybody else meanwhile. So it may lend the client's connection to that process, between the
head of an answer and its end. The process writes chunks to it, and the service writes nothing. The
lender must ensure that only one process writes at a time.

A TLS connection cannot be lent, because only this process has its keys. Its lender lends one end of
a pair of sockets instead, and copies what arrives at the other end.

A lent connection is watched like any other: its unread bytes are those that the kernel still holds.

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

_EXTENSION: Final = "eruca.lending"  # key in a scope's extensions
_LENDER: Final = "lender"  # key in that extension
_RELAYED_SIZE: Final = 256 * 1024  # bytes of one write
_COUNT: Final = struct.Struct("i")


class Lender(Protocol):
    """A connection that can be lent."""

    def lent(self) -> AbstractAsyncContextManager[socket.socket]:
        """Lend the connection, once all bytes written so far have left the transport.

        An exception inside the block means half an answer: the connection is closed.

        Raises:
            ClientGoneError: The connection is closed.
        """
        ...


def lending_by(lender: Lender) -> dict[str, dict[object, object]]:
    """Return scope extensions through which a handler can borrow the connection."""
    return {_EXTENSION: {_LENDER: lender}}


def lender_of(scope: Scope) -> Lender | None:
    """Return the lender in *scope*; None if the request's answer has no body."""
    lender: Lender | None = scope["extensions"].get(_EXTENSION, {}).get(_LENDER)
    return lender


@asynccontextmanager
async def lent_socket(
    transport: asyncio.Transport, drain: Callable[[], Awaitable[None]]
) -> AsyncIterator[socket.socket]:
    """Lend a transport's socket, once all bytes written so far have left the transport.

    Args:
        transport: Nobody else may write to it meanwhile.
        drain: Waits until the transport is no longer full.

    Raises:
        ClientGoneError: The connection is closed.
    """
    if not transport.is_closing():
        transport.set_write_buffer_limits(0)  # full as long as any byte waits
        await drain()
    if transport.is_closing():
        raise ClientGoneError
    # A duplicate: the transport's descriptor may be closed meanwhile, and its number reused.
    lent = socket.socket(fileno=os.dup(transport.get_extra_info("socket").fileno()))
    lent.settimeout(0)  # the socket is non-blocking already, but this object does not know
    try:
        with lent:
            try:
                yield lent
            except BaseException:
                _sever(lent)  # for every process that holds it
                raise
    finally:
        if not transport.is_closing():
            transport.set_write_buffer_limits()


@asynccontextmanager
async def relayed_socket(
    transport: asyncio.Transport, drain: Callable[[], Awaitable[None]]
) -> AsyncIterator[socket.socket]:
    """Lend a socket whose bytes are written to *transport*, which encrypts them.

    It is used like that of :func:`lent_socket`, but each byte passes through this process.

    Args:
        transport: Nobody else may write to it meanwhile.
        drain: Waits until the transport is no longer full.

    Raises:
        ClientGoneError: The connection is closed.
    """
    if transport.is_closing():
        raise ClientGoneError
    inner, lent = socket.socketpair()
    with inner, lent:
        inner.settimeout(0)
        lent.settimeout(0)
        relay = asyncio.create_task(_relay(inner, transport, drain), name="eruca relay")
        try:
            yield lent
            lent.shutdown(socket.SHUT_WR)  # for every process that holds it
            await relay
        except BaseException:
            _sever(lent)
            transport.abort()
            raise
        finally:
            relay.cancel()
            await asyncio.wait((relay,))


async def _relay(
    source: socket.socket, transport: asyncio.Transport, drain: Callable[[], Awaitable[None]]
) -> None:
    """Write what arrives at *source* to *transport* until its end; sever it if the client left."""
    loop = asyncio.get_running_loop()
    while data := await loop.sock_recv(source, _RELAYED_SIZE):
        if transport.is_closing():
            _sever(source)
            return
        transport.write(data)
        await drain()


def chunk_of(pieces: Sequence[Piece]) -> bytes:
    """Encode *pieces*, at least one of them not empty, as a chunk of an HTTP/1.1 body."""
    return b"".join((b"%x\r\n" % sum(map(len, pieces)), *pieces, b"\r\n"))


def unread_size(connection: socket.socket) -> int:
    """Return how many bytes in the kernel the peer has not read yet."""
    answer = fcntl.ioctl(connection.fileno(), termios.TIOCOUTQ, bytes(_COUNT.size))
    (size,) = _COUNT.unpack(answer)
    return int(size)


def _sever(connection: socket.socket) -> None:
    with suppress(OSError):  # the client has closed it already
        connection.shutdown(socket.SHUT_RDWR)
