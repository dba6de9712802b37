"""Deliveries: a message is one client's for a time, and no handle counts longer than it should."""

from __future__ import annotations

import asyncio
import errno
import os
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from eruca.contract.deliveries import DeliveryRequest
from eruca.contract.errors import UnavailableError
from eruca.contract.records import BLANK_SIZE_MIN
from eruca_broker.core.state.events import CommittedOffset, OffsetsCommitted
from eruca_broker.processors.deliveries import deliveries
from eruca_broker.store.queues.consume_queue import ConsumeQueue
from eruca_broker.store.queues.queue_files import QueueFiles
from eruca_chassis.app import ServiceApp
from eruca_chassis.asgi import ClientGoneError
from support.brokers import (
    broker_of,
    client_of,
    open_broker,
    rot,
    rot_beyond_reading,
    rot_queue_offset,
)
from support.clocks import ManualClock
from support.delivery_clients import DeliveryClient, texts
from support.group_members import TestMember, held
from support.patience import PATIENCE_SECONDS
from support.times import moment
from support.waiting import until

pytestmark = pytest.mark.anyio

WELL_BEFORE_ITS_TIME_SECONDS = 20.0  # of a request that would wait for 30


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def app(tmp_path: Path, clock: ManualClock) -> AsyncIterator[ServiceApp]:
    async with open_broker(
        tmp_path / "store", clock, unfinished_max=50, unfinished_total_max=60
    ) as app:
        yield app


@pytest.fixture
async def orders(client: httpx.AsyncClient) -> DeliveryClient:
    orders = DeliveryClient(client)
    await orders.create()
    return orders


# --- Handing out ----------------------------------------------------------------------------------


async def test_a_message_is_one_clients_until_its_time_is_over(
    orders: DeliveryClient, clock: ManualClock
) -> None:
    await orders.send("a", "b", "c")

    first = await orders.receive(2, invisible_seconds=60)
    second = await orders.receive(invisible_seconds=60)
    nothing = (await orders.ask()).json()
    clock.advance(60)
    again = await orders.receive(2)

    assert (texts(first), texts(second)) == (["a", "b"], ["c"])
    assert nothing == {
        "deliveries": [],
        "empty_because": "empty",
        "retry_after_seconds": pytest.approx(60),
    }
    assert texts(again) == ["a", "b"]
    assert [one["attempt"] for one in first + again] == [1, 1, 2, 2]


async def test_what_was_acknowledged_never_comes_again(
    orders: DeliveryClient, clock: ManualClock
) -> None:
    await orders.send("a", "b", "c")
    a, b, c = await orders.receive()

    assert (await orders.ack(a, c)).status_code == 204
    assert await orders.committed() == 1
    clock.advance(1_000)
    [again] = await orders.receive()
    assert (await orders.ack(again)).status_code == 204

    assert texts([again]) == ["b"]
    assert again["handle"] != b["handle"]
    assert await orders.committed() == 3
    clock.advance(1_000)
    assert await orders.receive() == []


async def test_300_messages_come_once_each_and_never_more_than_32_at_a_time(
    client: httpx.AsyncClient,
) -> None:
    orders = DeliveryClient(client)
    await orders.create(queue_count=4)
    for number in range(4):
        await orders.send(*(f"{number}-{n}" for n in range(75)), queue_id=number)

    seen: list[str] = []
    while got := await orders.receive():
        assert len(got) <= 32
        assert (await orders.ack(*got)).status_code == 204
        seen += texts(got)

    assert sorted(seen) == sorted(f"{q}-{n}" for q in range(4) for n in range(75))


async def test_queues_take_turns(client: httpx.AsyncClient) -> None:
    orders = DeliveryClient(client)
    await orders.create(queue_count=3)
    for queue_id in range(3):
        await orders.send("x", "y", queue_id=queue_id)

    got = [one for _ in range(3) for one in await orders.receive(1)]

    assert [one["message"]["queue_id"] for one in got] == [0, 1, 2]


async def test_one_request_may_get_messages_of_several_queues(client: httpx.AsyncClient) -> None:
    orders = DeliveryClient(client)
    await orders.create(queue_count=3)
    for queue_id in range(3):
        await orders.send("x", queue_id=queue_id)

    got = await orders.receive(3)

    assert {one["message"]["queue_id"] for one in got} == {0, 1, 2}
    assert (await orders.ack(*got)).status_code == 204


async def test_a_new_group_starts_as_the_request_says_or_at_the_end(
    orders: DeliveryClient, client: httpx.AsyncClient
) -> None:
    await orders.send("old")

    assert await DeliveryClient(client, "late").receive() == []
    assert texts(await DeliveryClient(client, "early").receive(start="earliest")) == ["old"]
    await orders.send("new")
    assert texts(await DeliveryClient(client, "late").receive(start="earliest")) == ["new"]


async def test_groups_do_not_disturb_each_other(
    orders: DeliveryClient, client: httpx.AsyncClient
) -> None:
    other = DeliveryClient(client, "other")
    await other.create()
    await orders.send("a")

    [mine], [theirs] = await orders.receive(), await other.receive()

    assert (await orders.ack(theirs)).json()["code"] == "stale-handle"
    assert (await orders.ack(mine)).status_code == 204
    assert (await other.ack(theirs)).status_code == 204


async def test_at_the_same_time_nobody_gets_what_another_has(orders: DeliveryClient) -> None:
    await orders.send(*(str(n) for n in range(40)))

    answers = await asyncio.gather(*(orders.receive(3) for _ in range(16)))

    got = [text for answer in answers for text in texts(answer)]
    assert sorted(got, key=int) == [str(n) for n in range(40)]


async def test_of_those_who_ask_at_the_same_time_each_gets_as_many_as_it_asked_for(
    orders: DeliveryClient,
) -> None:
    await orders.send(*(str(n) for n in range(12)))

    answers = await asyncio.gather(*(orders.receive(count) for count in (1, 2, 3, 4, 5)))

    assert [len(answer) for answer in answers] == [1, 2, 3, 4, 2]
    assert [int(text) for answer in answers for text in texts(answer)] == list(range(12))


