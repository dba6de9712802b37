"""Delayed messages that are recalled."""

from __future__ import annotations

from urllib.parse import quote

import httpx
import pytest

from eruca.contract.recall_handles import RecallHandle, decode_recall_handle, encode_recall_handle
from eruca_chassis.app import ServiceApp
from support.brokers import broker_of, rot
from support.clocks import ManualClock
from support.scheduled_calls import listed, nothing_waits, pull, send
from support.waiting import until

pytestmark = pytest.mark.anyio


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
    held = timers.take(list(timers.following(None)))  # as the loop that fires them holds them

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


async def test_what_was_delivered_is_not_recalled_because_its_topic_was_created_again(
    client: httpx.AsyncClient, app: ServiceApp, clock: ManualClock
) -> None:
    receipt = await send(client, delay_seconds=0.01)
    clock.advance(0.01)
    await nothing_waits(app)
    assert len(await pull(client)) == 1
    assert (await client.delete("/topics/orders")).is_success
    await send(client)  # creates the topic again

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
