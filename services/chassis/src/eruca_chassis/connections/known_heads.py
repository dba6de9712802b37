"""Known heads: heads of earlier requests, byte for byte, parsed once and found by a look-up.

A client often sends the same head again and again; only the body differs. At the beginning of a
request the parser's result depends on the head's bytes alone. So it is valid for the same bytes
later, on any connection.

Only heads of requests with a body are cached. Those without one name their position in the query,
and hardly ever repeat. Nor do heads with a request id or a trace context.
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
    """The known heads of a service's hot routes, for all its connections."""

    def __init__(self) -> None:
        self._known: dict[bytes, RequestHead] = {}
        self.find = self._known.get  # head, including its end → parsed head, or None

    def __len__(self) -> int:
        return len(self._known)

    def forget(self) -> None:
        """Forget all heads: their callers may have other names now."""
        self._known.clear()

    def learn(self, head: bytes, request: RequestHead) -> None:
        """Cache a parsed head if it may repeat.

        Args:
            head: All bytes from the beginning of the request to its first empty line.
            request: The parsed head.
        """
        headers = request.headers
        is_plain = (
            len(head) <= KNOWN_HEAD_SIZE_MAX
            and b"transfer-encoding" not in headers
            and _NAMING.isdisjoint(headers)
            and request.body_size
            # One line each, and nothing before: otherwise the parser may have found another end.
            and head.count(b"\n") == head.count(b"\r\n") == len(headers) + 2
            and head.startswith(request.method.encode() + b" ")
        )
        if not is_plain:
            return
        if len(self._known) >= KNOWN_HEADS_MAX:
            self._known.clear()
        self._known[head] = request


class NoKnownHeads(KnownHeads):
    """Known heads where none may be reused."""

    def learn(self, head: bytes, request: RequestHead) -> None:
        """Forget it."""
