"""A worker by itself: steps that are sent, forgotten, refused, or meet an unforeseen error."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from msgspec.structs import replace
from structlog.testing import capture_logs

from eruca.aio.http.transport import HttpResponse
from eruca.contract.exports import NDJSON_MEDIA_TYPE
from eruca.contract.records import Record, encode_record
from eruca.contract.wire import PullStatus
from eruca_query.exports.workers.channel import Channel
from eruca_query.exports.workers.steps import (
    Failed,
    Forget,
    Made,
    Order,
    ReaderGone,
    Refused,
    Report,
    RowForm,
    Send,
    Sent,
    Step,
    Taken,
    decode_report,
    encode,
)
from eruca_query.exports.workers.worker import Worker
from support.limits import open_files_limit
from support.pulls import pull_of
from support.scripted_transport import Answerer, Request, ScriptedTransport
from support.waiting import until

pytestmark = pytest.mark.anyio
RECORDS = [encode_record(Record("orders", b"body", queue_offset=n)) for n in range(3)]


def step(number: int) -> Step:
    return Step(
        number=number,
        url="http://broker",
        target="/v1/topics/orders/queues/0/messages",
        timeout=30,
        topic="orders",
        broker_name="broker-a",
        queue_id=0,
        offset=0,
        form=RowForm(NDJSON_MEDIA_TYPE, ("queue_offset",), "none"),
    )


class Service:
    """The other end."""

    def __init__(self, end: socket.socket) -> None:
        self.heard: list[Report] = []
        self._channel = Channel(end, self._hear, self.heard.clear)

    def _hear(self, data: bytes, _lent: socket.socket | None) -> None:
        self.heard.append(decode_report(data))

    def tell(self, order: Order, lent: socket.socket | None = None) -> None:
        self._channel.tell(encode(order), lent)

    async def hears(self, *reports: Report) -> None:
        await until(lambda: len(self.heard) >= len(reports))
        assert tuple(self.heard) == reports
        self.heard.clear()

    def leave(self) -> None:
        self._channel.close()


@asynccontextmanager
async def working(answer: Answerer) -> AsyncIterator[Service]:
    """Yield the service of a worker whose pulls are answered by *answer*."""
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    service = Service(ours)
    work = asyncio.create_task(Worker(its, ScriptedTransport(answer)).work())
    yield service
    service.leave()
    async with asyncio.timeout(30):
        await work  # it ends with the service, whatever it is at


async def pulled(_request: Request) -> HttpResponse:
    return HttpResponse(200, {}, pull_of(RECORDS))


TAKEN_FIELDS = (PullStatus.FOUND, len(RECORDS), 2, 11)
TAKEN = Taken(1, *TAKEN_FIELDS)


async def test_rows_are_sent_as_a_chunk_when_it_is_their_turn() -> None:
    ours, readers = socket.socketpair()
    with ours, readers:
        async with working(pulled) as service:
            service.tell(step(1))
            await service.hears(TAKEN, Made(1))
            ours.setblocking(False)
            service.tell(Send(1), ours)
            await until(lambda: len(service.heard) == 1)
            [sent] = service.heard
        ours.close()
        chunk = readers.recv(100_000)

    assert sent == Sent(1, len(chunk))
    size, _, rest = chunk.partition(b"\r\n")
    assert int(size, 16) == len(rest) - 2
    assert rest.count(b"\n") == len(RECORDS) + 1


async def test_a_reader_that_is_gone_is_told() -> None:
    ours, readers = socket.socketpair()
    with ours, readers:
        async with working(pulled) as service:
            service.tell(step(1))
            await service.hears(TAKEN, Made(1))
            readers.close()
            service.tell(Send(1), ours)
            await service.hears(ReaderGone(1))


async def test_a_connection_that_cannot_be_taken_ends_the_step_it_was_lent_for() -> None:
    ours, readers = socket.socketpair()
    with ours, readers, capture_logs() as logs:
        async with working(pulled) as service:
            service.tell(step(1))
            await service.hears(TAKEN, Made(1))
            with open_files_limit(0):
                service.tell(Send(1), ours)
                await service.hears(Failed(1))
            service.tell(step(2))
            await service.hears(Taken(2, *TAKEN_FIELDS), Made(2))

    assert [entry["event"] for entry in logs] == ["rows cannot be built"]


async def test_an_error_that_nobody_foresaw_ends_its_own_step_alone() -> None:
    fails = True

    async def answer(request: Request) -> HttpResponse:
        if fails:
            raise ZeroDivisionError
        return await pulled(request)

    with capture_logs() as logs:
        async with working(answer) as service:
            service.tell(step(1))
            await service.hears(Failed(1))
            fails = False
            service.tell(step(2))
            await service.hears(Taken(2, *TAKEN_FIELDS), Made(2))

    assert [(entry["event"], entry["topic"]) for entry in logs] == [
        ("rows cannot be built", "orders")
    ]


async def test_what_a_broker_refuses_is_told() -> None:
    problem = b'{"code":"topic-not-found","detail":"there is none","status":404}'

    async def answer(_request: Request) -> HttpResponse:
        return HttpResponse(404, {"content-type": "application/problem+json"}, problem)

    async with working(answer) as service:
        service.tell(step(1))
        await until(lambda: len(service.heard) == 1)
        [refused] = service.heard

    assert isinstance(refused, Refused)
    assert (refused.status, refused.problem["code"]) == (404, "topic-not-found")
    assert "broker-a" in refused.problem["detail"]


async def test_a_refusal_without_end_is_an_error_that_nobody_foresaw() -> None:
    problem = b'{"code":"topic-not-found","detail":"%b","status":404}' % (100_000 * b"x")

    async def answer(_request: Request) -> HttpResponse:
        return HttpResponse(404, {"content-type": "application/problem+json"}, problem)

    with capture_logs() as logs:
        async with working(answer) as service:
            service.tell(step(1))
            await service.hears(Failed(1))

    assert [entry["event"] for entry in logs] == ["a message is too long"]


async def test_a_step_that_is_forgotten_is_given_up_and_says_no_more() -> None:
    asked = asyncio.Event()

    async def answer(request: Request) -> HttpResponse:
        if not asked.is_set():
            asked.set()
            await asyncio.Event().wait()
        return await pulled(request)

    async with working(answer) as service:
        service.tell(step(1))
        await asked.wait()
        service.tell(Forget(1))
        service.tell(step(2))
        await service.hears(Taken(2, *TAKEN_FIELDS), Made(2))
        service.tell(Forget(2))
        service.tell(Forget(3))
        service.tell(step(4))
        await service.hears(Taken(4, *TAKEN_FIELDS), Made(4))


async def test_a_service_that_leaves_ends_what_waits_for_its_turn() -> None:
    async with working(pulled) as service:
        for number in range(5):
            service.tell(step(number))
        await until(lambda: len(service.heard) == 10)


@pytest.mark.parametrize("header", ["eruca-confirmed", "eruca-stale"])
async def test_that_messages_are_missing_is_the_word_of_a_master(header: str) -> None:
    async def answer(request: Request) -> HttpResponse:
        headers = {header: "1"} if request.url == "http://broker" else {}
        return HttpResponse(200, headers, pull_of([]))

    async with working(answer) as service:
        service.tell(step(1))
        await until(lambda: len(service.heard) == 1)
        [refused] = service.heard
        assert isinstance(refused, Refused)
        assert refused.status == 503
        service.heard.clear()

        service.tell(replace(step(2), url="http://master"))
        await until(lambda: len(service.heard) == 1)
        [taken] = service.heard
        assert isinstance(taken, Taken)
        assert taken.count == 0
