"""Refusing at the connection itself: a problem document, and time for the client to read it."""

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
    request_id,
    request_id_header,
    send_problem,
)

LINGER_SECONDS: Final = 1.0  # for a refused client to read why


def last_answer(error: ErucaError, request_id: str) -> bytes:
    """Return the whole answer that ends a connection with *error*, head and problem document."""
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
    """The end of a refused connection, in place of its own protocol: what still arrives is dropped.

    Closing at once would reset the connection under a client that is still sending, which would
    then never read why.
    """

    def __init__(self, refused: asyncio.Protocol, transport: asyncio.Transport) -> None:
        self._refused = refused
        loop = asyncio.get_running_loop()
        self._end = loop.call_later(LINGER_SECONDS, transport.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell the connection."""
        self._end.cancel()
        self._refused.connection_lost(exc)


async def refuse_connection(scope: Scope, _receive: Receive, send: Send) -> None:
    """Answer whatever is asked on a connection beyond the limit: the application in its place."""
    error = OverloadedError(
        "as many connections are open as may be: connections_max, or what the limit of open files "
        "leaves",
        retry_after_seconds=1,
    )
    await send_problem(send, error, request_id(scope), [(b"connection", b"close")])
