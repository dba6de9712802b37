"""Delayed messages: sent, delivered when it is time, listed, recalled."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from eruca.contract.errors import DiskFullError
from eruca.contract.limits import PROPERTIES_SIZE_MAX
from eruca.contract.recall_handles import (
    RecallHandle,
    decode_recall_handle,
    encode_recall_handle,
)
from eruca.contract.records import BLANK_SIZE_MIN, Host
from eruca_broker.core.batches.batch import batch_of_records
from eruca_broker.core.records.scheduled import Destination, Wait, waiting
from eruca_broker.core.state.events import TopicPut
from eruca_chassis.app import ServiceApp
from support.brokers import broker_of, client_of, open_broker, record, rot, rotten_count
from support.clocks import ManualClock
from support.waiting import turns_during, until

pytestmark = pytest.mark.anyio

HOST = Host.parse("127.0.0.1", 10_911)
SEGMENT_SIZE = 64 * 1024  # the smallest


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()  # 2023-11-14T22:13:20Z


@pytest.fixture
async def app(tmp_path: Path, clock: ManualClock) -> AsyncIterator[ServiceApp]:
    async with open_broker(tmp_path / "store", clock) as app:
        yield app


async def send(client: httpx.AsyncClient, **message: object) -> dict[str, Any]:
    answer = await client.post(
        "/topics/orders/messages",
        params={"queue_id": 1},
        json={"body": {"text": "later"}} | message,
    )
    assert answer.status_code == 201, answer.text
    receipt: dict[str, Any] = answer.json()
    return receipt


async def pull(client: httpx.AsyncClient, wait_seconds: float = 0) -> list[dict[str, Any]]:
    answer = await client.get(
        "/topics/orders/queues/1/messages", params={"offset": 0, "wait_seconds": wait_seconds}
    )
    assert answer.status_code == 200, answer.text
    messages: list[dict[str, Any]] = answer.json()["messages"]
    return messages


async def listed(client: httpx.AsyncClient, **query: str | int) -> list[str]:
    ids: list[str] = []
    while True:
        answer = await client.get("/scheduled", params=query)
        assert answer.status_code == 200, answer.text
        ids += [item["message_id"] for item in answer.json()["scheduled"]]
        if (cursor := answer.json()["next_cursor"]) is None:
            return ids
        query["cursor"] = cursor


async def nothing_waits(app: ServiceApp) -> None:
    """Return once everything that is due has been delivered, by the broker's own loop or here."""
    timers = broker_of(app).store.timers
    while await broker_of(app).timers.fire():
        pass
    await until(lambda: not len(timers) + timers.held_count)


def now_of(clock: ManualClock) -> datetime:
    return datetime.fromtimestamp(clock.now_ms() / 1_000, UTC)


def moment(text: str) -> datetime:
    return datetime.fromisoformat(text)


@pytest.mark.parametrize("way", ["delay_seconds", "deliver_at"])
async def test_a_delayed_message_comes_when_it_is_time_and_as_it_was_sent(
    client: httpx.AsyncClient, clock: ManualClock, way: str
) -> None:
    """Delivered by the broker's own loop."""
    due = now_of(clock) + timedelta(seconds=0.15)
    delay = 0.15 if way == "delay_seconds" else due.isoformat()
    receipt = await send(client, tag="x", keys=["k"], properties={"a": "b"}, flag=3, **{way: delay})
    assert await pull(client) == []

    clock.advance(0.15)
    [message] = await pull(client, wait_seconds=20)

    assert receipt["queue_offset"] is None
    assert (receipt["topic"], receipt["queue_id"]) == ("orders", 1)
    assert moment(message["stored_at"]) == moment(receipt["deliver_at"]) == due
    assert message["message_id"] == receipt["message_id"]
    assert (message["queue_offset"], message["topic"]) == (0, "orders")
    assert (message["tag"], message["keys"], message["flag"]) == ("x", ["k"], 3)
    assert message["properties"] == {"a": "b"}
    assert message["body"] == {"text": "later"}
    assert message["born_host"] == "10.1.2.3:4567"
    assert (await pull(client)) == [message]


async def test_a_delay_level_is_worth_what_it_is_in_rocketmq(client: httpx.AsyncClient) -> None:
    minutes = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 20, 30, 60, 120)
    for level, seconds in enumerate((1, 5, 10, 30, *(60 * n for n in minutes)), 1):
        receipt = await send(client, delay_level=level)
        delay = moment(receipt["deliver_at"]) - moment(receipt["stored_at"])
        assert delay == timedelta(seconds=seconds)


