"""Heads of requests that have come before, byte for byte: parsed once, found by a look-up.

Who sends messages sends one head again and again; what differs is the body. Parsing is a function
of a head's bytes alone where a request begins, so what the parser has made of them once holds for
the next time, on whatever connection.

Only heads of requests with a body are kept: those without say in their query where to read on, and
hardly ever come twice. Neither does one that names its request, or the trace it is part of.
"""

from __future__ import annotations

from typing import Final

from eruca_chassis.asgi import REQUEST_ID_HEADER, TRACEPARENT_HEADER
from eruca_chassis.connections.exchange import RequestHead

HEAD_END: Final = b"\r\n\r\n"
KNOWN_HEADS_MAX: Final = 2_048
_NAMING: Final = frozenset({b"idempotency-key", REQUEST_ID_HEADER, TRACEPARENT_HEADER})
KNOWN_HEAD_SIZE_MAX: Final = 1_024  # bytes


class KnownHeads:
    """The heads that a service's hot routes have met, of all its connections."""

    def __init__(self) -> None:
        self._known: dict[bytes, RequestHead] = {}
        self.find = self._known.get  # by a head's bytes, its end included; or None

    def __len__(self) -> int:
        return len(self._known)

    def learn(self, head: bytes, request: RequestHead) -> None:
        """Remember what a head was parsed to, if it is one that may come again.

        Args:
            head: All bytes from where the request began up to the first empty line.
            request: What the parser made of it.
        """
        headers = request.headers
        is_plain = (
            len(head) <= KNOWN_HEAD_SIZE_MAX
            and b"transfer-encoding" not in headers
            and _NAMING.isdisjoint(headers)
            and request.body_size
            # One line each, and nothing in front: else the parser may have seen its end elsewhere.
            and head.count(b"\n") == head.count(b"\r\n") == len(headers) + 2
            and head.startswith(request.method.encode() + b" ")
        )
        if not is_plain:
            return
        if len(self._known) >= KNOWN_HEADS_MAX:
            self._known.clear()
        self._known[head] = request
