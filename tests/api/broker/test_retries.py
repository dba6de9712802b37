"""Sending back: a message that could not be consumed is redelivered, or becomes a dead letter."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest

from eruca_chassis.app import ServiceApp
from support.brokers import broker_of, rot, rot_beyond_reading
from support.clocks import WrongClock
from support.members import HoldingMember, joined

pytestmark = pytest.mark.anyio

GROUP = "billing"
RETRY = f"%25RETRY%25{GROUP}"
DEAD = f"%25DLQ%25{GROUP}"


@pytest.fixture
async def member(client: httpx.AsyncClient) -> HoldingMember:
    await client.put("/topics/orders", json={"read_queue_count": 2, "write_queue_count": 2})
    for number in range(4):
        sent = await client.post(
            "/topics/orders/messages",
            params={"queue_id": 0},
            json={
                "body": {"text": f"order {number}"},
                "tag": "x",
                "keys": [f"k{number}"],
                "properties": {"a": "b"},
            },
        )
        assert sent.status_code == 201
    member = await joined(client, GROUP, "orders")
    await member.lock("orders", 0)
    return member


def place(offset: int, **more: object) -> dict[str, Any]:
    return {"topic": "orders", "queue_id": 0, "queue_offset": offset} | more


async def pull(client: httpx.AsyncClient, topic: str, *, offset: int = 0) -> dict[str, Any]:
    answer = await client.get(
        f"/topics/{topic}/queues/0/messages", params={"offset": offset, "wait_seconds": 5}
    )
    assert answer.status_code == 200, answer.text
    [message, *_] = answer.json()["messages"]
    found: dict[str, Any] = message
    return found


async def settings(client: httpx.AsyncClient, **some: object) -> None:
    answer = await client.put(f"/groups/{GROUP}", json=some)
    assert answer.status_code == 200, answer.text


async def delays(member: HoldingMember, message: dict[str, Any]) -> float | None:
    """Send a message back, and return how long it waits; None for a dead letter."""
    answer = await member.send_back(message)
    assert answer.status_code == 200, answer.text
    [result] = answer.json()["results"]
    if result["deliver_at"] is None:
        assert result["outcome"] == "dead_letter"
        return None
    listed = (await member.client.get("/scheduled")).json()["scheduled"]
    [stored_at] = [x["stored_at"] for x in listed if x["deliver_at"] == result["deliver_at"]]
    due = datetime.fromisoformat(result["deliver_at"])
    return (due - datetime.fromisoformat(stored_at)) / timedelta(seconds=1)


async def test_a_message_is_redelivered_through_the_groups_retry_topic(
    client: httpx.AsyncClient, member: HoldingMember
) -> None:
    answer = await member.send_back(place(1, delay_seconds=0.05))

    assert answer.status_code == 200, answer.text
    [result] = answer.json()["results"]
    assert (result["outcome"], result["reconsume_times"]) == ("retry", 1)
    retry = await pull(client, RETRY)
    first = await pull(client, "orders", offset=1)
    assert retry["topic"] == f"%RETRY%{GROUP}"
    assert retry["reconsume_times"] == 1
    kept = ("message_id", "body", "tag", "keys", "properties", "born_at", "born_host", "flag")
    assert {name: retry[name] for name in kept} == {name: first[name] for name in kept}
    record = await client.get(f"/log/records/{retry['log_offset']}")
    system = record.json()["system_properties"]
    assert system["RETRY_TOPIC"] == "orders"
    assert system["ORIGIN_MESSAGE_ID"] == first["offset_message_id"]
    assert (system["ERUCA_ORIGIN_QID"], system["ERUCA_ORIGIN_OFFSET"]) == ("0", "1")
    assert not system.keys() & {"DELAY", "REAL_TOPIC", "REAL_QID", "TIMER_OUT_MS"}


@pytest.mark.parametrize("start", ["latest", "earliest", "2999-01-01T00:00:00Z"])
async def test_a_retry_that_comes_before_anybody_reads_the_retry_topic_is_read(
    client: httpx.AsyncClient, app: ServiceApp, member: HoldingMember, start: str
) -> None:
    await settings(client, start=start)
    answer = await member.send_back(place(0, delay_seconds=0))
    assert answer.status_code == 200, answer.text
    await broker_of(app).timers.fire()
    await pull(client, RETRY)

    await member.lock(f"%RETRY%{GROUP}", 0)

    path = f"/groups/{GROUP}/offsets?topic={RETRY}"
    [queue] = (await client.get(path)).json()["offsets"]
    assert (queue["started"]["offset"], queue["lag"]) == (0, 1)


async def test_a_retry_that_fails_again_remembers_where_it_began(
    client: httpx.AsyncClient, member: HoldingMember
) -> None:
    await member.send_back(place(2, delay_seconds=0))
    await pull(client, RETRY)
    await member.lock(f"%RETRY%{GROUP}", 0)
    again = {"topic": f"%RETRY%{GROUP}", "queue_id": 0, "queue_offset": 0}

    answer = await member.send_back(again | {"delay_seconds": 0})
    dead = await member.send_back(again | {"delay_level": -1, "error": "no use"})

    assert answer.json()["results"][0]["reconsume_times"] == 2
    assert dead.json()["results"] == [
        {"outcome": "dead_letter", "reconsume_times": 2, "deliver_at": None}
    ]
    second = await pull(client, RETRY, offset=1)
    letters = (await client.get(f"/groups/{GROUP}/dead-letters")).json()["dead_letters"]
    assert second["reconsume_times"] == 2
    assert [(x["origin_topic"], x["origin_queue_id"], x["origin_offset"]) for x in letters] == [
        ("orders", 0, 2)
    ]


async def test_without_a_policy_delays_grow_by_level(member: HoldingMember) -> None:
    assert await delays(member, place(0)) == 10
    assert await delays(member, place(1, delay_level=0)) == 10
    assert await delays(member, place(1, delay_level=5)) == 60
    assert await delays(member, place(2, delay_level=-1)) is None


async def test_after_a_clock_was_set_back_a_retry_waits_as_long_as_ever(
    client: httpx.AsyncClient,
    app: ServiceApp,
    member: HoldingMember,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    behind = WrongClock(ahead_seconds=-3_600)
    monkeypatch.setattr(broker_of(app).group_work.clock, "now_ms", behind.now_ms)

    answer = await member.send_back(place(0))

    [result] = answer.json()["results"]
    due = datetime.fromisoformat(result["deliver_at"])
    assert due <= datetime.now(UTC) - timedelta(seconds=3_600 - 10)


async def test_a_policy_says_how_long(client: httpx.AsyncClient, member: HoldingMember) -> None:
    await settings(client, retry_policy={"kind": "customized", "delays_seconds": [7, 70]})
    assert await delays(member, place(0)) == pytest.approx(7, abs=0.1)

    await settings(client, retry_policy={"kind": "exponential", "initial_seconds": 3})
    assert await delays(member, place(1)) == pytest.approx(3, abs=0.1)


async def test_what_has_failed_too_often_is_a_dead_letter(
    client: httpx.AsyncClient, member: HoldingMember
) -> None:
    await settings(client, retries_max=0)

    answer = await member.send_back(
        place(0, reason="timed_out", error="too\x01slow\x02 " + "x" * 3_000),
        place(1, retries_max=1, delay_seconds=9),
    )

    outcomes = [result["outcome"] for result in answer.json()["results"]]
    assert outcomes == ["dead_letter", "retry"]
    [letter] = (await client.get(f"/groups/{GROUP}/dead-letters")).json()["dead_letters"]
    assert letter["reason"] == "timed_out"
    assert letter["last_error"].startswith("too slow")
    assert len(letter["last_error"]) == 1_024
    assert letter["attempts"] == 1
    dead = await pull(client, DEAD)
    assert dead["body"] == {"text": "order 0"}
    assert dead["properties"] == {"a": "b"}


async def test_stale_locks_change_nothing(
    client: httpx.AsyncClient, app: ServiceApp, member: HoldingMember
) -> None:
    end = broker_of(app).store.log_max_offset
    wrong: list[dict[str, Any]] = [
        place(0, token=member.tokens["orders", 0] + 1),
        {"topic": "orders", "queue_id": 1, "queue_offset": 0, "token": 0},
    ]
    for message in wrong:
        answer = await member.send_back(place(1), message)
        assert (answer.status_code, answer.json()["code"]) == (409, "stale-lock")
        assert [e["pointer"] for e in answer.json()["errors"]] == ["/body/messages/1"]

    stranger = HoldingMember(client, GROUP, "stranger", member.tokens)
    assert (await stranger.send_back(place(0))).status_code == 409
    nobody = HoldingMember(client, "no-such-group", "me", member.tokens)
    assert (await nobody.send_back(place(0))).json()["code"] == "group-not-found"
    assert broker_of(app).store.log_max_offset == end


async def test_one_message_that_is_not_there_keeps_all_back(
    app: ServiceApp, member: HoldingMember
) -> None:
    end = broker_of(app).store.log_max_offset

    answer = await member.send_back(place(0), place(4))

    assert (answer.status_code, answer.json()["code"]) == (404, "record-not-found")
    assert [e["pointer"] for e in answer.json()["errors"]] == ["/body/messages/1/queue_offset"]
    assert broker_of(app).store.log_max_offset == end


@pytest.mark.parametrize(
    "fields",
    [
        {"delay_level": 19},
        {"delay_level": -2},
        {"delay_seconds": -1},
        {"delay_seconds": 1e300},
        {"delay_seconds": 1, "delay_level": 1},
        {"reason": "Because Of"},
        {"reason": ""},
        {"retries_max": -1},
        {"error": 7},
        {"queue_offset": -1},
        {"queue_offset": 2**63},
        {"surprise": 1},
    ],
)
async def test_nonsense_is_refused(
    app: ServiceApp, member: HoldingMember, fields: dict[str, Any]
) -> None:
    end = broker_of(app).store.log_max_offset

    answer = await member.send_back(place(0) | fields)

    assert answer.status_code == 422, answer.text
    assert broker_of(app).store.log_max_offset == end


async def test_a_retry_is_not_recalled_by_its_messages_id(
    client: httpx.AsyncClient, member: HoldingMember
) -> None:
    await member.send_back(place(0, delay_seconds=100))
    [waiting] = (await client.get("/scheduled")).json()["scheduled"]

    answer = await client.delete(f"/scheduled/{waiting['message_id']}")

    assert answer.status_code == 404
    assert waiting["recall_handle"] is None
    assert len((await client.get("/scheduled")).json()["scheduled"]) == 1


async def test_many_are_sent_back_as_one(member: HoldingMember) -> None:
    messages = [place(number % 4, delay_level=number % 19) for number in range(100)]

    answer = await member.send_back(*messages)

    assert [result["outcome"] for result in answer.json()["results"]] == ["retry"] * 100


async def test_what_would_take_too_much_memory_is_sent_back_in_parts(
    client: httpx.AsyncClient, app: ServiceApp, member: HoldingMember
) -> None:
    body = {"text": "x" * 4_000_000}
    sent = await client.post("/topics/orders/messages?queue_id=0", json={"body": body})
    assert sent.status_code == 201, sent.text
    end = broker_of(app).store.log_max_offset

    together = await member.send_back(*(place(4) for _ in range(5)))
    alone = await member.send_back(place(4))

    assert (together.status_code, together.json()["code"]) == (413, "too-large")
    assert alone.status_code == 200
    assert broker_of(app).store.log_max_offset < end + 2 * 4_100_000


@pytest.mark.parametrize("damage", [rot, rot_beyond_reading])
async def test_a_message_that_is_damaged_becomes_a_dead_letter_that_says_where_and_how(
    app: ServiceApp,
    client: httpx.AsyncClient,
    member: HoldingMember,
    damage: Callable[[ServiceApp, bytes], object],
) -> None:
    damage(app, b"order 1")

    sent_back = await member.send_back(place(0), place(1))

    results = sent_back.json()["results"]
    assert [result["outcome"] for result in results] == ["retry", "dead_letter"]
    [letter] = (await client.get("/groups/billing/dead-letters")).json()["dead_letters"]
    assert letter["reason"] == "damaged"
    assert (letter["origin_topic"], letter["origin_offset"]) == ("orders", 1)
    assert letter["last_error"].startswith("at log offset ")
