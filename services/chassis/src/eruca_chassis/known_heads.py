"""Heads of requests that have come before, byte for byte: parsed once, found by a look-up.

Who sends messages sends one head again and again; what differs is the body. Parsing is a function
of a head's bytes alone where a request begins, so what the parser has made of them once holds for
the next time, on whatever connection.

Only heads of requests with a body are kept: those without say in their query where to read on, and
hardly ever come twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from eruca_chassis.exchange import Found

HEAD_END: Final = b"\r\n\r\n"
KNOWN_HEADS_MAX: Final = 2_048
KNOWN_HEAD_SIZE_MAX: Final = 1_024  # bytes

_SIZE_DIGITS_MAX: Final = 9


class KnownHead(NamedTuple):
    """What the parser made of a head."""

    found: Found
    method: str
    query: bytes
    headers: Mapping[bytes, bytes]
    body_size: int  # bytes; above 0


class KnownHeads:
    """The heads that a service's hot routes have met, of all its connections."""

    def __init__(self) -> None:
        self._known: dict[bytes, KnownHead] = {}
        self.find = self._known.get  # by a head's bytes, its end included; or None

    def __len__(self) -> int:
        return len(self._known)

    def learn(
        self,
        head: bytes,
        found: Found,
        method: str,
        query: bytes,
        headers: Mapping[bytes, bytes],
    ) -> None:
        """Remember what a head was parsed to, if it is one that may come again.

        Args:
            head: All bytes from where the request began up to the first empty line.
            found: The route.
            method: As parsed.
            query: As parsed.
            headers: As parsed; several of one name are joined.
        """
        size = headers.get(b"content-length", b"")
        is_plain = (
            len(head) <= KNOWN_HEAD_SIZE_MAX
            and b"transfer-encoding" not in headers
            and size.isdigit()
            and len(size) <= _SIZE_DIGITS_MAX
            # One line each, and nothing in front: else the parser may have seen its end elsewhere.
            and head.count(b"\n") == head.count(b"\r\n") == len(headers) + 2
            and head.startswith(method.encode() + b" ")
        )
        if not is_plain or not int(size):
            return
        if len(self._known) >= KNOWN_HEADS_MAX:
            self._known.clear()
        self._known[head] = KnownHead(found, method, query, headers, int(size))