async def test_those_who_ask_for_different_things_at_the_same_time_are_told_apart(
    client: httpx.AsyncClient,
) -> None:
    orders = DeliveryClient(client)
    await orders.create()
    await orders.send("a", "b")
    other = DeliveryClient(client, topic="others")
    await other.create()
    await other.send("x", "y")

    answers = await asyncio.gather(
        orders.ask(1, invisible_seconds=10),
        orders.ask(1, invisible_seconds=60),
        orders.ask(1, filter="red"),
        other.ask(5),
        DeliveryClient(client, topic="missing").ask(),
    )

    assert [answer.status_code for answer in answers] == [200, 200, 409, 200, 404]
    assert texts(answers[0].json()["deliveries"]) == ["a"]
    assert texts(answers[1].json()["deliveries"]) == ["b"]
    assert texts(answers[3].json()["deliveries"]) == ["x", "y"]
    first, second = (answers[n].json()["deliveries"][0]["visible_at"] for n in range(2))
    assert first < second


async def test_large_messages_for_many_at_the_same_time_leave_nobody_out(
    orders: DeliveryClient,
) -> None:
    for n in range(4):
        await orders.send(str(n) * 3_900_000)

    answers = await asyncio.gather(*(orders.receive(1) for _ in range(5)))

    assert sorted(len(answer) for answer in answers) == [0, 1, 1, 1, 1]


async def test_those_who_wait_for_large_messages_leave_nobody_out(
    orders: DeliveryClient, app: ServiceApp
) -> None:
    waiting = [asyncio.create_task(orders.receive(1, wait_seconds=20)) for _ in range(4)]
    await held(app, 4)

    for n in range(4):
        await orders.send(str(n) * 3_900_000)

    assert sorted(texts(one)[0][0] for one in await asyncio.gather(*waiting)) == list("0123")


async def test_large_messages_share_out_the_room_of_an_answer(orders: DeliveryClient) -> None:
    for n in range(3):
        await orders.send(str(n) * 3_900_000)

    sizes = [len(await orders.receive()) for _ in range(3)]

    assert sum(sizes) == 3


# --- Handles --------------------------------------------------------------------------------------


async def test_an_expired_handle_is_gone_and_a_superseded_one_a_conflict(
    orders: DeliveryClient, clock: ManualClock
) -> None:
    await orders.send("a")
    [first] = await orders.receive(invisible_seconds=10)

    clock.advance(10)
    expired = await orders.ack(first)
    [second] = await orders.receive()
    superseded = await orders.ack(first)
    acked = await orders.ack(second)
    done = await orders.ack(second)

    assert (expired.status_code, expired.json()["code"]) == (410, "expired-handle")
    assert (superseded.status_code, superseded.json()["code"]) == (409, "stale-handle")
    assert acked.status_code == 204
    assert (done.status_code, done.json()["code"]) == (409, "stale-handle")


@pytest.mark.parametrize("what", ["ack", "nack", "extend"])
async def test_one_bad_handle_spoils_the_whole_request(
    orders: DeliveryClient, clock: ManualClock, what: str
) -> None:
    await orders.send("a", "b", "c")
    [late] = await orders.receive(1, invisible_seconds=5)
    [done, good] = await orders.receive(invisible_seconds=100)
    await orders.ack(done)
    clock.advance(5)
    act = getattr(orders, what)

    expired = await act(good, late)
    both = await act(good, late, done)

    assert expired.status_code == 410
    assert [error["pointer"] for error in expired.json()["errors"]] == ["/body/handles/1"]
    assert both.status_code == 409
    pointers = [error["pointer"] for error in both.json()["errors"]]
    assert pointers == ["/body/handles/1", "/body/handles/2"]
    assert (await orders.ack(good)).status_code == 204


async def test_a_handle_that_several_acknowledge_at_the_same_time_counts_once(
    orders: DeliveryClient,
) -> None:
    await orders.send("a", "b", "c")
    a, b, c = await orders.receive()

    answers = await asyncio.gather(
        orders.ack(a), orders.ack(a, b), orders.ack(c), orders.ack(c), orders.ack(b)
    )

    assert [answer.status_code for answer in answers] == [204, 409, 204, 409, 204]
    assert "is finished" in answers[1].json()["detail"]
    assert await orders.committed() == 3


async def test_extending_keeps_the_handle_and_the_message(
    orders: DeliveryClient, clock: ManualClock
) -> None:
    await orders.send("a")
    [one] = await orders.receive(invisible_seconds=10)

    clock.advance(9)
    extended = await orders.extend(one, invisible_seconds=30)
    clock.advance(29)

    assert extended.status_code == 200
    assert moment(extended.json()["visible_at"]) > moment(one["visible_at"])
    assert await orders.receive() == []
    assert (await orders.ack(one)).status_code == 204


async def test_less_time_can_be_asked_for_too(orders: DeliveryClient, clock: ManualClock) -> None:
    await orders.send("a")
    [one] = await orders.receive(invisible_seconds=1_000)

    await orders.extend(one, invisible_seconds=1)
    clock.advance(1)

    assert texts(await orders.receive()) == ["a"]


@pytest.mark.parametrize(
    "handle", ["", "x", "AAAA", "a b", "é", "x" * 2_000, "eyJ0ZXN0IjoxfQ", "----"]
)
async def test_what_is_no_handle_is_refused(orders: DeliveryClient, handle: str) -> None:
    for what in ("ack", "nack", "extend"):
        answer = await orders.client.post(
            f"/groups/billing/deliveries:{what}", json={"handles": [handle]}
        )

        assert (answer.status_code, answer.json()["code"]) == (422, "validation-failed")


async def test_a_handle_of_another_broker_is_refused(
    orders: DeliveryClient, tmp_path: Path
) -> None:
    async with open_broker(tmp_path / "other", name="broker-b") as app, client_of(app) as client:
        other = DeliveryClient(client)
        await other.create()
        await other.send("a")
        [theirs] = await other.receive()
    await orders.send("a")
    await orders.receive()

    refused = await orders.ack(theirs)

    assert refused.status_code == 409
    assert "broker-b" in refused.json()["detail"]


async def test_a_handle_given_twice_is_refused(orders: DeliveryClient) -> None:
    await orders.send("a")
    [one] = await orders.receive()

    assert (await orders.ack(one, one)).status_code == 422
    assert (await orders.ack(one)).status_code == 204


async def test_a_group_nobody_knows_has_no_handles(client: httpx.AsyncClient) -> None:
    answer = await client.post("/groups/nobody/deliveries:ack", json={"handles": ["x" * 8]})

    assert answer.status_code in (404, 422)


# --- Giving up ------------------------------------------------------------------------------------


