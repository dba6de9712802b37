"""Delayed messages as records: they wait, and are delivered, as those that come in JSON."""

from __future__ import annotations

from typing import Any, Final

import httpx
import pytest

from eruca.contract.limits import PROPERTIES_SIZE_MAX
from eruca.contract.wire import DELAYED_BATCH_MAGIC
from eruca_chassis.app import ServiceApp
from support.brokers import RECORDS, batch, broker_of, record
from support.clocks import ManualClock
from support.scheduled_calls import listed, nothing_waits, pull

pytestmark = pytest.mark.anyio

PATH: Final = "/topics/orders/queues/1/records"
DAY_MS: Final = 86_400_000


def delayed(text: str, message_id: str = "id", body: bytes = b"later") -> bytes:
    properties = f"TAGS\x01x\x02KEYS\x01k\x02UNIQ_KEY\x01{message_id}\x02a\x01b\x02{text}"
    return record("orders", body, queue_id=1, properties=properties, flag=3)


async def send(client: httpx.AsyncClient, *records: bytes, **headers: str) -> httpx.Response:
    body = batch(records, magic=DELAYED_BATCH_MAGIC)
    return await client.post(PATH, content=body, headers=RECORDS | headers)


async def sent(client: httpx.AsyncClient, *records: bytes) -> dict[str, Any]:
    answer = await send(client, *records)
    assert answer.status_code == 201, answer.text
    receipt: dict[str, Any] = answer.json()
    return receipt


@pytest.mark.parametrize("count", [1, 3, 30])
async def test_they_come_in_their_millisecond_and_as_they_were_sent(
    client: httpx.AsyncClient, app: ServiceApp, clock: ManualClock, count: int
) -> None:
    now = clock.now_ms()
    receipt = await sent(
        client,
        *(delayed(f"TIMER_DELIVER_MS\x01{now + 10_000}\x02", f"id-{n}") for n in range(count)),
    )

    places = receipt["scheduled"]
    assert (receipt["queue_id"], receipt["count"]) == (1, count)
    assert places["deliver_at_ms"] == [now + 10_000] * count
    assert places["queue_offsets"] == [None] * count
    assert places["log_offsets"][0] == receipt["log_offset"]
    assert len(await listed(client)) == count

    clock.advance(9.999)
    await broker_of(app).timers.fire()
    assert await pull(client) == []
    clock.advance(0.001)
    await nothing_waits(app)

    messages = await pull(client)
    assert [message["message_id"] for message in messages] == [f"id-{n}" for n in range(count)]
    for message in messages:
        assert (message["tag"], message["keys"], message["flag"]) == ("x", ["k"], 3)
        assert message["properties"] == {"a": "b"}
        assert message["body"] == {"text": "later"}
        assert message["born_host"] == "10.1.2.3:4567"


@pytest.mark.parametrize(
    ("text", "delay_ms"),
    [
        ("TIMER_DELAY_MS\x015\x02", 5),
        ("TIMER_DELAY_SEC\x0105\x02", 5_000),
        ("DELAY\x015\x02", 60_000),
        ("TIMER_DELIVER_MS\x010\x02", None),
        ("TIMER_DELAY_MS\x010\x02", None),
        ("DELAY\x010\x02", None),
        ("", None),
    ],
)
@pytest.mark.parametrize("is_alone", [True, False])
async def test_each_way_to_request_a_time_counts(  # noqa: PLR0917 - fixtures and parameters
    client: httpx.AsyncClient,
    app: ServiceApp,
    clock: ManualClock,
    text: str,
    delay_ms: int | None,
    is_alone: bool,
) -> None:
    due = None if delay_ms is None else clock.now_ms() + delay_ms
    others = [] if is_alone else [delayed("TIMER_DELAY_MS\x0170000\x02", "other")]

    places = (await sent(client, *others, delayed(text)))["scheduled"]

    assert places["deliver_at_ms"][-1] == due
    assert places["queue_offsets"][-1] == (0 if due is None else None)
    log = broker_of(app).store.log
    for log_offset, message_id in zip(
        places["log_offsets"], ["id"] if is_alone else ["other", "id"], strict=True
    ):
        assert log.record(log_offset).property_map()["UNIQ_KEY"] == message_id
    clock.advance(60)
    await broker_of(app).timers.fire()
    [message] = await pull(client)
    assert (message["message_id"], message["properties"]) == ("id", {"a": "b"})


@pytest.mark.parametrize(
    ("text", "pointer"),
    [
        (f"TIMER_DELAY_MS\x01{40 * DAY_MS + 1}\x02", "TIMER_DELAY_MS"),
        ("TIMER_DELIVER_MS\x01253402300799999\x02", "TIMER_DELIVER_MS"),
        ("TIMER_DELIVER_MS\x019999999999999999999\x02", "TIMER_DELIVER_MS"),
        ("TIMER_DELIVER_MS\x01noon\x02", "TIMER_DELIVER_MS"),
        ("TIMER_DELAY_MS\x01-5\x02", "TIMER_DELAY_MS"),
        ("DELAY\x0119\x02", "DELAY"),
        ("DELAY\x011\x02TIMER_DELAY_MS\x015\x02", "TIMER_DELAY_MS"),
    ],
)
async def test_nonsense_is_refused_and_stores_nothing(
    client: httpx.AsyncClient, app: ServiceApp, text: str, pointer: str
) -> None:
    end = broker_of(app).store.log_max_offset

    answer = await send(client, delayed("TIMER_DELAY_MS\x015\x02"), delayed(text))

    assert answer.status_code == 422, answer.text
    assert [error["pointer"] for error in answer.json()["errors"]] == [
        f"/body/records/1/properties/{pointer}"
    ]
    assert broker_of(app).store.log_max_offset == end


async def test_one_invalid_record_refuses_the_batch(
    client: httpx.AsyncClient, app: ServiceApp
) -> None:
    end = broker_of(app).store.log_max_offset
    broken = delayed("TIMER_DELAY_MS\x015\x02").replace(b"later", b"Later")

    answer = await send(client, delayed("TIMER_DELAY_MS\x015\x02"), broken)

    assert answer.status_code == 400
    assert answer.json()["code"] == "malformed-records"
    assert "record 1: " in answer.json()["detail"]
    assert broker_of(app).store.log_max_offset == end


async def test_properties_without_room_to_wait_are_refused(client: httpx.AsyncClient) -> None:
    full = "p\x01" + "v" * (PROPERTIES_SIZE_MAX - 60) + "\x02TIMER_DELAY_MS\x015\x02"

    answer = await send(client, delayed(full))

    assert answer.status_code == 413, answer.text


async def test_it_has_no_idempotency_key(client: httpx.AsyncClient) -> None:
    answer = await send(client, delayed("TIMER_DELAY_MS\x015\x02"), **{"idempotency-key": "id"})

    assert answer.status_code == 422
    assert answer.json()["errors"][0]["pointer"] == "/header/idempotency-key"


async def test_a_topic_is_created_as_for_other_sends(client: httpx.AsyncClient) -> None:
    text = "TIMER_DELAY_MS\x015000\x02"
    new = record("new", b"later", queue_id=0, properties=f"UNIQ_KEY\x01id\x02{text}")
    body = batch([new], magic=DELAYED_BATCH_MAGIC)

    answer = await client.post("/topics/new/queues/0/records", content=body, headers=RECORDS)

    assert answer.status_code == 201, answer.text
    assert (await client.get("/topics/new")).status_code == 200
    assert await listed(client, topic="new") == ["id"]
