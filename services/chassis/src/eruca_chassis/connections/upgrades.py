"""Ignore an offered upgrade without losing the body of its request.

The parser ends such a request with its head, no matter what its headers say about a body. So a new
parser parses the body, after an artificial head that frames the body and offers no upgrade.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Protocol

from eruca_chassis.asgi import Header

_FRAMING: Final = (b"content-length", b"transfer-encoding")


class ParserCallbacks(Protocol):
    """The callbacks that a parser calls on a connection."""

    def on_message_begin(self) -> None:
        """Begin a request."""
        ...

    def on_url(self, url: bytes) -> None:
        """Store a piece of the URL."""
        ...

    def on_header(self, name: bytes, value: bytes) -> None:
        """Store a header."""
        ...

    def on_headers_complete(self) -> None:
        """Dispatch a request whose head is complete."""
        ...

    def on_chunk_header(self) -> None:
        """Count the size line of a chunk."""
        ...

    def on_body(self, body: bytes) -> None:
        """Store a piece of the body."""
        ...

    def on_message_complete(self) -> None:
        """Complete a request."""
        ...


class AfterUpgrade:
    """Forwards a connection's callbacks, except those of the first head, which is artificial."""

    def __init__(self, connection: ParserCallbacks) -> None:
        self._connection = connection
        self._head_is_ours = True
        self.on_body = connection.on_body
        self.on_chunk_header = connection.on_chunk_header
        self.on_message_complete = connection.on_message_complete

    def on_message_begin(self) -> None:
        """Forward, except for the artificial head."""
        if not self._head_is_ours:
            self._connection.on_message_begin()

    def on_url(self, url: bytes) -> None:
        """Forward, except for the artificial head."""
        if not self._head_is_ours:
            self._connection.on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Forward, except for the artificial head."""
        if not self._head_is_ours:
            self._connection.on_header(name, value)

    def on_headers_complete(self) -> None:
        """Forward, except for the artificial head; all later heads are real."""
        if not self._head_is_ours:
            self._connection.on_headers_complete()
        self._head_is_ours = False


def head_for_body(headers: Iterable[Header]) -> bytes:
    """Return an artificial head that frames the body announced in *headers*; empty without a body.

    :class:`AfterUpgrade` swallows it.
    """
    framing = [b"%s: %s" % header for header in headers if header[0] in _FRAMING]
    return b"\r\n".join([b"POST / HTTP/1.1", *framing, b"", b""]) if framing else b""