async def test_a_message_given_up_comes_after_the_delay_asked_for(
    orders: DeliveryClient, clock: ManualClock
) -> None:
    await orders.send("a", "b")
    a, b = await orders.receive()

    nacked = await orders.nack(a, delay_seconds=20)

    [result] = nacked.json()["results"]
    assert (result["outcome"], result["attempts"]) == ("retry", 1)
    assert (await orders.ack(a)).status_code == 409
    assert (await orders.ask()).json()["retry_after_seconds"] == pytest.approx(20)
    clock.advance(20)
    [again] = await orders.receive()
    assert (texts([again]), again["attempt"]) == (["a"], 2)
    assert (await orders.ack(b, again)).status_code == 204


async def test_without_a_delay_the_groups_policy_says_when_it_comes(
    client: httpx.AsyncClient, clock: ManualClock
) -> None:
    orders = DeliveryClient(client)
    await orders.create(retry_policy={"kind": "customized", "delays_seconds": [3, 7]})
    await orders.send("a")

    waits = []
    for _ in range(3):
        [one] = await orders.receive()
        await orders.nack(one)
        waits.append((await orders.ask()).json()["retry_after_seconds"])
        clock.advance(waits[-1])

    assert waits == [pytest.approx(3), pytest.approx(7), pytest.approx(7)]


async def test_without_a_policy_the_delay_levels_do(
    orders: DeliveryClient, clock: ManualClock
) -> None:
    await orders.send("a")

    waits = []
    for _ in range(3):
        [one] = await orders.receive()
        await orders.nack(one)
        waits.append((await orders.ask()).json()["retry_after_seconds"])
        clock.advance(waits[-1])

    assert waits == [pytest.approx(10), pytest.approx(30), pytest.approx(60)]


async def test_given_up_once_too_often_it_is_a_dead_letter(
    client: httpx.AsyncClient, clock: ManualClock
) -> None:
    orders = DeliveryClient(client)
    await orders.create(retries_max=1)
    await orders.send("poison", "fine", tag="T", keys=["k"])
    poison, fine = await orders.receive()
    await orders.nack(poison, delay_seconds=0)
    [again] = await orders.receive()

    dead = await orders.nack(again, reason="unreadable", error="no such aircraft")

    assert dead.json()["results"] == [{"outcome": "dead_letter", "attempts": 2, "visible_at": None}]
    clock.advance(10_000)
    [rest] = await orders.receive()
    await orders.ack(rest)
    assert texts([rest]) == ["fine"]
    assert await orders.committed() == 2
    [letter] = (await client.get("/groups/billing/dead-letters")).json()["dead_letters"]
    assert letter["origin_topic"] == "orders"
    assert (letter["origin_queue_id"], letter["origin_offset"]) == (0, 0)
    assert (letter["reason"], letter["last_error"]) == ("unreadable", "no such aircraft")
    assert letter["attempts"] == 2
    assert letter["message_id"] == poison["message"]["message_id"]
    assert (fine["message"]["tag"], fine["message"]["keys"]) == ("T", ["k"])


async def test_what_would_be_too_much_of_dead_letters_is_refused_whole_and_goes_in_parts(
    client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deliveries, "GIVEN_UP_SIZE_MAX", 3_000)
    orders = DeliveryClient(client)
    await orders.create(retries_max=0)
    await orders.send(*("x" * 2_000 for _ in range(3)))
    given = await orders.receive()

    refused = await orders.nack(*given)

    assert refused.status_code == 413
    assert (refused.json()["code"], refused.json()["fix"]) == (
        "too-large",
        "reject fewer messages in one request",
    )
    assert (await client.get("/groups/billing/dead-letters")).json()["dead_letters"] == []
    for one in given:
        assert (await orders.nack(one)).json()["results"][0]["outcome"] == "dead_letter"
    assert len((await client.get("/groups/billing/dead-letters")).json()["dead_letters"]) == 3


async def test_a_changed_limit_of_retries_counts_for_what_is_out_already(
    orders: DeliveryClient,
) -> None:
    await orders.send("poison")
    [poison] = await orders.receive()

    await orders.create(retries_max=0)
    dead = await orders.nack(poison)

    assert dead.json()["results"][0]["outcome"] == "dead_letter"


async def test_never_acknowledged_it_is_a_dead_letter_too(
    client: httpx.AsyncClient, clock: ManualClock
) -> None:
    orders = DeliveryClient(client)
    await orders.create(retries_max=2)
    await orders.send("a")

    attempts = []
    for _ in range(3):
        [one] = await orders.receive(invisible_seconds=10)
        attempts.append(one["attempt"])
        clock.advance(10)
    assert await orders.receive() == []

    assert attempts == [1, 2, 3]
    [letter] = (await client.get("/groups/billing/dead-letters")).json()["dead_letters"]
    assert (letter["reason"], letter["attempts"]) == ("not_acknowledged", 3)
    assert await orders.committed() == 1


async def test_a_redriven_dead_letter_comes_as_if_it_were_new(
    client: httpx.AsyncClient, clock: ManualClock
) -> None:
    orders = DeliveryClient(client)
    await orders.create(retries_max=0)
    await orders.send("a")
    [one] = await orders.receive()
    await orders.nack(one)

    redriven = await client.post("/groups/billing/dead-letters:redrive", json={"ids": [0]})

    assert redriven.json()["outcomes"][0]["outcome"] == "redriven"
    [again] = await orders.receive()
    assert (texts([again]), again["attempt"]) == (["a"], 1)


# --- Order ----------------------------------------------------------------------------------------


async def test_in_an_ordered_group_one_message_of_each_key_is_out_at_a_time(
    client: httpx.AsyncClient,
) -> None:
    orders = DeliveryClient(client)
    await orders.create(ordered=True)
    for text in ("a1", "a2", "b1", "a3", "b2"):
        await orders.send(text, sharding_key=text[0])

    first = await orders.receive()
    blocked = (await orders.ask()).json()["empty_because"]
    await orders.ack(first[0])
    second = await orders.receive()
    await orders.ack(*second, first[1])
    third = await orders.receive()

    assert [texts(got) for got in (first, second, third)] == [["a1", "b1"], ["a2"], ["a3", "b2"]]
    assert blocked == "blocked"
    await orders.ack(*third)
    assert await orders.committed() == 5


async def test_a_group_that_becomes_ordered_is_so_from_the_next_answer_on(
    client: httpx.AsyncClient,
) -> None:
    orders = DeliveryClient(client)
    await orders.create(ordered=False)
    for text in ("a1", "a2"):
        await orders.send(text, sharding_key="a")
    unordered = await orders.receive()
    await orders.ack(*unordered)

    await orders.create(ordered=True)
    for text in ("a3", "a4"):
        await orders.send(text, sharding_key="a")
    ordered = await orders.receive()

    assert [texts(got) for got in (unordered, ordered)] == [["a1", "a2"], ["a3"]]


