"""Refuse a connection: send a problem document, and give the client time to read it."""

from __future__ import annotations

import asyncio
from typing import Final

from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from eruca.contract.errors import ErucaError, OverloadedError
from eruca_chassis.asgi import (
    Receive,
    Scope,
    Send,
    problem_body,
    problem_headers,
    request_id_header,
    send_problem,
)

LINGER_SECONDS: Final = 1.0  # for a refused client to read the answer


def last_answer(error: ErucaError, request_id: str) -> bytes:
    """Encode the complete last answer of a connection: head and problem document of *error*."""
    body = problem_body(error, request_id)
    headers = [
        *problem_headers(error),
        request_id_header(request_id),
        (b"content-length", b"%d" % len(body)),
        (b"connection", b"close"),
    ]
    lines = [STATUS_LINE[error.status], *(b"%s: %s\r\n" % header for header in headers)]
    return b"".join([*lines, b"\r\n", body])


class Lingering(asyncio.Protocol):
    """Replaces the protocol of a refused connection until its end: arriving bytes are dropped.

    Closing at once would reset the connection while the client is still sending, and the client
    would never read the answer.
    """

    def __init__(self, refused: asyncio.Protocol, transport: asyncio.Transport) -> None:
        self._refused = refused
        loop = asyncio.get_running_loop()
        self._end = loop.call_later(LINGER_SECONDS, transport.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forward to the connection."""
        self._end.cancel()
        self._refused.connection_lost(exc)


async def refuse_connection(scope: Scope, _receive: Receive, send: Send) -> None:
    """Refuse any request on a connection beyond the limit; replaces the application there."""
    error = OverloadedError(
        "the maximum number of connections is open: connections_max, or what the limit of open "
        "files allows",
        retry_after_seconds=1,
    )
    await send_problem(send, error, scope, [(b"connection", b"close")])