@pytest.mark.parametrize(
    "delay",
    [
        {"delay_level": 3},
        {"delay_seconds": 10},
        {"delay_seconds": 9.9991},  # the first millisecond that is not too early
        {"deliver_at": "2023-11-14T22:13:30Z"},
        {"deliver_at": "2023-11-14T23:13:30.000+01:00"},
        {"deliver_at": "2023-11-14T22:13:29.9991Z"},
    ],
)
async def test_a_message_comes_in_its_very_millisecond(
    client: httpx.AsyncClient, app: ServiceApp, clock: ManualClock, delay: dict[str, Any]
) -> None:
    receipt = await send(client, **delay)
    assert receipt["deliver_at"] == "2023-11-14T22:13:30.000Z"

    clock.advance(9.999)
    await broker_of(app).timers.fire()
    assert await pull(client) == []
    clock.advance(0.001)
    await broker_of(app).timers.fire()

    [message] = await pull(client, wait_seconds=5)
    assert message["stored_at"] == "2023-11-14T22:13:30.000Z"


@pytest.mark.parametrize("delay", [{"delay_level": 1}, {"delay_seconds": 1}])
async def test_after_a_clock_was_set_back_a_delay_is_as_long_as_ever(
    client: httpx.AsyncClient, app: ServiceApp, clock: ManualClock, delay: dict[str, int]
) -> None:
    await send(client)
    clock.advance(-3_600)
    receipt = await send(client, **delay)
    assert moment(receipt["deliver_at"]) == now_of(clock) + timedelta(seconds=1)

    clock.advance(0.999)
    assert not await broker_of(app).timers.fire()
    clock.advance(0.001)
    await nothing_waits(app)

    assert len(await pull(client)) == 2


async def test_a_clock_that_steps_neither_loses_nor_doubles_across_restarts(
    tmp_path: Path, clock: ManualClock
) -> None:
    texts: list[str] = []
    for step in (-7_200, 7_260, -60, 86_400):  # seconds, each while the broker is down
        async with open_broker(tmp_path / "steps", clock) as app, client_of(app) as client:
            await send(client, delay_seconds=3_600, body={"text": f"before {step}"})
            await send(client, delay_seconds=0.001, body={"text": f"soon {step}"})
        clock.advance(step)
    clock.advance(7_200)
    async with open_broker(tmp_path / "steps", clock) as app, client_of(app) as client:
        while await broker_of(app).timers.fire():
            pass
        texts = [message["body"]["text"] for message in await pull(client)]
        assert await listed(client) == []

    steps = (-7_200, 7_260, -60, 86_400)
    assert sorted(texts) == sorted(
        f"{what} {step}" for what in ("before", "soon") for step in steps
    )


async def test_a_time_that_has_passed_delays_nothing(client: httpx.AsyncClient) -> None:
    first = await send(client, deliver_at="2020-01-01T00:00:00Z")
    second = await send(client, delay_seconds=0)

    assert [first["queue_offset"], second["queue_offset"]] == [0, 1]
    assert first["deliver_at"] is None
    assert len(await pull(client)) == 2


async def test_a_batch_may_hold_messages_of_every_kind(client: httpx.AsyncClient) -> None:
    answer = await client.post(
        "/topics/orders/messages",
        params={"queue_id": 1},
        json={
            "messages": [
                {"body": {"text": "0"}, "delay_seconds": 60},
                {"body": {"text": "1"}},
                {"body": {"text": "2"}, "delay_level": 9},
                {"body": {"text": "3"}},
                {"body": {"text": "4"}, "delay_level": 9},
            ]
        },
    )

    receipts = answer.json()["messages"]
    assert answer.status_code == 201
    assert [receipt["queue_offset"] for receipt in receipts] == [None, 0, None, 1, None]
    assert [message["body"]["text"] for message in await pull(client)] == ["1", "3"]
    for index, receipt in enumerate(receipts):
        record = await client.get(f"/log/records/{receipt['log_offset']}")
        assert record.json()["message"]["body"] == {"text": str(index)}
        assert record.json()["message"]["message_id"] == receipt["message_id"]
    assert await listed(client) == [receipts[i]["message_id"] for i in (0, 2, 4)]