async def test_a_message_given_up_holds_up_its_key_and_no_other(
    client: httpx.AsyncClient, clock: ManualClock
) -> None:
    orders = DeliveryClient(client)
    await orders.create(ordered=True)
    for text in ("a1", "b1", "a2", "b2"):
        await orders.send(text, sharding_key=text[0])
    a1, b1 = await orders.receive()

    await orders.nack(a1, delay_seconds=30)
    await orders.ack(b1)

    assert texts(await orders.receive()) == ["b2"]
    clock.advance(30)
    [again] = await orders.receive()
    assert texts([again]) == ["a1"]
    await orders.ack(again)
    assert texts(await orders.receive()) == ["a2"]


async def test_keys_of_a_deleted_topic_are_not_those_of_a_later_one_of_its_name(
    client: httpx.AsyncClient,
) -> None:
    orders = DeliveryClient(client)
    await orders.create(ordered=True)
    await orders.send("old", sharding_key="a")
    assert texts(await orders.receive(1)) == ["old"]
    assert await orders.receive() == []  # for that its key has been looked up

    assert (await client.delete("/topics/orders")).is_success
    await orders.create(ordered=False)
    await orders.send("first", sharding_key="b")
    assert texts(await orders.receive()) == ["first"]
    await orders.create(ordered=True)
    await orders.send("second", sharding_key="b")

    assert await orders.receive() == []


async def test_without_keys_an_ordered_queue_goes_one_by_one(client: httpx.AsyncClient) -> None:
    orders = DeliveryClient(client)
    await orders.create(ordered=True)
    await orders.send("1", "2", "3")

    seen = []
    for _ in range(3):
        got = await orders.receive()
        assert await orders.receive() == []
        await orders.ack(*got)
        seen += texts(got)

    assert seen == ["1", "2", "3"]


async def test_a_key_that_is_blocked_is_free_again_for_who_waits(
    client: httpx.AsyncClient, app: ServiceApp
) -> None:
    orders = DeliveryClient(client)
    await orders.create(ordered=True)
    await orders.send("a1", "a2", sharding_key="a")
    [a1] = await orders.receive()
    waiting = asyncio.create_task(orders.receive(wait_seconds=30))
    await held(app)

    await orders.ack(a1)

    assert texts(await asyncio.wait_for(waiting, PATIENCE_SECONDS)) == ["a2"]


# --- Filters and subscriptions --------------------------------------------------------------------


@pytest.mark.parametrize(
    "filter_",
    [
        {"filter": "UA || AA"},
        {"filter": "TAGS IN ('UA', 'AA')", "filter_type": "sql92"},
    ],
)
async def test_what_the_filter_holds_back_is_passed_over(
    orders: DeliveryClient, filter_: dict[str, Any]
) -> None:
    for tag in ("UA", "DL", "AA", "DL"):
        await orders.send(tag.lower(), tag=tag)

    got = await orders.receive(**filter_)
    await orders.ack(*got)
    await orders.receive(**filter_)

    assert texts(got) == ["ua", "aa"]
    assert await orders.committed() == 4


async def test_tags_of_one_hash_are_told_apart(orders: DeliveryClient) -> None:
    await orders.send("1", tag="Aa")
    await orders.send("2", tag="BB")

    assert texts(await orders.receive(filter="BB")) == ["2"]


async def test_a_group_has_one_filter_for_a_topic(orders: DeliveryClient) -> None:
    await orders.send("a", tag="UA")
    await orders.receive(filter="UA")

    other = await orders.ask(filter="DL")

    assert (other.status_code, other.json()["code"]) == (409, "subscription-conflict")
    assert "'UA'" in other.json()["detail"]
    assert "'DL'" in other.json()["detail"]


async def test_once_nothing_is_unfinished_the_filter_may_change(orders: DeliveryClient) -> None:
    await orders.send("a", tag="UA")
    await orders.ack(*await orders.receive(filter="UA"))
    await orders.send("b", tag="DL")

    assert texts(await orders.receive(filter="DL")) == ["b"]
    config = (await orders.client.get("/groups/billing")).json()
    assert config["subscriptions"] == [{"topic": "orders", "filter": "DL", "filter_type": "tag"}]
    assert config["subscription_version"] == 2


async def test_what_is_unfinished_where_nobody_reads_any_more_does_not_keep_the_filter(
    client: httpx.AsyncClient,
) -> None:
    orders = DeliveryClient(client)
    await orders.create(queue_count=2)
    await orders.send("out of reach", queue_id=1)
    await orders.send("red and out of reach", queue_id=1, tag="red")
    assert len(await orders.receive()) == 2
    fewer = {"read_queue_count": 1, "write_queue_count": 1}
    assert (await client.put("/topics/orders?force=true", json=fewer)).is_success
    await orders.send("red", queue_id=0, tag="red")

    assert texts(await orders.receive(filter="red")) == ["red"]
    assert (await orders.ask(filter="blue")).json()["code"] == "subscription-conflict"
    again = {"read_queue_count": 2, "write_queue_count": 2}
    assert (await client.put("/topics/orders", json=again)).is_success
    assert texts(await orders.receive(filter="red")) == ["red and out of reach"]


async def test_members_and_deliveries_subscribe_alike(
    orders: DeliveryClient, client: httpx.AsyncClient
) -> None:
    member = TestMember(client, "a", group="billing")
    assert (await member.beat()).is_success
    await orders.send("a")

    same = await orders.ask()
    other = await orders.ask(filter="UA")

    assert texts(same.json()["deliveries"]) == ["a"]
    assert (other.status_code, other.json()["code"]) == (409, "subscription-conflict")


@pytest.mark.parametrize(
    ("filter_", "code"),
    [
        ({"filter": "a >", "filter_type": "sql92"}, "filter-syntax"),
        ({"filter": "||"}, "filter-syntax"),
        ({"filter": "a", "filter_type": "regex"}, "validation-failed"),
    ],
)
async def test_a_filter_that_means_nothing_is_refused(
    orders: DeliveryClient, filter_: dict[str, Any], code: str
) -> None:
    refused = await orders.ask(**filter_)

    assert (refused.status_code, refused.json()["code"]) == (422, code)
    assert refused.json()["errors"][0]["pointer"].startswith("/body/filter")


# --- Why there is nothing -------------------------------------------------------------------------


