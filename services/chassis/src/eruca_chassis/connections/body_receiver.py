"""Receive the body of a large upload directly into its buffer.

Usually a body passes through the parser in pieces that are copied three times until they are one
buffer, which is fine for kilobytes. While a large body of announced size arrives, the transport's
protocol is a :class:`BodyReceiver`: the kernel copies from the socket straight into the body's
buffer. The buffer grows with the bytes that have arrived, and only these are charged. So a body
that is announced and does not arrive takes no memory.

The parser, which has not seen the end of the request, is replaced by a new one afterwards.
"""

from __future__ import annotations

import asyncio
import ctypes
from collections.abc import Callable
from typing import Final, Protocol

LARGE_BODY_SIZE_MIN: Final = 128 * 1024  # missing bytes from which this path is worth its cost

_new_bytearray = ctypes.pythonapi.PyByteArray_FromStringAndSize
_new_bytearray.argtypes = (ctypes.c_void_p, ctypes.c_ssize_t)
_new_bytearray.restype = ctypes.py_object


def new_buffer(size: int) -> bytearray:
    """Return *size* uninitialized bytes; the caller must fill them before anybody reads them.

    ``bytearray(size)`` would write zeros first, a twentieth of the cost of storing a megabyte.

    Source: Python's C API, ``PyByteArray_FromStringAndSize`` without a string.
    """
    buffer: bytearray = _new_bytearray(None, size)
    return buffer


class LargeBody(Protocol):
    """A body that is being received."""

    def room(self) -> memoryview:
        """Return the memory for the next bytes, at least one."""
        ...

    def filled(self, size: int) -> bool:
        """Record that *size* bytes have arrived; return whether the body is complete."""
        ...


class BodyReceiver(asyncio.BufferedProtocol):
    """Replaces a connection's own protocol while a large body arrives.

    Args:
        connection: Gets all other events.
        body: The rest of the body, at least one byte.
        done: Called once it is complete; another protocol must take over then.
    """

    def __init__(
        self, connection: asyncio.Protocol, body: LargeBody, done: Callable[[], None]
    ) -> None:
        self._connection = connection
        self._body = body
        self._done = done

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return memory for arriving bytes, without room for a byte of the next request."""
        return self._body.room()

    def buffer_updated(self, nbytes: int) -> None:
        """Record that *nbytes* have arrived."""
        if self._body.filled(nbytes):
            self._done()

    def eof_received(self) -> bool | None:
        """Forward to the connection."""
        return self._connection.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forward to the connection."""
        self._connection.connection_lost(exc)

    def pause_writing(self) -> None:
        """Forward to the connection."""
        self._connection.pause_writing()

    def resume_writing(self) -> None:
        """Forward to the connection."""
        self._connection.resume_writing()


def let_read(transport: asyncio.Transport, protocol: asyncio.BaseProtocol) -> None:
    """Make *protocol* receive the data that arrives at *transport* from now on.

    uvloop checks a protocol's type only when reading starts, so reading is stopped and started.
    """
    is_reading = transport.is_reading()
    if is_reading:
        transport.pause_reading()
    transport.set_protocol(protocol)
    if is_reading:
        transport.resume_reading()
