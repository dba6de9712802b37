"""A service whose routes show what happens on a connection, and plain requests to it."""

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
FROM_PAGE = (
    b"Origin: http://page\r\n\r\n"  # as the end of a head: uvicorn's, though its path is hot
)
HELLO = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n" + FROM_PAGE  # uvicorn's
LATE = b"GET /v1/late HTTP/1.1\r\nHost: localhost\r\n\r\n"


OK = AnswerHead(200)


class Things:
    """A service whose answers are large, slow or late, as asked for."""

    def __init__(self) -> None:
        self.held: list[Exchange] = []
        self.left = 0
        self.budget = ManualBudget(10 * MIB)

    def app(self) -> ServiceApp:
        app = ServiceApp(
            title="Things",
            summary="",
            description="",
            version="1",
            lifespan=self._lifespan,
            routers=[
                hot_router(
                    Hot("GET", "/v1/large", self._large),
                    Hot("GET", "/v1/late", self._late),
                    Hot("POST", "/v1/upload", self._upload, admit=self._admit_upload),
                )
            ],
        )
        app.stop_hooks.append(self.release)
        return app

    @asynccontextmanager
    async def _lifespan(self, app: ServiceApp) -> AsyncIterator[None]:
        app.open_routes()
        app.readiness.ready()
        yield

    def release(self) -> None:
        """Answer all that is held."""
        while self.held:
            self.held.pop(0).answer(OK, b"released")

    def _large(self, exchange: Exchange) -> None:
        exchange.answer(OK, bytes(8 * MIB))

    def _late(self, exchange: Exchange) -> None:
        self.held.append(exchange)
        exchange.on_lost = partial(self._leave, exchange)

    def _leave(self, exchange: Exchange) -> None:
        self.held.remove(exchange)
        self.left += 1

    def _admit_upload(self, exchange: Exchange) -> None:
        exchange.expect_body(BodyLimit(self.budget, MIB, "upload_size_max"))

    def _upload(self, exchange: Exchange) -> None:
        exchange.answer(OK, b"%d" % len(exchange.body))


async def answer_of(reader: asyncio.StreamReader) -> tuple[int, dict[str, str], bytes]:
    """Read one answer with a Content-Length: its status, headers and body."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    status_line, *lines = head.strip().split("\r\n")
    headers = dict(line.split(": ", 1) for line in lines)
    body = await reader.readexactly(int(headers["content-length"]))
    return int(status_line.split(" ")[1]), headers, body


def ask_and_read_nothing(writer: asyncio.StreamWriter) -> None:
    writer.transport.pause_reading()  # type: ignore[attr-defined]  # it reads as well
    writer.write(b"GET /v1/large HTTP/1.1\r\nHost: localhost\r\n\r\n" * 3)


def limits(**settings: float) -> ServiceSettings:
    return ServiceSettings.model_validate({"stop_seconds": 2} | settings)