async def test_with_too_much_unfinished_a_group_is_throttled(orders: DeliveryClient) -> None:
    await orders.send(*map(str, range(60)))
    first = await orders.receive()
    second = await orders.receive()

    throttled = (await orders.ask()).json()

    assert len(first) + len(second) == 50
    assert throttled["empty_because"] == "throttled"
    await orders.ack(*first)
    assert len(await orders.receive()) == 10


async def test_what_all_groups_leave_unfinished_has_a_limit_too(
    orders: DeliveryClient, client: httpx.AsyncClient
) -> None:
    other = DeliveryClient(client, "other")
    await other.create()
    await orders.send(*map(str, range(50)))
    await orders.receive()
    await orders.receive()

    assert len(await other.receive()) == 10
    assert (await other.ask()).json()["empty_because"] == "throttled"


async def test_groups_that_nobody_reads_any_more_bring_no_other_to_a_stop(
    orders: DeliveryClient, client: httpx.AsyncClient
) -> None:
    left, other = DeliveryClient(client, "left"), DeliveryClient(client, "other")
    await left.create()
    await other.create()
    await orders.send(*map(str, range(50)))
    for one in (orders, left):
        await one.receive()
        await one.receive()

    for number in range(3):
        got = await other.receive()
        assert texts(got) == [str(number)]
        assert (await other.ask()).json()["empty_because"] == "throttled"
        await other.ack(*got)


async def test_a_group_that_is_switched_off_is_paused(orders: DeliveryClient) -> None:
    await orders.send("a")
    await orders.create(consume_enabled=False)

    assert (await orders.ask()).json()["empty_because"] == "paused"
    await orders.create(consume_enabled=True)
    assert texts(await orders.receive()) == ["a"]


async def test_a_queue_that_a_member_reads_hands_nothing_out(
    client: httpx.AsyncClient, app: ServiceApp
) -> None:
    orders = DeliveryClient(client)
    await orders.create(queue_count=2)
    await orders.send("locked", queue_id=0)
    await orders.send("free", queue_id=1)
    member = TestMember(client, "a", group="billing")
    await member.beat()
    await member.lock(0)

    got = await orders.receive()
    await orders.ack(*got)
    empty = (await orders.ask()).json()["empty_because"]
    await member.lock(1)
    paused = (await orders.ask()).json()["empty_because"]

    assert texts(got) == ["free"]
    assert (empty, paused) == ("empty", "paused")
    waiting = asyncio.create_task(orders.receive(wait_seconds=30))
    await held(app)
    await member.release((0, 0))
    assert texts(await asyncio.wait_for(waiting, PATIENCE_SECONDS)) == ["locked"]


