"""Find the boundaries of a connection's requests, as far as limits need them.

The parser reports the content of a request but not its end among the bytes: it consumes everything
that has arrived, several requests at once. So it is fed in pieces. Each piece ends where a head or
a body ends, or with the data. So a limit holds to the byte no matter how a request arrives, and the
connection can stop between two requests.

That needs no parsing. A head, and a chunked body with its trailers, end with the first empty line
that is not part of a chunk. An empty line inside a chunk only causes one more piece. The end of any
other body is known from its head.

Limits for bytes that carry no content:

- ``HEAD_SIZE_MAX`` bytes for a head, including empty lines before it;
- as much for trailers and chunk extensions. 16 bytes per chunk and twice its data do not count: a
  chunk of one byte is legitimate, a byte with a kilobyte of extension is not.

Source: RFC 9112 sections 2.2, 6.3 and 7.1; RFC 9110 section 10.1.1 (Expect); the allowance for
chunks is that of Go's net/http.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from eruca.contract.errors import (
    ExpectationError,
    HttpVersionError,
    RequestError,
    TransferCodingError,
)
from eruca_chassis.connections.known_heads import HEAD_END

HEAD_SIZE_MAX: Final = 64 * 1024  # bytes of a request line with its headers; and of trailers
_CONTINUE: Final = b"100-continue"
_CHUNK_ALLOWANCE: Final = 16  # bytes around the data of one chunk that do not count
_SHOWN_SIZE_MAX: Final = 80  # bytes of a refused value in an error text
_SEAM_SIZE: Final = len(HEAD_END) - 1  # bytes of HEAD_END that may be in the previous piece


def check_framing(http_version: str, headers: Mapping[bytes, bytes]) -> None:
    """Refuse a head whose body the parser would delimit differently than its sender means.

    Args:
        http_version: The parser's value.
        headers: Names in lower case; several with one name joined by commas.

    Raises:
        HttpVersionError: It is not HTTP/1.1 or 1.0.
        ExpectationError: The Expect header has another value than 100-continue.
        TransferCodingError: The body has another coding beside chunked.
        RequestError: The end of the body is unknown: chunked is not its last coding, or the version
            is HTTP/1.0, which has no codings.
    """
    if http_version not in ("1.1", "1.0"):
        raise HttpVersionError(f"the request is of HTTP/{http_version}")
    expected = headers.get(b"expect")
    if expected is not None and http_version != "1.0":
        _check_expectations(expected)
    codings = headers.get(b"transfer-encoding")
    if codings is None:
        return
    if http_version == "1.0":
        raise RequestError(
            "HTTP/1.0 has no Transfer-Encoding", fix="send Content-Length, or speak HTTP/1.1"
        )
    names = _members(codings)
    shown = _shown(codings)
    if names.count(b"chunked") != 1 or names[-1] != b"chunked":
        raise RequestError(
            f"expected a Transfer-Encoding that ends in chunked, found {shown}",
            fix=TransferCodingError.default_fix,
        )
    if len(names) > 1:
        raise TransferCodingError(f"expected the Transfer-Encoding chunked, found {shown}")


def _check_expectations(expected: bytes) -> None:
    if any(name != _CONTINUE for name in _members(expected)):
        raise ExpectationError(f"expected the Expect 100-continue, found {_shown(expected)}")


def _members(value: bytes) -> list[bytes]:
    return [name.strip().lower() for name in value.split(b",") if name.strip()]


def _shown(value: bytes) -> str:
    return repr(value[:_SHOWN_SIZE_MAX].decode("latin-1"))


class Framing:
    """The bytes of one connection, from the creation of its parser."""

    __slots__ = ("_body_left", "_size", "_tail")

    def __init__(self) -> None:
        self._size = 0  # bytes that count, of the head or of a chunked body's framing
        self._body_left = 0  # missing bytes of a body of announced size
        self._tail = b""  # end of the previous piece: an empty line may have begun there

    @property
    def has_begun(self) -> bool:
        """True if a byte of the next head has arrived."""
        return self._size > 0

    def next_end(self, data: bytes, start: int) -> int:
        """Return the end of the piece of *data* at *start*; *start* itself if it is too large.

        The piece counts as fed from then on.
        """
        if self._body_left:
            end = min(len(data), start + self._body_left)
            self._body_left -= end - start
            return end
        end = min(self._empty_line_end(data, start), start + HEAD_SIZE_MAX - self._size)
        self._size += end - start
        last = data[max(start, end - len(HEAD_END)) : end]
        if len(last) < len(HEAD_END):
            last = (self._tail + last)[-len(HEAD_END) :]
        self._tail = b"" if last == HEAD_END else last[-_SEAM_SIZE:]
        return end

    def head_ended(self, body_size: int) -> None:
        """Record the end of a head, and the announced size of its body; 0 if none."""
        self._size = 0
        self._body_left = body_size

    def chunk_came(self) -> None:
        """Record the size line of a chunk."""
        self._size = max(0, self._size - _CHUNK_ALLOWANCE)

    def body_came(self, size: int) -> None:
        """Record *size* bytes of a body."""
        self._size = max(0, self._size - 3 * size)  # once for counting them, twice as allowance

    def request_ended(self) -> None:
        """Record the end of a request."""
        self._size = 0
        self._body_left = 0

    def _empty_line_end(self, data: bytes, start: int) -> int:
        if self._tail:
            seam = self._tail + data[start : start + _SEAM_SIZE]
            found = seam.find(HEAD_END)
            if found >= 0:
                return start + found + len(HEAD_END) - len(self._tail)
        found = data.find(HEAD_END, start)
        return len(data) if found < 0 else found + len(HEAD_END)
