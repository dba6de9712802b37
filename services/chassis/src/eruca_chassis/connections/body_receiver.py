"""The body of a large upload, received where it stays.

The usual way of a body is through the parser, in pieces that are copied three times until they are
one buffer: fine for kilobytes. While a large one arrives whose size is announced, the transport's
protocol is a :class:`BodyReceiver`: the kernel copies from the socket straight into the body's
buffer. That one grows with what has come, and is paid for by that: what is announced and does not
come takes no memory.

The parser, which has seen no end of the request, is replaced by a new one behind it.
"""

from __future__ import annotations

import asyncio
import ctypes
from collections.abc import Callable
from typing import Final, Protocol

LARGE_BODY_SIZE_MIN: Final = 128 * 1024  # bytes still to come, from which this is worth its cost

_new_bytearray = ctypes.pythonapi.PyByteArray_FromStringAndSize
_new_bytearray.argtypes = (ctypes.c_void_p, ctypes.c_ssize_t)
_new_bytearray.restype = ctypes.py_object


def new_buffer(size: int) -> bytearray:
    """Return *size* bytes that may be anything, for one who fills them all before they are read.

    ``bytearray(size)`` would write zeros first: a twentieth of what storing a megabyte costs.

    Source: Python's C API, ``PyByteArray_FromStringAndSize`` without a string.
    """
    buffer: bytearray = _new_bytearray(None, size)
    return buffer


class LargeBody(Protocol):
    """A body that is being received."""

    def room(self) -> memoryview:
        """Return where the next bytes go, at least one."""
        ...

    def filled(self, size: int) -> bool:
        """Note that so many have come; tell whether the body is whole."""
        ...


class BodyReceiver(asyncio.BufferedProtocol):
    """Stands in for a connection's own protocol while a large body arrives.

    Args:
        connection: Told all that is not the body.
        body: The rest of it, at least one byte.
        done: Called once it is whole; then another protocol must take over.
    """

    def __init__(
        self, connection: asyncio.Protocol, body: LargeBody, done: Callable[[], None]
    ) -> None:
        self._connection = connection
        self._body = body
        self._done = done

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return where to put what arrives, with no room for a byte of what follows."""
        return self._body.room()

    def buffer_updated(self, nbytes: int) -> None:
        """Note that so many bytes have come."""
        if self._body.filled(nbytes):
            self._done()

    def eof_received(self) -> bool | None:
        """Tell the connection."""
        return self._connection.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell the connection."""
        self._connection.connection_lost(exc)

    def pause_writing(self) -> None:
        """Tell the connection."""
        self._connection.pause_writing()

    def resume_writing(self) -> None:
        """Tell the connection."""
        self._connection.resume_writing()


def let_read(transport: asyncio.Transport, protocol: asyncio.BaseProtocol) -> None:
    """Let *protocol* have what arrives at *transport* from now on.

    uvloop looks at how a protocol wants to be fed only where reading begins.
    """
    is_reading = transport.is_reading()
    if is_reading:
        transport.pause_reading()
    transport.set_protocol(protocol)
    if is_reading:
        transport.resume_reading()