async def test_a_lock_that_could_not_be_freed_when_its_session_was_over_is_freed_later(
    orders: DeliveryClient,
    client: httpx.AsyncClient,
    app: ServiceApp,
    clock: ManualClock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    await orders.send("a")
    member = TestMember(client, "a", group="billing")
    await member.beat()
    await member.lock(0)

    async def refuse(_: object) -> None:
        raise UnavailableError("the disk is full")

    with monkeypatch.context() as full:
        full.setattr(broker_of(app).store, "change", refuse)
        clock.advance(1_000)
        refused = await orders.ask()

    assert refused.status_code == 503
    assert texts(await orders.receive()) == ["a"]


async def test_a_member_does_not_get_a_queue_while_messages_of_it_are_out(
    orders: DeliveryClient, client: httpx.AsyncClient, app: ServiceApp
) -> None:
    await orders.send("a")
    [one] = await orders.receive(invisible_seconds=100)
    member = TestMember(client, "a", group="billing")
    await member.beat()

    refused = (await member.lock(0)).json()
    waiting = asyncio.create_task(member.lock(0, wait_seconds=30))
    await held(app)
    await orders.ack(one)

    assert refused["locks"] == []
    [why] = refused["refused"]
    assert why["expires_in_seconds"] == pytest.approx(100)
    [lock] = (await asyncio.wait_for(waiting, PATIENCE_SECONDS)).json()["locks"]
    assert lock["next_offset"] == 1


async def test_a_member_that_waits_gets_a_queue_whose_deliveries_a_reset_has_ended(
    orders: DeliveryClient, client: httpx.AsyncClient, app: ServiceApp
) -> None:
    await orders.send("a")
    await orders.receive(invisible_seconds=100)
    member = TestMember(client, "a", group="billing")
    await member.beat()
    waiting = asyncio.create_task(member.lock(0, wait_seconds=30))
    await held(app)
    assert await orders.receive() == []  # behind the other's look

    reset = {"topic": "orders", "to": "latest"}
    assert (await client.post("/groups/billing/offsets:reset", json=reset)).is_success

    answer = await asyncio.wait_for(waiting, WELL_BEFORE_ITS_TIME_SECONDS)
    [lock] = answer.json()["locks"]
    assert lock["next_offset"] == 1


async def test_a_member_gets_a_queue_whose_deliveries_have_run_out(
    orders: DeliveryClient, client: httpx.AsyncClient, clock: ManualClock
) -> None:
    await orders.send("a", "b")
    a, b = await orders.receive(invisible_seconds=10)
    await orders.ack(b)
    member = TestMember(client, "a", group="billing")
    clock.advance(10)
    await member.beat()

    [lock] = (await member.lock(0)).json()["locks"]

    assert lock["next_offset"] == 0
    assert (await orders.ack(a)).status_code == 409


# --- Positions ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("offset", "expected"), [(0, ["a", "b", "c"]), (2, ["c"]), (3, [])])
async def test_a_reset_ends_what_was_handed_out(
    orders: DeliveryClient, clock: ManualClock, offset: int, expected: list[str]
) -> None:
    await orders.send("a", "b", "c")
    got = await orders.receive(2)

    reset = await orders.client.post(
        "/groups/billing/offsets:reset", json={"topic": "orders", "to": {"offset": offset}}
    )

    assert reset.is_success
    assert [(await orders.ack(one)).status_code for one in got] == [409, 409]
    assert texts(await orders.receive()) == expected


async def test_who_waits_gets_what_a_reset_brings_back(
    orders: DeliveryClient, app: ServiceApp
) -> None:
    await orders.send("a")
    await orders.ack(*await orders.receive())
    waiting = asyncio.create_task(orders.receive(wait_seconds=30))
    await held(app)

    await orders.client.post(
        "/groups/billing/offsets:reset", json={"topic": "orders", "to": "earliest"}
    )

    assert texts(await asyncio.wait_for(waiting, PATIENCE_SECONDS)) == ["a"]


async def test_who_waits_gets_what_a_commit_from_outside_brings_back(
    orders: DeliveryClient, app: ServiceApp
) -> None:
    await orders.send("a")
    await orders.ack(*await orders.receive())
    waiting = asyncio.create_task(orders.receive(wait_seconds=30))
    await held(app)

    assert await orders.receive() == []  # behind the other's look

    back = {"offsets": [{"topic": "orders", "queue_id": 0, "offset": 0}]}
    assert (await orders.client.put("/groups/billing/offsets", json=back)).is_success

    assert texts(await asyncio.wait_for(waiting, WELL_BEFORE_ITS_TIME_SECONDS)) == ["a"]


async def test_deleting_the_topic_ends_what_was_handed_out(orders: DeliveryClient) -> None:
    await orders.send("a")
    [one] = await orders.receive()

    await orders.client.delete("/topics/orders")

    assert (await orders.ack(one)).status_code == 409
    assert (await orders.ask()).json()["code"] == "topic-not-found"


async def test_a_topic_that_is_deleted_at_any_moment_is_told_of_or_empty(
    client: httpx.AsyncClient,
) -> None:
    for ticks in range(10):
        orders = DeliveryClient(client, topic=f"orders-{ticks}")
        await orders.create()
        asked = asyncio.create_task(orders.ask())
        for _ in range(ticks):
            await asyncio.sleep(0)

        await client.delete(f"/topics/{orders.topic}")

        assert (await asked).status_code in (200, 404)


async def test_deleting_the_group_ends_what_was_handed_out(orders: DeliveryClient) -> None:
    await orders.send("a")
    [one] = await orders.receive()

    assert (await orders.client.delete("/groups/billing")).is_success

    assert (await orders.ack(one)).json()["code"] == "group-not-found"
    await orders.create()
    assert texts(await orders.receive()) == ["a"]
    assert (await orders.ack(one)).status_code == 409


async def test_a_position_beyond_the_end_hides_nothing_that_arrives(
    orders: DeliveryClient, app: ServiceApp
) -> None:
    """Nobody may commit it, but RocketMQ lets its clients do so, and its stores are opened here."""
    await orders.send("a", "b")
    beyond = OffsetsCommitted("billing", [CommittedOffset("orders", 0, 1_000)])
    await broker_of(app).store.change(beyond)

    assert await orders.receive() == []
    assert await orders.committed() == 2
    await orders.send("c", "d")

    assert texts(await orders.receive()) == ["c", "d"]


async def test_the_lag_counts_what_is_unfinished(orders: DeliveryClient) -> None:
    await orders.send("a", "b", "c")
    await orders.receive(2)

    offsets = (await orders.client.get("/groups/billing/offsets?topic=orders")).json()

    assert offsets["lag"] == 3


# --- Waiting --------------------------------------------------------------------------------------


async def test_who_waits_gets_what_arrives(orders: DeliveryClient, app: ServiceApp) -> None:
    waiting = asyncio.create_task(orders.receive(wait_seconds=30))
    await held(app)

    await orders.send("a")

    assert texts(await asyncio.wait_for(waiting, PATIENCE_SECONDS)) == ["a"]


async def test_who_waits_gets_what_arrives_in_a_queue_that_is_added_meanwhile(
    orders: DeliveryClient, app: ServiceApp
) -> None:
    waiting = asyncio.create_task(orders.receive(wait_seconds=30))
    await held(app)

    queues = {"read_queue_count": 2, "write_queue_count": 2}
    assert (await orders.client.put("/topics/orders", json=queues)).is_success
    assert await orders.receive() == []  # behind the other's look
    await orders.send("a", queue_id=1)

    assert texts(await asyncio.wait_for(waiting, WELL_BEFORE_ITS_TIME_SECONDS)) == ["a"]


async def test_of_many_who_wait_one_gets_a_message(orders: DeliveryClient, app: ServiceApp) -> None:
    waiting = [asyncio.create_task(orders.receive(wait_seconds=30)) for _ in range(5)]
    await held(app, 5)

    await orders.send("a")
    done, pending = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    await orders.send("b", "c", "d", "e")
    await until(lambda: broker_of(app).deliveries.counts.handed_out == 5)

    assert [texts(task.result()) for task in done] == [["a"]]
    assert len(pending) == 4
    broker_of(app).group_work.watchers.release_all()
    rest = [text for answer in await asyncio.gather(*pending) for text in texts(answer)]
    assert sorted(rest) == ["b", "c", "d", "e"]


async def test_who_waits_gets_what_was_given_up_at_once(
    orders: DeliveryClient, app: ServiceApp
) -> None:
    await orders.send("a")
    [one] = await orders.receive()
    waiting = asyncio.create_task(orders.receive(wait_seconds=30))
    await held(app)

    await orders.nack(one, delay_seconds=0)

    [again] = await asyncio.wait_for(waiting, PATIENCE_SECONDS)
    assert again["attempt"] == 2


async def test_a_wait_that_is_in_vain_ends_in_time_and_says_so(orders: DeliveryClient) -> None:
    answer = (await orders.ask(wait_seconds=0.05)).json()

    assert answer["deliveries"] == []
    assert answer["empty_because"] == "empty"


async def test_who_waits_for_a_topic_that_is_deleted_is_told(
    orders: DeliveryClient, app: ServiceApp
) -> None:
    waiting = asyncio.create_task(orders.ask(wait_seconds=30))
    await held(app)

    await orders.client.delete("/topics/orders")

    assert (await asyncio.wait_for(waiting, PATIENCE_SECONDS)).json()["code"] == "topic-not-found"


async def test_who_waits_for_a_topic_that_is_made_anew_gets_what_arrives(
    orders: DeliveryClient, app: ServiceApp
) -> None:
    await orders.send("of no interest", "nor this", tag="b")
    waiting = asyncio.create_task(orders.receive(wait_seconds=30, filter="a"))
    await held(app)

    async with broker_of(app).group_work.changes.turn("billing"):  # as others' requests have it
        assert (await orders.client.delete("/topics/orders")).is_success
        queues = {"read_queue_count": 1, "write_queue_count": 1}
        assert (await orders.client.put("/topics/orders", json=queues)).is_success
        await orders.send("new", tag="a")

    assert texts(await asyncio.wait_for(waiting, PATIENCE_SECONDS)) == ["new"]


async def test_who_has_left_meanwhile_is_handed_nothing(
    orders: DeliveryClient, app: ServiceApp
) -> None:
    left = asyncio.Event()

    async def leaving() -> dict[str, object]:
        await left.wait()
        return {"type": "http.disconnect"}

    wanted = DeliveryRequest(topic="orders", wait_seconds=30)
    waiting = asyncio.create_task(broker_of(app).deliveries.receive("billing", wanted, leaving))
    await held(app)
    left.set()
    with pytest.raises(ClientGoneError):
        await waiting

    await orders.send("a")

    [one] = await orders.receive()
    assert one["attempt"] == 1


async def test_who_waits_while_the_group_is_paused_goes_on_when_it_does(
    orders: DeliveryClient, app: ServiceApp
) -> None:
    await orders.send("a")
    await orders.create(consume_enabled=False)
    waiting = asyncio.create_task(orders.receive(wait_seconds=30))
    await held(app)

    await orders.create(consume_enabled=True)

    assert texts(await asyncio.wait_for(waiting, PATIENCE_SECONDS)) == ["a"]


# --- After a restart ------------------------------------------------------------------------------


async def test_handles_survive_a_restart(tmp_path: Path, clock: ManualClock) -> None:
    async with open_broker(tmp_path / "again", clock) as app, client_of(app) as client:
        orders = DeliveryClient(client)
        await orders.create()
        await orders.send("a", "b", "c", "d")
        a, b, c, d = await orders.receive(invisible_seconds=50)
        await orders.ack(b)
        await orders.nack(c, delay_seconds=20)
        await orders.extend(d, invisible_seconds=100)

    clock.advance(20)
    async with open_broker(tmp_path / "again", clock) as app, client_of(app) as client:
        orders = DeliveryClient(client)
        assert await orders.committed() == 0
        assert texts(await orders.receive(invisible_seconds=60)) == ["c"]
        assert (await orders.ack(b)).status_code == 409
        assert (await orders.ack(a, d)).status_code == 204
        assert await orders.committed() == 2
        clock.advance(60)
        [again] = await orders.receive()
        assert (texts([again]), again["attempt"]) == (["c"], 3)


# --- Refusals -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "fields",
    [
        {"count_max": 0},
        {"count_max": 33},
        {"invisible_seconds": 0.5},
        {"invisible_seconds": 43_201},
        {"wait_seconds": 31},
        {"wait_seconds": -1},
        {"surprise": 1},
        {"topic": ""},
        {"filter": "x" * 5_000},
    ],
)
async def test_what_is_out_of_bounds_is_refused(
    orders: DeliveryClient, fields: dict[str, object]
) -> None:
    body = {"topic": "orders", **fields}

    answer = await orders.client.post("/groups/billing/deliveries", json=body)

    assert (answer.status_code, answer.json()["code"]) == (422, "validation-failed")