async def test_what_waits_is_listed_as_it_comes_due_in_pages(client: httpx.AsyncClient) -> None:
    delays = [300, 20, 100_000, 40, 20, 7_200]
    ids = [(await send(client, delay_seconds=delay))["message_id"] for delay in delays]
    by_time = [ids[index] for index in (1, 4, 3, 0, 5, 2)]

    assert await listed(client) == by_time
    assert await listed(client, limit=2) == by_time
    assert await listed(client, limit=6) == by_time
    assert await listed(client, topic="orders") == by_time
    assert await listed(client, topic="others") == []


async def test_others_have_their_turn_while_a_page_looks_at_many(
    client: httpx.AsyncClient, app: ServiceApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(6):
        await send(client, delay_seconds=60 + number)
    monkeypatch.setattr("eruca_broker.processors.pacing.TURN_SECONDS", 0)
    monkeypatch.setattr("eruca_broker.processors.scheduled._LOOKED_AT_ONCE", 2)

    scheduled = broker_of(app).scheduled
    (page, following), turns = await turns_during(
        scheduled.page(topic="others", limit=1, after=None)
    )

    assert (page.scheduled, following) == ([], None)
    assert turns >= 3


async def test_a_recalled_message_never_comes(
    client: httpx.AsyncClient, app: ServiceApp, clock: ManualClock
) -> None:
    recalled = await send(client, delay_seconds=0.3)
    kept = await send(client, delay_seconds=0.3)

    answers = [await client.delete(f"/scheduled/{recalled['recall_handle']}") for _ in range(2)]

    assert [answer.status_code for answer in answers] == [204, 204]
    clock.advance(0.3)
    await nothing_waits(app)
    [message] = await pull(client)
    assert message["message_id"] == kept["message_id"]
    again = await client.delete(f"/scheduled/{recalled['recall_handle']}")
    assert again.status_code == 204


async def wait_under_one_id(client: httpx.AsyncClient, **message: object) -> list[str]:
    """Let a message wait in each of two topics under one idempotency key; return the handles."""
    handles = []
    for topic in ("orders", "bills"):
        answer = await client.post(
            f"/topics/{topic}/messages",
            headers={"Idempotency-Key": "order-17"},
            json={"body": {"text": topic}} | message,
        )
        assert answer.status_code == 201, answer.text
        assert "idempotent-replayed" not in answer.headers  # a key is scoped by its topic
        assert answer.json()["message_id"] == "order-17"
        handles.append(answer.json()["recall_handle"])
    return handles


async def bodies(client: httpx.AsyncClient, topic: str) -> list[str]:
    found: list[str] = []
    for queue_id in range(8):
        answer = await client.get(
            f"/topics/{topic}/queues/{queue_id}/messages", params={"offset": 0}
        )
        if answer.is_success:
            found += [message["body"]["text"] for message in answer.json()["messages"]]
    return found


@pytest.mark.parametrize("delay", [{"delay_seconds": 5}, {"delay_level": 2}])
async def test_a_recall_touches_no_message_of_the_same_id_in_another_topic(
    client: httpx.AsyncClient, app: ServiceApp, clock: ManualClock, delay: dict[str, int]
) -> None:
    _, of_bills = await wait_under_one_id(client, **delay)

    answer = await client.delete(f"/scheduled/{of_bills}")
    clock.advance(5)
    await nothing_waits(app)

    assert answer.status_code == 204, answer.text
    assert (await bodies(client, "orders"), await bodies(client, "bills")) == (["orders"], [])
    again = await client.delete(f"/scheduled/{of_bills}")
    assert again.status_code == 204  # what was delivered under the id was another message


async def test_a_bare_id_recalls_nothing_and_is_told_what_it_may_mean(
    client: httpx.AsyncClient, app: ServiceApp
) -> None:
    handles = await wait_under_one_id(client, delay_seconds=5)

    both = await client.delete("/scheduled/order-17")
    await client.delete(f"/scheduled/{handles[0]}")
    one = await client.delete("/scheduled/order-17")

    assert [both.status_code, one.status_code] == [422, 422]
    for answer, named in ((both, handles), (one, handles[1:])):
        assert answer.json()["code"] == "validation-failed"
        errors = [error["detail"] for error in answer.json()["errors"]]
        assert sorted(handle for handle in handles if handle in " ".join(errors)) == sorted(named)
        assert {error["pointer"] for error in answer.json()["errors"]} == {"/path/recall_handle"}
    assert len(broker_of(app).store.timers) == 1


@pytest.mark.parametrize("is_carried", [False, True], ids=["in their place", "carried forward"])
async def test_a_handle_recalls_one_of_two_messages_of_one_topic_and_id(
    client: httpx.AsyncClient, app: ServiceApp, clock: ManualClock, *, is_carried: bool
) -> None:
    soon = await send(client, message_id="order-17", delay_level=2, body={"text": "soon"})
    late = await send(client, message_id="order-17", delay_seconds=9, body={"text": "late"})
    if is_carried:
        await broker_of(app).timers.carry_forward(broker_of(app).store.log_max_offset)

    clock.advance(5)
    await until(lambda: broker_of(app).timers.counts.fired == 1)
    recalled = [await client.delete(f"/scheduled/{late['recall_handle']}") for _ in range(2)]
    too_late = await client.delete(f"/scheduled/{soon['recall_handle']}")
    clock.advance(5)
    await nothing_waits(app)

    assert [answer.status_code for answer in recalled] == [204, 204]
    assert (too_late.status_code, too_late.json()["code"]) == (409, "already-delivered")
    assert await bodies(client, "orders") == ["soon"]


async def test_another_brokers_handle_is_refused_and_names_that_broker(
    client: httpx.AsyncClient, app: ServiceApp
) -> None:
    receipt = await send(client, delay_seconds=5)
    own = decode_recall_handle(receipt["recall_handle"])
    foreign = encode_recall_handle(own._replace(broker_name="broker-z"))

    answer = await client.delete(f"/scheduled/{foreign}")

    assert answer.status_code == 422
    assert "broker-z" in answer.json()["fix"]
    assert len(broker_of(app).store.timers) == 1


async def test_the_receipt_its_repetition_and_the_list_have_one_handle(
    client: httpx.AsyncClient,
) -> None:
    handles = await wait_under_one_id(client, delay_seconds=60)
    repeated = await client.post(
        "/topics/orders/messages",
        headers={"Idempotency-Key": "order-17"},
        json={"body": {"text": "orders"}, "delay_seconds": 60},
    )
    listed_ones = (await client.get("/scheduled")).json()["scheduled"]
    at_once = await send(client)

    assert repeated.headers["idempotent-replayed"] == "true"
    assert repeated.json()["recall_handle"] == handles[0]
    assert {item["recall_handle"] for item in listed_ones} == set(handles)
    assert at_once["recall_handle"] is None


@pytest.mark.parametrize("message_id", ["order/17", "/", "a?b=c&d#e"])
async def test_an_id_of_a_clients_own_is_recalled_whatever_it_holds(
    client: httpx.AsyncClient, message_id: str
) -> None:
    receipt = await send(client, message_id=message_id, delay_seconds=1_000)

    bare = await client.delete(f"/scheduled/{quote(message_id, safe='')}")
    answer = await client.delete(f"/scheduled/{receipt['recall_handle']}")

    assert (bare.status_code, "errors" in bare.json()) == (422, True), bare.text
    assert answer.status_code == 204, answer.text
    assert await listed(client) == []


async def test_a_message_that_is_being_delivered_cannot_be_recalled(
    client: httpx.AsyncClient, app: ServiceApp
) -> None:
    receipt = await send(client, delay_seconds=1_000)
    timers = broker_of(app).store.timers
    held = timers.take(list(timers.following(None)))  # as whoever fires them holds them

    answer = await client.delete(f"/scheduled/{receipt['recall_handle']}")

    assert (answer.status_code, answer.json()["code"]) == (409, "already-delivered")
    timers.give_back(held)


async def test_a_delivered_message_cannot_be_recalled(
    client: httpx.AsyncClient, app: ServiceApp, clock: ManualClock
) -> None:
    receipt = await send(client, delay_seconds=0.01)
    clock.advance(0.01)
    await nothing_waits(app)

    answer = await client.delete(f"/scheduled/{receipt['recall_handle']}")

    assert (answer.status_code, answer.json()["code"]) == (409, "already-delivered")


async def test_others_that_have_its_id_among_their_keys_keep_no_message_from_being_recalled(
    client: httpx.AsyncClient, app: ServiceApp
) -> None:
    receipt = await send(client, message_id="order-17", delay_seconds=1_000)
    for _ in range(65):
        await send(client, keys=["order-17"], delay_seconds=2_000)
    await send(client, keys=["order-17"])

    answers = [await client.delete(f"/scheduled/{receipt['recall_handle']}") for _ in range(2)]

    assert [answer.status_code for answer in answers] == [204, 204], answers[-1].text
    assert len(broker_of(app).store.timers) == 65


async def test_whether_a_message_waits_is_not_guessed_where_too_many_have_its_id_as_a_key(
    client: httpx.AsyncClient, app: ServiceApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("eruca_broker.processors.scheduled.WITH_KEY_MAX", 3)
    first = await send(client, message_id="order-17", delay_seconds=1_000)
    for _ in range(3):
        await send(client, keys=["order-17"], delay_seconds=2_000)

    hidden = await client.delete(f"/scheduled/{first['recall_handle']}")
    second = await send(client, message_id="order-17", delay_seconds=1_000)
    found = await client.delete(f"/scheduled/{second['recall_handle']}")

    assert (hidden.status_code, hidden.json()["code"]) == (422, "validation-failed")
    assert "3 messages have 'order-17' among their keys" in hidden.text
    assert (found.status_code, len(broker_of(app).store.timers)) == (204, 4)


async def test_what_was_delivered_is_not_recalled_because_its_topic_was_made_anew(
    client: httpx.AsyncClient, app: ServiceApp, clock: ManualClock
) -> None:
    receipt = await send(client, delay_seconds=0.01)
    clock.advance(0.01)
    await nothing_waits(app)
    assert len(await pull(client)) == 1
    assert (await client.delete("/topics/orders")).is_success
    await send(client)  # makes the topic anew

    answer = await client.delete(f"/scheduled/{receipt['recall_handle']}")

    assert (answer.status_code, answer.json()["code"]) == (409, "already-delivered")


async def test_of_a_message_that_has_rotted_nobody_says_that_it_is_recalled_or_unknown(
    client: httpx.AsyncClient, app: ServiceApp
) -> None:
    waiting_one = await send(client, body={"text": "waits"}, delay_seconds=10)
    rot(app, b"waits")

    refused = await client.delete(f"/scheduled/{waiting_one['recall_handle']}")

    assert (refused.status_code, refused.json()["code"]) == (503, "unavailable")
    assert "is damaged" in refused.json()["detail"]
    assert len(broker_of(app).store.timers) == 1


@pytest.mark.parametrize("message_id", ["never-sent", "%00", "a%2Fb", "x" * 255])
async def test_nobody_recalls_what_was_not_delayed(
    client: httpx.AsyncClient, message_id: str
) -> None:
    sent = await send(client)
    other = encode_recall_handle(RecallHandle("orders", sent["broker_name"], 1, "never-sent"))
    for unknown in (message_id, sent["message_id"], other):
        answer = await client.delete(f"/scheduled/{unknown}")
        assert answer.status_code == 404, answer.text
        assert answer.json()["code"] in ("scheduled-not-found", "not-found")


async def test_what_waits_survives_a_restart_and_comes_once(
    tmp_path: Path, clock: ManualClock
) -> None:
    async with open_broker(tmp_path / "again", clock) as app, client_of(app) as client:
        await send(client, delay_seconds=0.2)
        recalled = await send(client, delay_seconds=0.2)
        late = await send(client, delay_seconds=1_000)
        await client.delete(f"/scheduled/{recalled['recall_handle']}")
    clock.advance(0.2)

    async with open_broker(tmp_path / "again", clock) as app, client_of(app) as client:
        assert len(await pull(client, wait_seconds=5)) == 1
        assert await listed(client) == [late["message_id"]]

    async with open_broker(tmp_path / "again", clock) as app, client_of(app) as client:
        assert len(await pull(client)) == 1
        assert await listed(client) == [late["message_id"]]


async def test_what_waits_for_a_deleted_topic_is_dropped(
    client: httpx.AsyncClient, app: ServiceApp, clock: ManualClock
) -> None:
    await send(client, delay_seconds=0.1)
    await client.delete("/topics/orders")
    receipt = await client.post(
        "/topics/others/messages",
        params={"queue_id": 1},
        json={"body": {"text": "behind"}, "delay_seconds": 0.15},
    )
    assert receipt.status_code == 201

    clock.advance(0.15)
    await nothing_waits(app)

    pulled = await client.get("/topics/others/queues/1/messages", params={"offset": 0})
    assert len(pulled.json()["messages"]) == 1
    await until(lambda: broker_of(app).timers.counts.dropped == 1)
    assert (await client.get("/topics/orders")).status_code == 404


@pytest.mark.parametrize("is_carried", [False, True], ids=["in its place", "carried forward"])
async def test_what_waits_for_a_deleted_topic_does_not_come_to_a_later_one_of_its_name(
    client: httpx.AsyncClient, app: ServiceApp, clock: ManualClock, *, is_carried: bool
) -> None:
    await send(client, delay_seconds=1)
    await client.delete("/topics/orders")
    await client.put("/topics/orders", json={"read_queue_count": 2, "write_queue_count": 2})
    if is_carried:
        broker = broker_of(app)
        await broker.timers.carry_forward(broker.store.log_max_offset)

    expected = await send(client, delay_seconds=1.1)
    clock.advance(1.1)
    await nothing_waits(app)

    messages = await pull(client)
    assert [message["message_id"] for message in messages] == [expected["message_id"]]
    await until(lambda: broker_of(app).timers.counts.dropped == 1)


async def test_a_queue_that_is_gone_is_not_delivered_to(
    client: httpx.AsyncClient, app: ServiceApp, clock: ManualClock
) -> None:
    await client.put("/topics/orders", json={"read_queue_count": 4, "write_queue_count": 4})
    answer = await client.post(
        "/topics/orders/messages",
        params={"queue_id": 3},
        json={"body": {"text": "later"}, "delay_seconds": 0.1},
    )
    assert answer.status_code == 201
    await client.put("/topics/orders", json={"read_queue_count": 2, "write_queue_count": 2})

    clock.advance(0.1)
    await nothing_waits(app)

    [message] = await pull(client)
    assert message["queue_id"] == 1


async def test_where_messages_wait_nobody_reads_or_sends(client: httpx.AsyncClient) -> None:
    await send(client, delay_level=18)
    for topic in ("SCHEDULE_TOPIC_XXXX", "rmq_sys_wheel_timer"):
        pulled = await client.get(f"/topics/{topic}/queues/0/messages", params={"offset": 0})
        sent = await client.post(f"/topics/{topic}/messages", json={"body": {"text": "x"}})
        assert pulled.status_code == 404
        assert (sent.status_code, sent.json()["code"]) == (403, "system-topic-protected")


@pytest.mark.parametrize(
    ("fields", "pointer"),
    [
        ({"delay_seconds": -1}, "/body/delay_seconds"),
        ({"delay_seconds": 40 * 86_400 + 1}, "/body/delay_seconds"),
        ({"delay_seconds": "soon"}, "/body/delay_seconds"),
        ({"delay_seconds": True}, "/body/delay_seconds"),
        ({"delay_level": 0}, "/body/delay_level"),
        ({"delay_level": 19}, "/body/delay_level"),
        ({"delay_level": 1.5}, "/body/delay_level"),
        ({"deliver_at": "tomorrow"}, "/body/deliver_at"),
        ({"deliver_at": "2026-11-21T08:00:00"}, "/body/deliver_at"),
        ({"deliver_at": 1_795_248_000}, "/body/deliver_at"),
        ({"deliver_at": "9999-12-31T23:59:59Z"}, "/body/deliver_at"),
        ({"delay_seconds": 1, "delay_level": 1}, "/body/delay_level"),
        ({"deliver_at": "2020-01-01T00:00:00Z", "delay_seconds": 1}, "/body/delay_seconds"),
    ],
)
async def test_nonsense_is_refused_and_stores_nothing(
    client: httpx.AsyncClient, app: ServiceApp, fields: dict[str, Any], pointer: str
) -> None:
    end = broker_of(app).store.log_max_offset

    answer = await client.post("/topics/orders/messages", json={"body": {"text": "x"}} | fields)

    assert answer.status_code == 422, answer.text
    assert [error["pointer"] for error in answer.json()["errors"]] == [pointer]
    assert broker_of(app).store.log_max_offset == end


async def test_forty_days_are_the_most_and_the_limit_is_named(
    client: httpx.AsyncClient, clock: ManualClock
) -> None:
    await send(client, delay_seconds=40 * 86_400)
    late = (now_of(clock) + timedelta(days=40, milliseconds=1)).isoformat()
    for field, value in (("delay_seconds", 40 * 86_400 + 0.001), ("deliver_at", late)):
        answer = await client.post(
            "/topics/orders/messages", json={"body": {"text": "x"}, field: value}
        )

        assert answer.status_code == 422, answer.text
        assert "delay_seconds_max of this broker is 3456000" in answer.json()["detail"]


@pytest.mark.parametrize("cursor", ["", "x", "MQ", "MS4", "Li4u", "MS4yLjM", "é"])
async def test_a_cursor_of_no_list_is_refused(client: httpx.AsyncClient, cursor: str) -> None:
    answer = await client.get("/scheduled", params={"cursor": cursor})

    assert answer.status_code == 422, answer.text


async def test_delays_have_limits_with_names(tmp_path: Path) -> None:
    async with (
        open_broker(tmp_path / "limited", delay_seconds_max=60, timers_max=2) as app,
        client_of(app) as client,
    ):
        long = await client.post(
            "/topics/orders/messages", json={"body": {"text": "x"}, "delay_level": 6}
        )
        assert (long.status_code, "delay_seconds_max" in long.json()["detail"]) == (422, True)
        for seconds in (60.001, 40 * 86_400 + 1, 1e300):
            long = await client.post(
                "/topics/orders/messages", json={"body": {"text": "x"}, "delay_seconds": seconds}
            )
            assert (long.status_code, "delay_seconds_max" in long.json()["detail"]) == (422, True)
        for _ in range(2):
            await send(client, delay_seconds=50)

        refused = await client.post(
            "/topics/orders/messages", json={"body": {"text": "x"}, "delay_seconds": 50}
        )

        assert (refused.status_code, refused.json()["code"]) == (429, "overloaded")
        assert "timers_max" in refused.json()["detail"]
        assert refused.headers["retry-after"]
        assert (await send(client))["queue_offset"] == 0  # what does not wait is not concerned


async def test_properties_that_leave_no_room_for_a_delay_are_refused(
    client: httpx.AsyncClient,
) -> None:
    message = {"body": {"text": "x"}, "properties": {"a": "b" * 32_680}}
    at_once = await client.post("/topics/orders/messages", json=message)
    later = await client.post("/topics/orders/messages", json=message | {"delay_seconds": 9})

    assert at_once.status_code == 201, at_once.text
    assert (later.status_code, later.json()["code"]) == (413, "too-large")


async def test_the_most_properties_that_may_wait_at_a_level_can_be_carried_forward(
    client: httpx.AsyncClient, app: ServiceApp, clock: ManualClock
) -> None:
    async def status_of(size: int) -> int:
        message = {"body": {"text": "x"}, "properties": {"a": "b" * size}, "delay_level": 1}
        answer = await client.post("/topics/orders/messages?queue_id=1", json=message)
        return answer.status_code

    accepted, refused = 32_000, PROPERTIES_SIZE_MAX
    while refused - accepted > 1:
        size = (accepted + refused) // 2
        if await status_of(size) == 201:
            accepted = size
        else:
            refused = size
    broker = broker_of(app)
    expected = len(await listed(client))

    await broker.timers.carry_forward(broker.store.log_max_offset)
    clock.advance(1)
    await nothing_waits(app)

    assert (broker.timers.counts.fired, broker.timers.counts.dropped) == (expected, 0)
    assert broker.store.queues.range("orders", 1) == (0, expected)


async def test_messages_that_no_segment_holds_together_are_delivered_one_after_the_other(
    tmp_path: Path, clock: ManualClock
) -> None:
    settings = {"segment_bytes": SEGMENT_SIZE}
    sizes = (10_000, 60_000, 10, 60_000)
    async with open_broker(tmp_path / "small", clock, **settings) as app, client_of(app) as client:
        for size in sizes:
            await send(client, body={"text": "x" * size}, delay_seconds=5)

        clock.advance(5)
        await nothing_waits(app)

        answer = await client.get("/topics/orders/queues/1/messages", params={"offset": 0})
        found = [len(message["body"]["text"]) for message in answer.json()["messages"]]
        assert found == list(sizes)


@pytest.mark.parametrize("is_carried", [False, True])
async def test_the_largest_message_that_may_wait_can_be_delivered(
    tmp_path: Path, clock: ManualClock, is_carried: bool
) -> None:
    settings = {"segment_bytes": SEGMENT_SIZE}
    async with open_broker(tmp_path / "small", clock, **settings) as app, client_of(app) as client:

        async def status_of(size: int) -> int:
            answer = await client.post(
                "/topics/orders/messages?queue_id=1",
                json={"body": {"text": "x" * size}, "delay_level": 1},
            )
            return answer.status_code

        accepted, refused = 60_000, SEGMENT_SIZE
        while refused - accepted > 1:
            size = (accepted + refused) // 2
            if await status_of(size) == 201:
                accepted = size
            else:
                assert await status_of(size) == 413
                refused = size
        await send(client, delay_level=1)
        if is_carried:
            await broker_of(app).timers.carry_forward(broker_of(app).store.log_max_offset)

        clock.advance(1)
        await nothing_waits(app)

        assert await listed(client) == []
        assert broker_of(app).timers.counts.dropped == 0
        found = broker_of(app).store.queues.range("orders", 1)[1]
        assert found == broker_of(app).timers.counts.fired > 1


async def test_what_is_too_large_to_be_delivered_stops_nothing_behind_it(
    tmp_path: Path, clock: ManualClock
) -> None:
    settings = {"segment_bytes": SEGMENT_SIZE}
    async with open_broker(tmp_path / "small", clock, **settings) as app, client_of(app) as client:
        await send(client)
        wait, place = Wait(deliver_at_ms=clock.now_ms() + 1_000), Destination("orders", 1)
        room = SEGMENT_SIZE - BLANK_SIZE_MIN - len(waiting(record("orders", b""), wait, place))
        large = waiting(record("orders", b"x" * room), wait, place)
        await broker_of(app).store.append(batch_of_records(*wait.place, [large]), HOST)
        await send(client, delay_seconds=1)

        clock.advance(1)
        await nothing_waits(app)

        assert [message["queue_offset"] for message in await pull(client)] == [0, 1]
        await until(lambda: broker_of(app).timers.counts.dropped == 1)


async def test_a_message_that_has_rotted_while_it_waited_holds_up_none_and_is_not_spread(
    tmp_path: Path,
) -> None:
    clock = ManualClock()
    async with open_broker(tmp_path, clock) as app, client_of(app) as client:
        await send(client, body={"text": "rotten one"}, delay_seconds=10)
        await send(client, body={"text": "sound one"}, delay_seconds=10)
        rot(app, b"rotten one")
        shown = (await client.get("/scheduled")).json()
        clock.advance(10)
        counts = broker_of(app).timers.counts
        await until(lambda: counts.dropped == 1)

        assert [message["body"]["text"] for message in await pull(client)] == ["sound one"]
        assert (len(shown["scheduled"]), len(shown["damaged"])) == (1, 1)
        assert "is damaged" in shown["damaged"][0]["reason"]
        assert (counts.fired, counts.dropped, rotten_count(app)) == (1, 1, 1)


async def test_a_message_is_dropped_once_that_is_in_the_log_and_not_with_each_attempt(
    client: httpx.AsyncClient, app: ServiceApp, clock: ManualClock
) -> None:
    broker = broker_of(app)
    await send(client, delay_seconds=10)
    await client.delete("/topics/orders")
    broker.store.refusal = DiskFullError("the disk is 91% full")
    clock.advance(10)
    for _ in range(3):
        with pytest.raises(DiskFullError):
            await broker.timers.fire()
    assert broker.timers.counts.dropped == 0

    broker.store.refusal = None
    await broker.timers.fire()

    await until(lambda: broker.timers.counts.dropped == 1)
    assert (broker.timers.counts.fired, len(broker.store.timers)) == (0, 0)


async def test_a_topic_with_no_queues_to_write_to_takes_what_was_accepted_and_stops_no_other(
    app: ServiceApp, clock: ManualClock
) -> None:
    """RocketMQ's operators set a topic so that is to run dry; an imported one may be."""
    async with client_of(app) as client:
        await send(client, delay_seconds=5)
        await client.put("/topics/other", json={"write_queue_count": 1, "read_queue_count": 1})
        answer = await client.post(
            "/topics/other/messages", json={"body": {"text": "x"}, "delay_seconds": 6}
        )
        assert answer.status_code == 201, answer.text
        await broker_of(app).store.change(TopicPut("orders", 2, 0, "rw"))

        clock.advance(6)
        await nothing_waits(app)

        assert [message["queue_offset"] for message in await pull(client)] == [0]
        assert broker_of(app).store.queues.range("other", 0)[1] == 1
        refused = await client.post("/topics/orders/messages", json={"body": {"text": "new"}})
        assert (refused.status_code, refused.json()["code"]) == (403, "permission-denied")
