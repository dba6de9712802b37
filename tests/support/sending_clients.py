"""A producer's client whose brokers are functions."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import eruca
from eruca.aio.http.transport import HttpResponse
from support.scripted_transport import (
    Request,
    ScriptedTransport,
    json_answer,
    receipt_answer,
    route_of,
)

Broker = Callable[[Request], Awaitable[HttpResponse]]


async def storing(request: Request) -> HttpResponse:
    """Answer as a broker that stores everything."""
    return receipt_answer(request)


class Gate:
    """A broker that lets batches through one by one."""

    def __init__(self) -> None:
        self.waiting: list[tuple[Request, asyncio.Future[HttpResponse]]] = []

    async def __call__(self, request: Request) -> HttpResponse:
        future: asyncio.Future[HttpResponse] = asyncio.get_running_loop().create_future()
        self.waiting.append((request, future))
        return await future

    def holds(self, count: int) -> bool:
        return len(self.waiting) == count

    def open(self) -> None:
        request, future = self.waiting.pop(0)
        future.set_result(receipt_answer(request))


def client_of(
    broker: Broker, *broker_names: str, queue_count: int = 2
) -> tuple[eruca.AsyncClient, ScriptedTransport]:
    names = broker_names or ("a", "b")

    async def name_server(request: Request) -> HttpResponse:
        if "wait_seconds" in request.target:
            await asyncio.Event().wait()  # nothing changes
        topic = request.target.split("/")[3]
        return json_answer(route_of(topic, *names, queue_count=queue_count), etag='"1"')

    hot = ScriptedTransport(broker)
    client = eruca.AsyncClient(
        "http://namesrv", hot_transport=hot, transport=ScriptedTransport(name_server)
    )
    return client, hot


def message(text: str = "x", **fields: str) -> eruca.Message:
    return eruca.Message("orders", text, **fields)  # type: ignore[arg-type]


def bodies(request: Request) -> list[bytes]:
    return [record.body for record in request.records]