async def test_a_topic_that_cannot_be_read_is_refused(orders: DeliveryClient) -> None:
    system = await DeliveryClient(orders.client, topic="ERUCA_SYS_EVENTS").ask()
    missing = await DeliveryClient(orders.client, topic="missing").ask()
    await orders.client.put("/topics/orders", json={"permission": "w"})
    forbidden = await orders.ask()

    assert (system.status_code, system.json()["code"]) == (403, "system-topic-protected")
    assert (missing.status_code, missing.json()["code"]) == (404, "topic-not-found")
    assert (forbidden.status_code, forbidden.json()["code"]) == (403, "permission-denied")


async def test_only_so_many_requests_wait(tmp_path: Path) -> None:
    async with (
        open_broker(tmp_path / "small", held_group_requests_max=0) as app,
        client_of(app) as client,
    ):
        orders = DeliveryClient(client)
        await orders.create()

        refused = await orders.ask(wait_seconds=5)

        assert (refused.status_code, refused.json()["code"]) == (429, "overloaded")
        assert (await orders.ask()).status_code == 200


async def test_metrics_tell_what_has_become_of_deliveries(
    orders: DeliveryClient, app: ServiceApp
) -> None:
    await orders.send("a", "b")
    a, _ = await orders.receive()
    await orders.ack(a)
    await orders.ack(a)

    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(app), base_url="http://localhost"
    ) as root:
        text = (await root.get("/metrics")).text

    assert "eruca_broker_deliveries_total 2.0" in text
    assert "eruca_broker_deliveries_acked_total 1.0" in text
    assert "eruca_broker_stale_handles_total 1.0" in text
    assert "eruca_broker_unfinished_deliveries 1.0" in text


@pytest.mark.parametrize("place", [0, 1 << 62])
async def test_a_message_that_tells_another_place_than_its_own_holds_up_no_other(
    app: ServiceApp, orders: DeliveryClient, place: int
) -> None:
    await orders.send("first", "rotten", "last")
    rot_queue_offset(app, b"rotten", place)

    handed_out = [one for _ in range(3) for one in await orders.receive()]

    assert [one["message"]["queue_offset"] for one in handed_out] == [0, 1, 2]
    assert texts([handed_out[0], handed_out[2]]) == ["first", "last"]
    assert_damaged(handed_out[1])


def assert_damaged(delivery: dict[str, Any]) -> None:
    """Assert that a message has nothing but its place, and what is wrong with it."""
    message = delivery["message"]
    assert message["damage"]
    assert (message["body"], message["properties"], message["keys"]) == (None, {}, [])
    assert message["log_offset"] > 0


async def test_a_message_that_has_rotted_is_handed_out_as_damaged_and_its_dead_letter_says_so(
    app: ServiceApp, client: httpx.AsyncClient
) -> None:
    orders = DeliveryClient(client)
    await orders.create(retries_max=0)
    await orders.send("rotten", "sound")
    rot(app, b"rotten")

    handed_out = [*await orders.receive(), *await orders.receive()]
    given_up = await orders.nack(*handed_out)
    letters = await client.get("/groups/billing/dead-letters")

    assert_damaged(handed_out[0])
    assert texts(handed_out[1:]) == ["sound"]
    assert given_up.is_success, given_up.text
    damaged, sound = letters.json()["dead_letters"]
    assert (damaged["reason"], sound["reason"]) == ("damaged", "failed")
    place = (damaged["origin_topic"], damaged["origin_queue_id"], damaged["origin_offset"])
    message = handed_out[0]["message"]
    assert place == ("orders", message["queue_id"], message["queue_offset"])
    assert damaged["last_error"] == f"at log offset {message['log_offset']}: {message['damage']}"
    assert await orders.receive() == []

    path = "/groups/billing/dead-letters:redrive"
    ids = [damaged["dead_letter_id"]]
    [outcome] = (await client.post(path, json={"ids": ids})).json()["outcomes"]
    assert outcome["outcome"] == "skipped"
    assert outcome["detail"] == "its message was damaged, so nothing can be sent"


