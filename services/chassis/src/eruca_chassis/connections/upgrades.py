"""Ignoring an offered upgrade without losing the body of the request that offers it.

The parser takes such a request to end with its head, whatever its headers say of a body. So the
body is parsed by a new one, under a head that is made up: it frames the body, and offers nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Protocol

from eruca_chassis.asgi import Header

_FRAMING: Final = (b"content-length", b"transfer-encoding")


class ParserCallbacks(Protocol):
    """What a parser tells a connection."""

    def on_message_begin(self) -> None:
        """Take the first byte of a request."""
        ...

    def on_url(self, url: bytes) -> None:
        """Take a piece of the URL."""
        ...

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header."""
        ...

    def on_headers_complete(self) -> None:
        """Take the end of a head."""
        ...

    def on_chunk_header(self) -> None:
        """Take the line in front of a chunk."""
        ...

    def on_body(self, body: bytes) -> None:
        """Take a piece of the body."""
        ...

    def on_message_complete(self) -> None:
        """Take the end of a request."""
        ...


class AfterUpgrade:
    """The callbacks of a connection, but for the first head, which is the one made up."""

    def __init__(self, connection: ParserCallbacks) -> None:
        self._connection = connection
        self._head_is_ours = True
        self.on_body = connection.on_body
        self.on_chunk_header = connection.on_chunk_header
        self.on_message_complete = connection.on_message_complete

    def on_message_begin(self) -> None:
        """Pass it on, unless it is ours."""
        if not self._head_is_ours:
            self._connection.on_message_begin()

    def on_url(self, url: bytes) -> None:
        """Pass it on, unless it is ours."""
        if not self._head_is_ours:
            self._connection.on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Pass it on, unless it is ours."""
        if not self._head_is_ours:
            self._connection.on_header(name, value)

    def on_headers_complete(self) -> None:
        """Pass it on, unless it is ours; no other one is."""
        if not self._head_is_ours:
            self._connection.on_headers_complete()
        self._head_is_ours = False


def head_for_body(headers: Iterable[Header]) -> bytes:
    """Return a head that frames the body which *headers* announce; empty where they announce none.

    It is what :class:`AfterUpgrade` passes over.
    """
    framing = [b"%s: %s" % header for header in headers if header[0] in _FRAMING]
    return b"\r\n".join([b"POST / HTTP/1.1", *framing, b"", b""]) if framing else b""
