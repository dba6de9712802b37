"""A service that answers at once, late or at length, and its peers on raw sockets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

from eruca_chassis.app import ServiceApp
from eruca_chassis.connections.exchange import AnswerHead, BodyLimit, Exchange
from eruca_chassis.running.settings import ServiceSettings
from support.budgets import ManualBudget
from support.hot_routes import Hot, hot_router

MIB = 1024 * 1024
LARGE = bytes(range(251)) * 4_000  # a megabyte, less a little
OK = AnswerHead(200)
# A page's request is uvicorn's, whatever its path.
ORDINARY = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nOrigin: http://page\r\n\r\n"
LATE = b"GET /v1/late/%d HTTP/1.1\r\nHost: localhost\r\n\r\n"
SAY = b"POST /v1/say HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%b"


class Things:
    """Answers at once, late or at length, as asked for."""

    def __init__(self) -> None:
        self.late: dict[str, Exchange] = {}
        self.working: list[Exchange] = []
        self.lost: list[str] = []
        self.budget = ManualBudget(64 * MIB)
        self.app = ServiceApp(
            title="Things",
            summary="",
            description="",
            version="1",
            lifespan=self._lifespan,
            routers=[
                hot_router(
                    Hot("GET", "/v1/late/{name}", self._late),
                    Hot("GET", "/v1/large/{size}", self._large),
                    Hot("POST", "/v1/say", self._say, admit=self._admit),
                    Hot("POST", "/v1/work", self.working.append, admit=self._admit),
                )
            ],
        )
        self.app.stop_hooks.append(self._release_all)

    @asynccontextmanager
    async def _lifespan(self, app: ServiceApp) -> AsyncIterator[None]:
        app.open_routes()
        app.readiness.ready()
        yield

    def release(self, name: str) -> None:
        self.late.pop(name).answer(OK, name.encode())

    def _release_all(self) -> None:
        for name in list(self.late):
            self.release(name)

    def _late(self, exchange: Exchange) -> None:
        name = exchange.request.parameters["name"]
        self.late[name] = exchange
        exchange.on_lost = partial(self._lose, name)

    def _lose(self, name: str) -> None:
        del self.late[name]
        self.lost.append(name)

    def _large(self, exchange: Exchange) -> None:
        size = int(exchange.request.parameters["size"])
        exchange.take(self.budget, size)
        pieces = [bytes([number % 256]) * 100_000 for number in range(size // 100_000)]
        exchange.answer(OK, b"begin ", *pieces, b" end")

    def _admit(self, exchange: Exchange) -> None:
        exchange.expect_body(BodyLimit(self.budget, MIB, "said_size_max"))

    def _say(self, exchange: Exchange) -> None:
        if exchange.body == b"broken":
            raise ZeroDivisionError
        exchange.answer(OK, bytes(exchange.body))


def said(body: bytes) -> bytes:
    return SAY % (len(body), body)


async def answer_of(reader: asyncio.StreamReader) -> tuple[int, dict[str, str], bytes]:
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    status_line, *lines = head.strip().split("\r\n")
    headers = dict(line.split(": ", 1) for line in lines)
    body = await reader.readexactly(int(headers["content-length"]))
    return int(status_line.split(" ")[1]), headers, body


async def bodies_of(reader: asyncio.StreamReader, count: int) -> list[bytes]:
    return [(await answer_of(reader))[2] for _ in range(count)]


def settings(**changed: float) -> ServiceSettings:
    return ServiceSettings.model_validate({"stop_seconds": 5} | changed)


Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]
