"""Answers that contain stretches of the log: sent from the mapped log, not copied if large.

Sending pauses while the client does not read. The slices keep their mapping alive meanwhile,
whatever retention deletes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from fastapi import Response
from starlette.types import Receive, Scope
from starlette.types import Send as StarletteSend

from eruca_broker.api.bodies import InFlight
from eruca_chassis.admission.budget import Budget, client_of
from eruca_chassis.asgi import Header, Send
from eruca_chassis.connections.pieces import JOIN_SIZE_MAX, joined

_HELD_SIZE_MAX: Final = 2 * JOIN_SIZE_MAX  # bytes that sending slices of the log copies at a time


def held_size(size: int) -> int:
    """Return the bytes of memory that sending *size* bytes of the log takes at a time.

    Slices that are not joined stay in the log's mapping. That is the kernel's memory and can be
    dropped. So a client that does not read its answer does not use up memory that others need.
    """
    return min(size, _HELD_SIZE_MAX)


async def send_slices(
    send: Send, slices: Sequence[bytes | memoryview], headers: Iterable[Header]
) -> int:
    """Send 200 with a body made of *slices*, one after another, and return the status."""
    size = sum(map(len, slices))
    await send(
        {
            "type": "http.response.start",
            "status": 200,
            "headers": [*headers, (b"content-length", b"%d" % size)],
        }
    )
    if size <= JOIN_SIZE_MAX:
        await send({"type": "http.response.body", "body": b"".join(slices)})
        return 200
    for piece in joined(slices):
        await send({"type": "http.response.body", "body": piece, "more_body": True})
    await send({"type": "http.response.body", "body": b""})
    return 200


class CountedResponse(Response):
    """A FastAPI answer that counts among the bytes in flight while it is sent.

    If there is no room for it, the answer is the 429 of ``consume_bytes_in_flight_max``.

    Args:
        in_flight: The budget that it takes.
        slices: The body; ``memoryview`` are stretches of the log, ``bytes`` memory of its own.
        media_type: Its media type.
        headers: Additional headers.
    """

    def __init__(
        self,
        in_flight: Budget,
        slices: Sequence[bytes | memoryview],
        media_type: str,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(headers=headers, media_type=media_type)
        del self.headers["content-length"]  # of no body: the slices have their own
        self._in_flight = in_flight
        self._slices = slices

    async def __call__(self, scope: Scope, _receive: Receive, send: StarletteSend) -> None:
        """Send it."""
        with InFlight(self._in_flight, client_of(scope["client"])) as taken:
            for piece in self._slices:
                taken.take(held_size(len(piece)) if isinstance(piece, memoryview) else len(piece))
            await send_slices(send, self._slices, self.raw_headers)
