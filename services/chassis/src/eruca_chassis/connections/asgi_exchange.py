"""Exchanges over ASGI: the same handlers for requests that bypass the direct path.

Connections leave rare cases to uvicorn: HTTP/1.0, an offered upgrade, Expect, requests pipelined
after an ordinary one. uvicorn calls the application, which runs the handlers here. Tests that call
the application without a socket take the same path.
"""

from __future__ import annotations

import asyncio

from eruca_chassis.admission.gate import ACCESS_KEY, CERTIFICATE_KEY, OPEN
from eruca_chassis.asgi import (
    Receive,
    Scope,
    Send,
    joined_headers,
    request_id_header,
    target_said,
)
from eruca_chassis.connections.exchange import Exchange, Found, RequestHead
from eruca_chassis.connections.pieces import joined
from eruca_chassis.door import Door
from eruca_chassis.metrics import CLIENT_GONE_STATUS


class _Call:
    """A carrier: one ASGI call, which waits until the exchange is answered or lost."""

    connection = None  # the application has told the caller's quota of it

    def __init__(self) -> None:
        self.settled: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def answered(self, _exchange: Exchange) -> None:
        if not self.settled.done():
            self.settled.set_result(None)


async def run_exchange(
    found: Found, door: Door | None, scope: Scope, receive: Receive, send: Send
) -> int:
    """Answer one request of a hot route; return the status, 499 if the client disconnected."""
    call = _Call()
    headers = joined_headers(scope["headers"])
    request = RequestHead(found, scope["method"], target_said(scope), headers)
    exchange = Exchange(call, request, scope["client"])
    exchange.door = door
    exchange.certificate = scope.get(CERTIFICATE_KEY)
    exchange.take_access(scope.get(ACCESS_KEY, OPEN))
    watch: asyncio.Task[None] | None = None
    try:
        exchange.begin()
        await _bring_body(exchange, receive)
        if not exchange.status and not exchange.is_lost:
            watch = asyncio.create_task(_notice_leaving(exchange, call, receive))
            await call.settled
        if exchange.status:
            await _send_answer(exchange, send)
        return exchange.status or CLIENT_GONE_STATUS
    finally:
        if watch is not None:
            watch.cancel()
        exchange.lose()
        exchange.give_back()


async def _bring_body(exchange: Exchange, receive: Receive) -> None:
    more = True
    while more and not exchange.status:
        message = await receive()
        if message["type"] != "http.request":
            exchange.lose()
            return
        if body := message.get("body", b""):
            exchange.add(body)
        more = message.get("more_body", False)
    exchange.complete()


async def _notice_leaving(exchange: Exchange, call: _Call, receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    # A request that works, not waits, continues: the client may only have half-closed.
    if exchange.is_waiting and exchange.lose():
        call.answered(exchange)


async def _send_answer(exchange: Exchange, send: Send) -> None:
    assert exchange.head is not None
    identity = request_id_header(exchange.request_id)
    headers = [*exchange.head.headers, identity, *exchange.role_headers]
    if exchange.head.has_body:
        headers.append((b"content-length", b"%d" % exchange.size))
    await send({"type": "http.response.start", "status": exchange.status, "headers": headers})
    for piece in joined(exchange.pieces):
        await send({"type": "http.response.body", "body": piece, "more_body": True})
    await send({"type": "http.response.body", "body": b""})