@pytest.mark.parametrize("is_ordered", [False, True], ids=["concurrent", "ordered"])
async def test_what_cannot_be_read_any_more_when_its_time_is_over_holds_up_none_behind_it(
    app: ServiceApp, client: httpx.AsyncClient, clock: ManualClock, is_ordered: bool
) -> None:
    orders = DeliveryClient(client)
    await orders.create(ordered=is_ordered)
    for number, text in enumerate(("rotten", "second", "third")):
        await orders.send(text, sharding_key=str(number))
    assert len(await orders.receive(invisible_seconds=10)) == 3
    rot_beyond_reading(app, b"rotten")
    clock.advance(10)

    handed_out = [one for _ in range(3) for one in await orders.receive(1)]

    assert_damaged(handed_out[0])
    assert texts(handed_out[1:]) == ["second", "third"]
    assert (await orders.ack(*handed_out)).is_success
    assert await orders.committed() == 3


async def test_who_waits_gets_a_message_that_cannot_be_read_any_more_as_damaged(
    app: ServiceApp, orders: DeliveryClient, clock: ManualClock
) -> None:
    await orders.send("rotten", "second")
    assert len(await orders.receive(invisible_seconds=10)) == 2
    rot_beyond_reading(app, b"rotten")
    clock.advance(10)

    async with asyncio.timeout(PATIENCE_SECONDS):
        [one] = await orders.receive(1, wait_seconds=30)
        [other] = await orders.receive(1, wait_seconds=30)

    assert_damaged(one)
    assert texts([other]) == ["second"]


@pytest.mark.parametrize("is_given_up", [False, True], ids=["not acknowledged", "given up"])
async def test_what_cannot_be_read_any_more_leaves_a_dead_letter_that_says_so(
    app: ServiceApp, client: httpx.AsyncClient, clock: ManualClock, is_given_up: bool
) -> None:
    orders = DeliveryClient(client)
    await orders.create(retries_max=0)
    await orders.send("rotten", "sound")
    handed_out = await orders.receive(invisible_seconds=10)
    rot_beyond_reading(app, b"rotten")

    if is_given_up:
        given_up = await orders.nack(*handed_out)
        assert given_up.is_success, given_up.text
    clock.advance(10)

    assert await orders.receive() == []
    letters = await client.get("/groups/billing/dead-letters")
    reasons = [letter["reason"] for letter in letters.json()["dead_letters"]]
    assert reasons == ["damaged", "failed" if is_given_up else "not_acknowledged"]
    assert await orders.committed() == 2


# --- Queues whose file fails ----------------------------------------------------------------------


def fail_queue_0(monkeypatch: pytest.MonkeyPatch, owner: type, method: str) -> None:
    """Have the disk refuse what *method* does with queue 0."""
    real = getattr(owner, method)

    def failing(one: ConsumeQueue | QueueFiles, *args: Any) -> Any:  # noqa: ANN401
        files = one.files if isinstance(one, ConsumeQueue) else one
        if files.directory.endswith("orders/0"):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return real(one, *args)

    monkeypatch.setattr(owner, method, failing)


async def test_a_queue_that_lags_does_not_hold_up_the_others_and_is_told_where_they_are_empty(
    client: httpx.AsyncClient, app: ServiceApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    orders = DeliveryClient(client)
    await orders.create(queue_count=2)
    with monkeypatch.context() as disk:
        fail_queue_0(disk, ConsumeQueue, "put_run")
        await orders.send("late", queue_id=0)
        await orders.send("there", queue_id=1)

        others = await orders.receive()
        refused = await orders.ask()
    await broker_of(app).store.checkpoint()

    assert texts(others) == ["there"]
    assert refused.status_code == 503
    assert refused.headers["content-type"] == "application/problem+json"
    assert int(refused.headers["retry-after"]) > 0
    assert "the consume queue 0 of 'orders'" in refused.json()["detail"]
    assert texts(await orders.receive()) == ["late"]


async def test_a_held_request_gets_what_a_queue_lacked_once_that_has_caught_up(
    client: httpx.AsyncClient, app: ServiceApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    orders = DeliveryClient(client)
    await orders.create(queue_count=2)
    with monkeypatch.context() as disk:
        fail_queue_0(disk, ConsumeQueue, "put_run")
        await orders.send("late", queue_id=0)
        waiting = asyncio.create_task(orders.receive(wait_seconds=30))
        await held(app)
    async with asyncio.timeout(PATIENCE_SECONDS):
        await broker_of(app).store.checkpoint()

        assert texts(await waiting) == ["late"]


async def test_a_held_request_is_told_of_a_queue_that_lags_when_its_time_is_over(
    client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    orders = DeliveryClient(client)
    await orders.create(queue_count=2)
    fail_queue_0(monkeypatch, ConsumeQueue, "put_run")
    await orders.send("late", queue_id=0)

    refused = await orders.ask(wait_seconds=0.1)

    assert (refused.status_code, refused.json()["code"]) == (503, "unavailable")


async def test_a_queue_that_cannot_be_read_does_not_hold_up_the_others(
    client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    orders = DeliveryClient(client)
    await orders.create(queue_count=2)
    await orders.send("unreadable", queue_id=0)
    await orders.send("there", queue_id=1)
    with monkeypatch.context() as disk:
        fail_queue_0(disk, QueueFiles, "read")
        others = await orders.receive()
        refused = await orders.ask()

    assert texts(others) == ["there"]
    assert (refused.status_code, refused.json()["code"]) == (503, "unavailable")
    assert texts(await orders.receive()) == ["unreadable"]


async def test_a_group_that_meets_a_topic_where_a_segment_begins_is_handed_its_messages(
    tmp_path: Path,
) -> None:
    segment_bytes = 64 * 1024
    async with open_broker(tmp_path, segment_bytes=segment_bytes) as app, client_of(app) as client:
        orders = DeliveryClient(client)
        await orders.create()
        path = "/topics/orders/messages?queue_id=0"
        too_large = await client.post(path, json={"body": {"text": "x" * segment_bytes}})
        [taken, _] = map(int, re.findall(r"[0-9]+", too_large.json()["detail"]))
        filling = segment_bytes - (taken - segment_bytes) - BLANK_SIZE_MIN
        sent = await client.post(path, json={"body": {"text": "x" * filling}})

        async with asyncio.timeout(PATIENCE_SECONDS):
            deliveries = await orders.receive()

    assert sent.status_code == 201, sent.text
    assert [len(text) for text in texts(deliveries)] == [filling]
