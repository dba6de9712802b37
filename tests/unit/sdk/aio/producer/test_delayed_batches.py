"""Batches with delayed messages: records, or JSON where a broker or a producer needs it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

import eruca
from eruca.aio.http.transport import HttpResponse
from eruca.contract.errors import ErucaError, MalformedBatchError, ValidationError
from eruca.contract.message_ids import encode_offset_id
from eruca.contract.recall_handles import decode_recall_handle
from eruca.contract.records import Host
from eruca.contract.wire import DELAYED_BATCH_MAGIC
from support.scripted_transport import Request, json_answer, problem_answer, receipt_answer
from support.sending_clients import client_of

pytestmark = pytest.mark.anyio

NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)
NOON_MS = int(NOON.timestamp() * 1000)


def later(text: str = "x", delay_seconds: float | None = None) -> eruca.Message:
    deliver_at = NOON if delay_seconds is None else None
    return eruca.Message("orders", text, deliver_at=deliver_at, delay_seconds=delay_seconds)


class DelayingBroker:
    """A broker that stores delayed messages; *refusals* by the beginning of the body."""

    def __init__(self, **refusals: ErucaError) -> None:
        self.refusals = {begin.encode(): error for begin, error in refusals.items()}
        self.stored: list[Request] = []

    async def __call__(self, request: Request) -> HttpResponse:
        for begin, error in self.refusals.items():
            if request.body.startswith(begin):
                return problem_answer(error)
        self.stored.append(request)
        if request.body.startswith(b"{"):
            return self._receipts(request)
        count = len(request.records)
        scheduled = {
            "log_offsets": [1_000 + 500 * n for n in range(count)],
            "queue_offsets": [None] * count,
            "deliver_at_ms": [NOON_MS] * count,
        }
        return receipt_answer(request, scheduled=scheduled)

    def _receipts(self, request: Request) -> HttpResponse:
        messages = msgspec.json.decode(request.body)["messages"]
        host = Host.parse("127.0.0.1", 10911)
        return json_answer(
            {
                "messages": [
                    {
                        "topic": "orders",
                        "broker_name": "a",
                        "queue_id": 0,
                        "queue_offset": None,
                        "log_offset": 7,
                        "message_id": message["message_id"],
                        "offset_message_id": encode_offset_id(host, 7),
                        "stored_at": "2026-11-21T08:00:00.000Z",
                        "durability": "written",
                        "deliver_at": "2030-01-01T12:00:00.000Z",
                        "recall_handle": "handle",
                    }
                    for message in messages
                ]
            },
            201,
        )


async def test_they_go_as_records_and_each_has_its_place() -> None:
    broker = DelayingBroker()
    client, _ = client_of(broker, "a")
    async with client, client.producer() as producer:
        results = await producer.send_many([later("x"), later("y", delay_seconds=60)])

    [request] = broker.stored
    assert request.body.startswith(DELAYED_BATCH_MAGIC)
    assert [record.properties.rpartition("\x02TIMER_")[2] for record in request.records] == [
        f"DELIVER_MS\x01{NOON_MS}\x02",
        "DELAY_MS\x0160000\x02",
    ]
    for result, log_offset in zip(results, (1_000, 1_500), strict=True):
        assert (result.queue_offset, result.log_offset) == (None, log_offset)
        assert result.deliver_at == NOON
        assert result.recall_handle is not None
        handle = decode_recall_handle(result.recall_handle)
        assert (handle.topic, handle.broker_name) == ("orders", "a")
        assert (handle.deliver_at_ms, handle.message_id) == (NOON_MS, result.message_id)


async def test_a_broker_that_does_not_know_them_gets_json_from_then_on() -> None:
    broker = DelayingBroker(ERB4=MalformedBatchError("expected b'ERB1', found b'ERB4'"))
    client, hot = client_of(broker, "a")
    async with client, client.producer() as producer:
        for _ in range(3):
            result = await producer.send(later())
            assert result.recall_handle == "handle"

    assert [request.body[:4] for request in hot.requests] == [b"ERB4", *[b'{"me'] * 3]


async def test_content_that_json_refuses_as_well_says_nothing_of_the_broker() -> None:
    broker = DelayingBroker(ERB4=MalformedBatchError("no"))
    broker.refusals[b"{"] = ValidationError("no")
    client, hot = client_of(broker, "a")
    async with client, client.producer() as producer:
        with pytest.raises(ValidationError):
            await producer.send(later())
        broker.refusals.clear()
        await producer.send(later())

    assert [request.body[:4] for request in hot.requests] == [b"ERB4", b'{"me', b"ERB4"]


async def test_an_idempotent_producer_sends_json() -> None:
    broker = DelayingBroker()
    client, _ = client_of(broker, "a")
    async with client, client.producer(idempotent=True) as producer:
        await producer.send(later())

    [request] = broker.stored
    assert request.body.startswith(b"{")
    assert "idempotency-key" in {name.lower() for name in request.headers}


@pytest.mark.parametrize(
    ("delay", "text"),
    [
        ({"deliver_at": NOON}, f"TIMER_DELIVER_MS\x01{NOON_MS}\x02"),
        (
            {"deliver_at": NOON + timedelta(microseconds=1)},
            f"TIMER_DELIVER_MS\x01{NOON_MS + 1}\x02",
        ),
        ({"deliver_at": datetime(1960, 1, 1, tzinfo=UTC)}, "TIMER_DELIVER_MS\x010\x02"),
        ({"delay_seconds": 0.0001}, "TIMER_DELAY_MS\x011\x02"),
        ({"delay_seconds": 0}, "TIMER_DELAY_MS\x010\x02"),
        ({"delay_level": 3}, "DELAY\x013\x02"),
    ],
)
async def test_the_delay_is_the_last_property(delay: dict[str, Any], text: str) -> None:
    broker = DelayingBroker()
    client, _ = client_of(broker, "a")
    message = eruca.Message.json("orders", {"a": 1}, properties={"b": "c"}, **delay)
    async with client, client.producer() as producer:
        await producer.send(message)

    [record] = broker.stored[0].records
    assert record.properties.endswith(f"ERUCA_BODY_FORMAT\x01json\x02{text}")
