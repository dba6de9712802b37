"""Transactions as a client sees them: half messages, decisions, checks, parked ones, the lists."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from eruca.contract.errors import RecordNotFoundError
from eruca.contract.limits import CHECKER_SIZE_MAX, REASON_SIZE_MAX, TRANSACTION_ID_SIZE_MAX
from eruca.contract.names import CHECK_MAX_TOPIC, HALF_TOPIC, OP_HALF_TOPIC
from eruca.contract.records import SysFlag
from eruca_broker.core.records.half_messages import finished_offsets
from eruca_chassis.app import ServiceApp
from support.brokers import (
    broker_of,
    client_of,
    open_broker,
    rot,
    rot_beyond_reading,
    rot_head,
    rotten_count,
)
from support.clocks import ManualClock
from support.log_model import read_log

pytestmark = pytest.mark.anyio

GROUP = "orders"
BY_PRODUCER = {"producer_group": GROUP}
BY_OPERATOR = {"by": "operator", "reason": "the money was there"}


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def app(tmp_path: Path, clock: ManualClock) -> Any:  # noqa: ANN401 - an async generator
    async with open_broker(tmp_path, clock, transactions_max=8) as app:
        yield app


@pytest.fixture
async def client(app: ServiceApp) -> Any:  # noqa: ANN401
    async with client_of(app) as client:
        await client.put("/topics/payments", json={"read_queue_count": 2, "write_queue_count": 2})
        yield client


def new(**fields: Any) -> dict[str, Any]:  # noqa: ANN401
    message = {"body": {"text": "pay"}} | fields.pop("message", {})
    return {
        "topic": "payments",
        "queue_id": 1,
        "producer_group": GROUP,
        "message": message,
    } | fields


async def begin(client: httpx.AsyncClient, **fields: Any) -> dict[str, Any]:  # noqa: ANN401
    answer = await client.post("/transactions", json=new(**fields))
    assert answer.status_code == 201, answer.text
    receipt: dict[str, Any] = answer.json()
    return receipt


async def act(
    client: httpx.AsyncClient, transaction_id: str, verb: str, body: object = BY_PRODUCER
) -> httpx.Response:
    return await client.post(f"/transactions/{transaction_id}:{verb}", json=body)


async def done(
    client: httpx.AsyncClient, transaction_id: str, verb: str, body: object = BY_PRODUCER
) -> dict[str, Any]:
    answer = await act(client, transaction_id, verb, body)
    assert answer.status_code == 200, answer.text
    shown: dict[str, Any] = answer.json()
    return shown


async def pull(client: httpx.AsyncClient, queue_id: int = 1) -> list[dict[str, Any]]:
    answer = await client.get(
        f"/topics/payments/queues/{queue_id}/messages", params={"offset": 0, "count_max": 100}
    )
    messages: list[dict[str, Any]] = answer.json()["messages"]
    return messages


async def shown(client: httpx.AsyncClient, transaction_id: str) -> dict[str, Any]:
    answer = await client.get(f"/transactions/{transaction_id}")
    assert answer.status_code == 200, answer.text
    detail: dict[str, Any] = answer.json()
    return detail


async def park(client: httpx.AsyncClient, transaction_id: str, checks: int = 1) -> dict[str, Any]:
    for number in range(1, checks + 1):
        await done(client, transaction_id, "check", {"number": number, "checker": "c"})
    return await done(client, transaction_id, "expire", {"checks": checks, "checker": "c"})


async def listed(client: httpx.AsyncClient, **query: str | int) -> list[str]:
    ids: list[str] = []
    while True:
        answer = await client.get("/transactions", params=query)
        assert answer.status_code == 200, answer.text
        ids += [item["transaction_id"] for item in answer.json()["transactions"]]
        if (cursor := answer.json()["next_cursor"]) is None:
            return ids
        query["cursor"] = cursor


# --- Committing and rolling back ------------------------------------------------------------------


async def test_a_message_is_seen_when_it_is_committed_and_as_it_was_begun(
    client: httpx.AsyncClient,
) -> None:
    receipt = await begin(
        client,
        message={"tag": "x", "keys": ["k"], "properties": {"a": "b"}, "flag": 3},
    )
    assert await pull(client) == []

    decided = await done(client, receipt["transaction_id"], "commit")

    [message] = await pull(client)
    assert message["message_id"] == receipt["transaction_id"]
    assert message["body"] == {"text": "pay"}
    assert (message["tag"], message["keys"], message["properties"], message["flag"]) == (
        "x",
        ["k"],
        {"a": "b"},
        3,
    )
    assert message["born_host"].startswith("10.1.2.3:")
    assert decided["message"] == {
        "topic": "payments",
        "queue_id": 1,
        "queue_offset": 0,
        "log_offset": message["log_offset"],
        "deliver_at": None,
    }
    assert (decided["state"], decided["outcome"], decided["by"], decided["repeated"]) == (
        "committed",
        "commit",
        "producer",
        False,
    )


async def test_the_trace_in_which_a_transaction_began_goes_with_its_message(
    client: httpx.AsyncClient,
) -> None:
    trace = {"traceparent": f"00-{'a' * 32}-{'b' * 16}-01", "tracestate": "vendor=1"}
    begun = await client.post("/transactions", json=new(), headers=trace)
    path = f"/transactions/{begun.json()['transaction_id']}:commit"
    other = {"traceparent": trace["traceparent"].replace("a", "c")}
    await client.post(path, json=BY_PRODUCER, headers=other)

    [message] = await pull(client)

    assert message["properties"] == trace


async def test_a_json_body_is_one_when_it_is_committed_and_begins_again_however_it_is_spelt(
    client: httpx.AsyncClient,
) -> None:
    content = (
        '{"topic": "payments", "queue_id": 1, "producer_group": "orders", "message": '
        '{"message_id": "t-1", "body": {"json": %s}}}'
    )
    headers = {"content-type": "application/json"}
    begun, again, other = [
        await client.post("/transactions", content=content % value, headers=headers)
        for value in ('{"a": 1, "b": 2}', '{"b":2.0,"a":1}', '{"a": 1}')
    ]
    await done(client, "t-1", "commit")

    [message] = await pull(client)

    assert (begun.status_code, again.status_code, other.status_code) == (201, 200, 409)
    assert message["body"] == {"json": {"a": 1, "b": 2}}


async def test_a_rolled_back_message_is_never_seen(client: httpx.AsyncClient) -> None:
    receipt = await begin(client)

    decided = await done(client, receipt["transaction_id"], "rollback")

    assert (decided["state"], decided["message"]) == ("rolled_back", None)
    assert await pull(client) == []
    assert await listed(client) == []


@pytest.mark.parametrize("verb", ["commit", "rollback"])
async def test_the_same_decision_again_is_answered_the_same(
    client: httpx.AsyncClient, verb: str
) -> None:
    transaction_id = (await begin(client))["transaction_id"]
    first = await done(client, transaction_id, verb, BY_PRODUCER | {"reason": "why"})

    again = await done(client, transaction_id, verb, BY_OPERATOR)

    assert again == first | {"repeated": True}
    assert len(await pull(client)) == (verb == "commit")


@pytest.mark.parametrize(("first", "second"), [("commit", "rollback"), ("rollback", "commit")])
async def test_the_opposite_decision_is_refused_and_told_who_was_first(
    client: httpx.AsyncClient, first: str, second: str
) -> None:
    transaction_id = (await begin(client))["transaction_id"]
    decided = await done(client, transaction_id, first, BY_PRODUCER | {"reason": "first"})

    refused = await act(client, transaction_id, second)

    problem = refused.json()
    assert (refused.status_code, problem["code"]) == (409, "already-decided")
    assert problem["decision"] == {
        "outcome": first,
        "by": "producer",
        "decided_at": decided["decided_at"],
        "reason": "first",
    }
    assert decided["decided_at"] in problem["detail"]
    assert "producer" in problem["detail"]
    assert len(await pull(client)) == (first == "commit")


async def test_of_decisions_at_the_same_time_one_wins_and_the_others_learn_it(
    client: httpx.AsyncClient,
) -> None:
    transaction_id = (await begin(client))["transaction_id"]

    answers = await asyncio.gather(
        *(act(client, transaction_id, ("commit", "rollback")[n % 2]) for n in range(8))
    )

    assert [answer.status_code for answer in answers] == [200, 409] * 4
    assert [answer.json()["repeated"] for answer in answers[::2]] == [False, True, True, True]
    assert len(await pull(client)) == 1


async def test_decisions_are_known_after_a_restart(tmp_path: Path) -> None:
    async with open_broker(tmp_path) as app, client_of(app) as client:
        pending, committed, dropped, given_up = [
            (await begin(client))["transaction_id"] for _ in range(4)
        ]
        receipt = await done(client, committed, "commit")
        await done(client, dropped, "rollback")
        await park(client, given_up)
        details = [await shown(client, one) for one in (pending, committed, dropped, given_up)]

    async with open_broker(tmp_path) as app, client_of(app) as client:
        assert await listed(client) == [pending, given_up]
        again = [await shown(client, one) for one in (pending, committed, dropped, given_up)]
        assert again == details
        assert await done(client, committed, "commit") == receipt | {"repeated": True}
        assert (await act(client, dropped, "commit")).status_code == 409
        assert (await act(client, given_up, "commit")).status_code == 409
        await done(client, pending, "commit")
        assert [m["message_id"] for m in await pull(client)] == [committed, pending]


async def test_a_delay_counts_from_the_commit(
    client: httpx.AsyncClient, clock: ManualClock, app: ServiceApp
) -> None:
    transaction_id = (await begin(client, message={"delay_seconds": 60}))["transaction_id"]
    clock.advance(1000)

    decided = await done(client, transaction_id, "commit")

    assert decided["message"]["queue_offset"] is None
    assert decided["message"]["deliver_at"] == "2023-11-14T22:31:00.000Z"
    [waiting] = (await client.get("/scheduled")).json()["scheduled"]
    assert (waiting["message_id"], waiting["topic"]) == (transaction_id, "payments")
    assert await done(client, transaction_id, "commit") == decided | {"repeated": True}
    assert await pull(client) == []
    clock.advance(60)
    while not await pull(client):
        await broker_of(app).timers.fire()
    [message] = await pull(client)
    assert message["message_id"] == transaction_id


async def test_no_part_of_a_delay_is_lost_on_the_way_to_the_commit(
    client: httpx.AsyncClient,
) -> None:
    for delay, due in (
        ({"delay_seconds": 0.0001}, "2023-11-14T22:13:20.001Z"),
        ({"deliver_at": "2023-11-14T22:13:20.0011Z"}, "2023-11-14T22:13:20.002Z"),
    ):
        transaction_id = (await begin(client, message=delay))["transaction_id"]
        assert (await done(client, transaction_id, "commit"))["message"]["deliver_at"] == due


@pytest.mark.parametrize("delay", [{"delay_level": 2}, {"deliver_at": "2023-11-14T22:13:30Z"}])
async def test_levels_and_times_delay_too_and_a_time_that_has_passed_does_not(
    client: httpx.AsyncClient, clock: ManualClock, delay: dict[str, Any]
) -> None:
    early = (await begin(client, message=delay))["transaction_id"]
    late = (await begin(client, message=delay))["transaction_id"]
    assert (await done(client, early, "commit"))["message"]["deliver_at"] is not None
    clock.advance(60)

    place = (await done(client, late, "commit"))["message"]

    assert (place["deliver_at"] is None) == ("deliver_at" in delay)


async def test_a_commit_waits_for_its_topic_to_be_there_again(client: httpx.AsyncClient) -> None:
    transaction_id = (await begin(client))["transaction_id"]
    await client.delete("/topics/payments")

    refused = await act(client, transaction_id, "commit")

    assert (refused.status_code, refused.json()["code"]) == (404, "topic-not-found")
    assert await listed(client) == [transaction_id]
    await client.put("/topics/payments", json={"read_queue_count": 1, "write_queue_count": 1})
    assert (await done(client, transaction_id, "commit"))["message"]["queue_id"] == 0


async def test_a_transaction_belongs_to_its_producer_group(client: httpx.AsyncClient) -> None:
    transaction_id = (await begin(client))["transaction_id"]
    other = {"producer_group": "others"}

    refused = await act(client, transaction_id, "rollback", other)
    assert (refused.status_code, refused.json()["code"]) == (409, "other-producer-group")
    await done(client, transaction_id, "commit")
    refused = await act(client, transaction_id, "commit", other)
    assert (refused.status_code, refused.json()["code"]) == (409, "other-producer-group")


# --- Beginning ------------------------------------------------------------------------------------


async def test_beginning_again_is_harmless_until_it_is_decided(client: httpx.AsyncClient) -> None:
    receipt = await begin(client, message={"message_id": "mine"})

    again = await client.post("/transactions", json=new(message={"message_id": "mine"}))
    other = await client.post(
        "/transactions", json=new(message={"message_id": "mine", "body": {"text": "other"}})
    )
    await done(client, "mine", "commit")
    late = await client.post("/transactions", json=new(message={"message_id": "mine"}))

    assert (again.status_code, again.json()) == (200, receipt | {"repeated": True})
    assert (other.status_code, other.json()["code"]) == (409, "transaction-id-in-use")
    assert (late.status_code, late.json()["code"]) == (409, "already-decided")
    assert len(await pull(client)) == 1


@pytest.mark.parametrize(
    "field",
    [
        {"tag": "cancelled"},
        {"keys": ["k", "l"]},
        {"sharding_key": "another"},
        {"properties": {"amount": "-100"}},
        {"flag": 4},
        {"delay_seconds": 61},
        {"delay_seconds": None, "delay_level": 5},
        {"delay_seconds": None},
    ],
    ids=str,
)
async def test_beginning_again_with_anything_else_in_the_message_is_refused(
    client: httpx.AsyncClient, field: dict[str, Any]
) -> None:
    message = {
        "message_id": "mine",
        "tag": "paid",
        "keys": ["k"],
        "sharding_key": "one",
        "properties": {"amount": "100"},
        "flag": 3,
        "delay_seconds": 60,
    }
    receipt = await begin(client, message=message)

    again = await client.post("/transactions", json=new(message=message, queue_id=0))
    other = await client.post("/transactions", json=new(message=message | field))

    assert (again.status_code, again.json()) == (200, receipt | {"repeated": True})
    assert (other.status_code, other.json()["code"]) == (409, "transaction-id-in-use")


async def test_beginning_again_once_it_would_be_due_is_harmless(
    client: httpx.AsyncClient, clock: ManualClock
) -> None:
    for name, deliver_at in (
        ("future", "2023-11-14T22:14:00Z"),
        ("past", "2023-11-14T22:13:00Z"),
    ):
        message = {"message_id": name, "deliver_at": deliver_at}
        receipt = await begin(client, message=message)
        clock.advance(60)

        again = await client.post("/transactions", json=new(message=message))

        assert (again.status_code, again.json()) == (200, receipt | {"repeated": True})


async def test_two_beginnings_at_the_same_time_are_one(client: httpx.AsyncClient) -> None:
    answers = await asyncio.gather(
        *(client.post("/transactions", json=new(message={"message_id": "one"})) for _ in range(4)),
        act(client, "one", "commit"),
    )

    assert [answer.status_code for answer in answers] == [201, 200, 200, 200, 200]
    assert len(await pull(client)) == 1


async def test_a_transaction_that_was_decided_long_ago_is_not_begun_again(
    client: httpx.AsyncClient, app: ServiceApp
) -> None:
    await begin(client, message={"message_id": "old"})
    await done(client, "old", "rollback")
    store = broker_of(app).store
    store.by_key("payments", "whatever", count_max=1, begin_ms=0, end_ms=0)  # the index catches up
    broker_of(app).transaction_views._log._recent.clear()

    late = await client.post("/transactions", json=new(message={"message_id": "old"}))

    assert (late.status_code, late.json()["code"]) == (409, "already-decided")


async def test_a_topic_is_created_by_beginning_where_sending_creates_it(
    client: httpx.AsyncClient,
) -> None:
    fields = new(topic="fresh", queue_id=None)

    answers = await asyncio.gather(*(client.post("/transactions", json=fields) for _ in range(2)))

    assert [answer.status_code for answer in answers] == [201, 201]
    assert {answer.json()["queue_id"] for answer in answers} <= set(range(4))
    assert (await client.get("/topics/fresh")).status_code == 200


async def test_as_many_are_pending_or_parked_as_may_be(client: httpx.AsyncClient) -> None:
    answers = await asyncio.gather(*(client.post("/transactions", json=new()) for _ in range(12)))

    assert sorted(answer.status_code for answer in answers) == [201] * 8 + [429] * 4
    refused = next(answer for answer in answers if answer.status_code == 429)
    assert "transactions_max" in refused.json()["detail"]
    assert "ERUCA_BROKER_TRANSACTIONS_MAX" in refused.json()["fix"]
    assert refused.headers["retry-after"]
    ids = await listed(client)
    await park(client, ids[0])
    assert (await client.post("/transactions", json=new())).status_code == 429
    await done(client, ids[0], "rollback", BY_OPERATOR)
    await begin(client)


async def test_no_consumer_sees_the_systems_topics(client: httpx.AsyncClient) -> None:
    await park(client, (await begin(client))["transaction_id"])

    for topic in (HALF_TOPIC, OP_HALF_TOPIC, CHECK_MAX_TOPIC):
        pulled = await client.get(f"/topics/{topic}/queues/0/messages", params={"offset": 0})
        sent = await client.post(f"/topics/{topic}/messages", json={"body": {"text": "x"}})
        begun = await client.post("/transactions", json=new(topic=topic))
        assert (pulled.status_code, sent.status_code, begun.status_code) == (404, 403, 403)


# --- Checks and giving up -------------------------------------------------------------------------


async def test_each_check_is_granted_once_and_in_turn(client: httpx.AsyncClient) -> None:
    transaction_id = (await begin(client))["transaction_id"]

    answers = await asyncio.gather(
        *(act(client, transaction_id, "check", {"number": 1, "checker": f"c{n}"}) for n in range(3))
    )
    assert [answer.status_code for answer in answers] == [200, 409, 409]
    assert answers[1].json()["code"] == "check-out-of-turn"
    skipped = await act(client, transaction_id, "check", {"number": 3, "checker": "c"})
    assert skipped.status_code == 409
    await done(client, transaction_id, "check", {"number": 2, "checker": "c"})

    detail = await shown(client, transaction_id)
    assert detail["checks"] == 2
    assert [entry["checker"] for entry in detail["history"]] == [None, "c0", "c"]


async def test_no_check_comes_before_the_immunity_is_over(
    client: httpx.AsyncClient, clock: ManualClock
) -> None:
    transaction_id = (await begin(client, check_immunity_seconds=2.5))["transaction_id"]
    clock.advance(2.4)
    for verb, body in (("check", {"number": 1}), ("expire", {"checks": 0})):
        early = await act(client, transaction_id, verb, body | {"checker": "c"})
        assert (early.status_code, early.json()["code"]) == (409, "check-out-of-turn")
    clock.advance(0.1)
    await done(client, transaction_id, "check", {"number": 1, "checker": "c"})


async def test_the_answer_to_a_check_decides(client: httpx.AsyncClient) -> None:
    transaction_id = (await begin(client))["transaction_id"]
    answer = BY_PRODUCER | {"by": "check", "check_number": 1}
    early = await act(client, transaction_id, "commit", answer)
    assert (early.status_code, early.json()["code"]) == (409, "check-out-of-turn")
    await done(client, transaction_id, "check", {"number": 1, "checker": "c"})
    await done(client, transaction_id, "check", {"number": 2, "checker": "c"})

    decided = await done(client, transaction_id, "commit", answer)

    assert (decided["by"], decided["check_number"]) == ("check", 1)
    late = await act(client, transaction_id, "check", {"number": 3, "checker": "c"})
    assert late.json()["decision"]["by"] == "check"
    refused = await act(client, transaction_id, "expire", {"checks": 2, "checker": "c"})
    assert refused.json()["code"] == "already-decided"


async def test_who_gives_up_must_know_how_often_was_asked(client: httpx.AsyncClient) -> None:
    transaction_id = (await begin(client))["transaction_id"]
    await done(client, transaction_id, "check", {"number": 1, "checker": "c"})

    stale = await act(client, transaction_id, "expire", {"checks": 0, "checker": "c"})

    assert (stale.status_code, stale.json()["code"]) == (409, "check-out-of-turn")
    parked = await done(client, transaction_id, "expire", {"checks": 1, "checker": "c"})
    assert (parked["state"], parked["by"]) == ("parked", "limit")
    again = await done(client, transaction_id, "expire", {"checks": 1, "checker": "d"})
    assert again == parked | {"repeated": True}


async def test_what_was_given_up_is_rolled_back_for_everyone_but_an_operator(
    client: httpx.AsyncClient,
) -> None:
    transaction_id = (await begin(client))["transaction_id"]
    await park(client, transaction_id)
    assert await pull(client) == []
    assert await listed(client, state="parked") == [transaction_id]
    assert await listed(client, state="pending") == []

    refused = await act(client, transaction_id, "commit")
    assert (refused.status_code, refused.json()["decision"]["by"]) == (409, "limit")
    assert (await done(client, transaction_id, "rollback"))["state"] == "parked"
    decided = await done(client, transaction_id, "commit", BY_OPERATOR)

    assert (decided["by"], decided["reason"]) == ("operator", BY_OPERATOR["reason"])
    [message] = await pull(client)
    assert message["message_id"] == transaction_id
    assert await listed(client) == []
    detail = await shown(client, transaction_id)
    assert [entry["event"] for entry in detail["history"]] == [
        "begun",
        "checked",
        "parked",
        "committed",
    ]


async def test_an_operator_discards_what_was_given_up(client: httpx.AsyncClient) -> None:
    transaction_id = (await begin(client))["transaction_id"]
    await park(client, transaction_id)

    assert (await done(client, transaction_id, "rollback", BY_OPERATOR))["state"] == "rolled_back"

    assert (await act(client, transaction_id, "commit", BY_OPERATOR)).status_code == 409
    assert await pull(client) == []


# --- Looking --------------------------------------------------------------------------------------


async def test_the_list_has_pages_and_filters(client: httpx.AsyncClient) -> None:
    ids = [
        (await begin(client, producer_group=f"group-{number % 2}"))["transaction_id"]
        for number in range(6)
    ]
    await park(client, ids[2])

    assert await listed(client, limit=2) == ids
    assert await listed(client, limit=1, producer_group="group-0") == ids[::2]
    assert await listed(client, producer_group="group-0", state="pending") == [ids[0], ids[4]]
    assert await listed(client, producer_group="nobody") == []


async def test_a_transaction_shows_its_message_and_its_history(client: httpx.AsyncClient) -> None:
    receipt = await begin(client, check_immunity_seconds=0.5, message={"keys": ["k"]})
    transaction_id = receipt["transaction_id"]

    pending = await shown(client, transaction_id)
    assert pending["state"] == "pending"
    assert pending["check_immunity_seconds"] == 0.5
    assert pending["message"]["body"] == {"text": "pay"}
    assert pending["message"]["keys"] == ["k"]
    assert pending["half_log_offset"] == receipt["half_log_offset"]
    decided = await done(client, transaction_id, "commit")
    over = await shown(client, transaction_id)

    assert over["state"] == "committed"
    assert over["message"] == pending["message"]
    assert over["committed"] == decided["message"]
    assert [entry["event"] for entry in over["history"]] == ["begun", "committed"]


@pytest.mark.parametrize("verb", [None, "commit", "check", "expire"])
async def test_what_nobody_began_is_not_found(client: httpx.AsyncClient, verb: str | None) -> None:
    bodies = {
        "commit": BY_PRODUCER,
        "check": {"number": 1, "checker": "c"},
        "expire": {"checks": 0, "checker": "c"},
    }
    if verb is None:
        answer = await client.get("/transactions/nobody")
    else:
        answer = await act(client, "nobody", verb, bodies[verb])
    assert (answer.status_code, answer.json()["code"]) == (404, "transaction-not-found")


# --- Nonsense -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "pointer"),
    [
        ({"topic": ""}, "/body/topic"),
        ({"topic": "a b"}, "/body/topic"),
        ({"producer_group": "a b"}, "/body/producer_group"),
        ({"producer_group": "a\n"}, "/body/producer_group"),
        ({"producer_group": None}, "/body/producer_group"),
        ({"queue_id": -1}, "/body/queue_id"),
        ({"check_immunity_seconds": -1}, "/body/check_immunity_seconds"),
        ({"check_immunity_seconds": 1e9}, "/body/check_immunity_seconds"),
        ({"extra": 1}, "/body/extra"),
        ({"message": {"message_id": "a/b"}}, "/body/message/message_id"),
        ({"message": {"message_id": ".."}}, "/body/message/message_id"),
        ({"message": {"message_id": "a b"}}, "/body/message/message_id"),
        ({"message": {"message_id": "a\0"}}, "/body/message/message_id"),
        ({"message": {"message_id": "a\x7f"}}, "/body/message/message_id"),
        ({"message": {"message_id": "x" * 256}}, "/body/message/message_id"),
        ({"message": {"body": {}}}, "/body/message/body"),
        ({"message": {"delay_seconds": 1, "delay_level": 1}}, "/body/message/delay_level"),
        ({"message": {"properties": {"TRAN_MSG": "x"}}}, "/body/message/properties/TRAN_MSG"),
    ],
)
async def test_a_beginning_that_makes_no_sense_is_refused_and_says_where(
    client: httpx.AsyncClient, fields: dict[str, Any], pointer: str
) -> None:
    answer = await client.post("/transactions", json=new(**fields))

    assert answer.status_code == 422, answer.text
    assert answer.json()["errors"][0]["pointer"] == pointer
    assert await listed(client) == []


@pytest.mark.parametrize(
    ("verb", "body"),
    [
        ("commit", {}),
        ("commit", {"producer_group": None}),
        ("commit", {"by": "operator"}),
        ("commit", {"by": "operator", "reason": ""}),
        ("commit", {"by": "limit", "producer_group": GROUP}),
        ("rollback", {"producer_group": GROUP, "check_number": 1}),
        ("rollback", {"producer_group": GROUP, "by": "check", "check_number": 0}),
        ("rollback", {"producer_group": GROUP, "reason": "x" * 1025}),
        ("rollback", {"producer_group": GROUP, "reason": "a\0"}),
        ("rollback", {"producer_group": GROUP, "by": "limit"}),
        ("check", {"number": 0, "checker": "c"}),
        ("check", {"number": 1, "checker": "\0"}),
        ("check", {"number": 1.5, "checker": "c"}),
        ("check", {"number": "1st", "checker": "c"}),
        ("check", {"number": 101, "checker": "c"}),
        ("check", {"number": 1, "checker": ""}),
        ("check", {"number": 1}),
        ("expire", {"checks": -1, "checker": "c"}),
        ("expire", {"checks": 0, "checker": "c", "outcome": "commit"}),
    ],
)
async def test_a_decision_that_makes_no_sense_changes_nothing(
    client: httpx.AsyncClient, verb: str, body: dict[str, Any]
) -> None:
    transaction_id = (await begin(client))["transaction_id"]

    answer = await act(client, transaction_id, verb, body)

    assert answer.status_code == 422, answer.text
    assert await listed(client) == [transaction_id]
    assert (await shown(client, transaction_id))["checks"] == 0


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b"\xff", b"null", b"[" * 5_000])
@pytest.mark.parametrize("path", ["/transactions", "/transactions/x:commit"])
async def test_a_body_that_is_no_request_is_refused(
    client: httpx.AsyncClient, path: str, body: bytes
) -> None:
    answer = await client.post(path, content=body, headers={"content-type": "application/json"})

    assert answer.status_code in (400, 422), answer.text
    assert answer.headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize("name", ["a:b", ":commit", "ü😀", "a%2Fb?c#d", "x" * 255, "~'\"<>\\;+"])
async def test_an_id_may_be_any_word_that_fits_into_a_path(
    client: httpx.AsyncClient, name: str
) -> None:
    receipt = await begin(client, message={"message_id": name})
    path = quote(name, safe="")

    assert receipt["transaction_id"] == name
    assert (await shown(client, path))["transaction_id"] == name
    await done(client, path, "check", {"number": 1, "checker": "c"})
    assert (await done(client, path, "commit"))["transaction_id"] == name
    [message] = await pull(client)
    assert message["message_id"] == name


@pytest.mark.parametrize("verb", ["commit", "rollback", "check", "expire", None])
@pytest.mark.parametrize("name", ["%00", "a%2Fb", "%20", "%FF", "x" * 256, "..%2F..", "%"])
async def test_an_id_that_cannot_be_one_is_refused(
    client: httpx.AsyncClient, name: str, verb: str | None
) -> None:
    bodies = {"check": {"number": 1, "checker": "c"}, "expire": {"checks": 0, "checker": "c"}}
    if verb is None:
        answer = await client.get(f"/transactions/{name}")
    else:
        answer = await act(client, name, verb, bodies.get(verb, BY_PRODUCER))

    assert answer.status_code in (400, 404, 405, 422), answer.text
    assert answer.headers["content-type"] == "application/problem+json"


async def test_unknown_verbs_methods_and_cursors_are_refused(client: httpx.AsyncClient) -> None:
    await begin(client, message={"message_id": "x"})
    for method, path, status in (
        ("POST", "/transactions/x:forget", 405),
        ("POST", "/transactions/x", 405),
        ("GET", "/transactions/x:commit", 404),
        ("PUT", "/transactions", 405),
        ("DELETE", "/transactions/x", 405),
        ("GET", "/transactions?cursor=nonsense", 422),
        ("GET", "/transactions?state=committed", 422),
        ("GET", "/transactions?limit=0", 422),
        ("POST", "/transactions?topic=a", 422),
    ):
        answer = await client.request(method, path, json=new() if method == "POST" else None)
        assert answer.status_code == status, (method, path, answer.text)
    assert (await act(client, "x" * 300, "commit")).status_code == 404


async def test_a_message_with_no_room_for_what_waiting_needs_is_too_large(
    client: httpx.AsyncClient,
) -> None:
    answer = await client.post(
        "/transactions", json=new(message={"properties": {"p": "x" * 32_500}})
    )

    assert (answer.status_code, answer.json()["code"]) == (413, "too-large")
    assert await listed(client) == []


# --- The log --------------------------------------------------------------------------------------


async def test_the_log_holds_what_a_rocketmq_broker_expects(
    tmp_path: Path, clock: ManualClock
) -> None:
    async with open_broker(tmp_path, clock) as app, client_of(app) as client:
        ids = [(await begin(client, check_immunity_seconds=7.5))["transaction_id"] for _ in "123"]
        clock.advance(8)
        await done(client, ids[0], "commit")
        await done(client, ids[1], "rollback")
        await park(client, ids[2], checks=2)

    records = list(read_log(tmp_path))
    halves = [record for record in records if record.topic == HALF_TOPIC]
    ops = [record for record in records if record.topic == OP_HALF_TOPIC]
    [final] = [record for record in records if record.topic == "payments"]
    [parked] = [record for record in records if record.topic == CHECK_MAX_TOPIC]
    assert [record.queue_offset for record in halves] == [0, 1, 2]
    for record, transaction_id in zip(halves, ids, strict=True):
        properties = record.property_map()
        assert record.sys_flag & SysFlag.ROLLBACK == 0
        assert properties["UNIQ_KEY"] == properties["__transactionId__"] == transaction_id
        assert (properties["REAL_TOPIC"], properties["REAL_QID"]) == ("payments", "1")
        assert (properties["TRAN_MSG"], properties["PGROUP"]) == ("true", GROUP)
        assert properties["CHECK_IMMUNITY_TIME_IN_SECONDS"] == "8"
    assert [(record.body, record.property_map()) for record in ops] == [
        (b"0,", {"TAGS": "d"}),
        (b"1,", {"TAGS": "d"}),
        (b"2,", {"TAGS": "d"}),
    ]
    assert final.sys_flag & SysFlag.ROLLBACK == SysFlag.COMMIT
    assert final.prepared_offset == halves[0].log_offset
    assert not {"TRAN_MSG", "REAL_TOPIC", "REAL_QID"} & final.property_map().keys()
    assert final.born_timestamp == halves[0].born_timestamp
    assert final.property_map()["UNIQ_KEY"] == ids[0]
    assert parked.body == halves[2].body
    assert parked.property_map()["TRANSACTION_CHECK_TIMES"] == "2"


async def test_metrics_count_what_has_become_of_transactions(client: httpx.AsyncClient) -> None:
    ids = [(await begin(client))["transaction_id"] for _ in range(4)]
    await done(client, ids[0], "commit")
    await act(client, ids[0], "rollback")
    await done(client, ids[1], "rollback", BY_OPERATOR)
    await park(client, ids[2])

    lines = (await client.get("http://localhost/metrics")).text.splitlines()

    for line in (
        "eruca_broker_transactions_pending 1.0",
        "eruca_broker_transactions_parked 1.0",
        "eruca_broker_transactions_begun_total 4.0",
        'eruca_broker_transactions_decided_total{by="producer",outcome="commit"} 1.0',
        'eruca_broker_transactions_decided_total{by="operator",outcome="rollback"} 1.0',
        'eruca_broker_transactions_decided_total{by="limit",outcome="rollback"} 1.0',
        "eruca_broker_transaction_checks_total 1.0",
        "eruca_broker_transaction_conflicts_total 1.0",
    ):
        assert line in lines


@pytest.mark.parametrize("damage", [rot, rot_head])
async def test_a_half_message_that_has_rotted_can_only_be_rolled_back(
    app: ServiceApp, client: httpx.AsyncClient, damage: Callable[[ServiceApp, bytes], None]
) -> None:
    await done(client, (await begin(client))["transaction_id"], "rollback")
    transaction_id = (await begin(client, message={"body": {"text": "rotten"}}))["transaction_id"]
    damage(app, b"rotten")

    committed = await act(client, transaction_id, "commit")
    given_up = await act(client, transaction_id, "expire", {"checks": 0, "checker": "c"})
    with pytest.raises(RecordNotFoundError, match=transaction_id):  # its segment stays
        await broker_of(app).transaction_carrier.carry_forward(2**62)
    rolled_back = await act(client, transaction_id, "rollback")

    for refused in (committed, given_up):
        assert (refused.status_code, refused.json()["code"]) == (404, "record-not-found")
        assert "cannot be read" in refused.json()["detail"]
        assert f"txn rollback {transaction_id} " in refused.json()["fix"]
    assert rolled_back.status_code == 200
    assert await pull(client) == []
    assert finished_halves(app) == [0, 1]  # or a broker of RocketMQ's would check it
    if damage is rot:
        assert rotten_count(app) == 1  # it was not spread
    await broker_of(app).transaction_carrier.carry_forward(2**62)


def finished_halves(app: ServiceApp) -> list[int]:
    """Return the queue offsets of half messages that op messages say are done with."""
    read = broker_of(app).store.queues.read(OP_HALF_TOPIC, 0, 0, count_max=32, bytes_max=1 << 20)
    return [offset for record in read.records() for offset in finished_offsets(record.body)]


async def test_what_was_given_up_and_has_rotted_since_can_be_discarded(
    app: ServiceApp, client: httpx.AsyncClient
) -> None:
    transaction_id = (await begin(client, message={"body": {"text": "rotten"}}))["transaction_id"]
    await park(client, transaction_id)
    rot_head(app, b"rotten")
    by_operator = {"by": "operator", "reason": "nobody can read it"}

    committed = await act(client, transaction_id, "commit", by_operator)
    await done(client, transaction_id, "rollback", by_operator)

    assert committed.status_code == 404
    assert (await shown(client, transaction_id))["state"] == "rolled_back"


@pytest.mark.parametrize("damage", [rot, rot_beyond_reading])
async def test_who_begins_again_what_has_rotted_is_told_so(
    app: ServiceApp, client: httpx.AsyncClient, damage: Callable[[ServiceApp, bytes], None]
) -> None:
    message = {"body": {"text": "rotten"}, "message_id": "one"}
    await begin(client, message=message)
    damage(app, b"rotten")

    again = await client.post("/transactions", json=new(message=message))

    assert (again.status_code, again.json()["code"]) == (404, "record-not-found")
    assert "is damaged" in again.json()["detail"]


@pytest.mark.parametrize("damage", [rot, rot_beyond_reading])
async def test_an_event_that_has_rotted_hides_no_other_transaction(
    app: ServiceApp, client: httpx.AsyncClient, damage: Callable[[ServiceApp, bytes], None]
) -> None:
    receipts = [await begin(client, message={"message_id": name}) for name in ("one", "two")]
    damage(app, b'{"event":"transaction_begun","transaction_id":"one"')

    first, second = (await client.get("/transactions")).json()["transactions"]

    assert (first["transaction_id"], second["transaction_id"]) == ("one", "two")
    is_told = damage is rot  # else where the half message begins cannot be told
    assert first["half_log_offset"] == (receipts[0]["half_log_offset"] if is_told else None)
    assert second["half_log_offset"] == receipts[1]["half_log_offset"]
    shown = await client.get("/transactions/one")
    assert (shown.status_code, shown.json()["state"]) == (200, "pending")
    decided = await act(client, "one", "commit")
    assert decided.status_code == (200 if is_told else 404)
    if not is_told:
        await done(client, "one", "rollback")
        assert finished_halves(app) == []  # which half message is its own cannot be told either


@pytest.mark.parametrize("end", ["commit", "expire", "carry"])
async def test_the_largest_half_message_that_is_taken_can_come_to_any_end(
    tmp_path: Path, end: str
) -> None:
    segment_bytes = 64 * 1024  # the smallest
    long, longest_id = "\x01" * REASON_SIZE_MAX, "\U0001f33f" * TRANSACTION_ID_SIZE_MAX

    async def begun(client: httpx.AsyncClient, size: int) -> httpx.Response:
        message = {"message_id": longest_id, "body": {"text": "x" * size}, "delay_seconds": 60}
        return await client.post("/transactions", json=new(message=message))

    async with open_broker(tmp_path, segment_bytes=segment_bytes) as app, client_of(app) as client:
        assert (await client.put("/topics/payments", json={})).is_success
        refused = await begun(client, segment_bytes - 10_000)
        sizes = [int(text) for text in re.findall(r"[0-9]+", refused.json()["detail"])]
        taken = await begun(client, segment_bytes - 10_000 - (sizes[0] - sizes[-1]))
        path = quote(longest_id)
        if end == "commit":
            ended = await act(client, path, "commit", BY_OPERATOR | {"reason": long})
        else:
            given_up = {"checks": 0, "checker": "\x01" * CHECKER_SIZE_MAX, "reason": long}
            if end == "carry":
                for _ in range(3):
                    body = {"body": {"text": "x" * 20_000}}
                    assert (await client.post("/topics/payments/messages", json=body)).is_success
                carrier = broker_of(app).transaction_carrier
                await carrier.carry_forward(broker_of(app).store.log_max_offset)
                assert carrier.carried_count == 1
            ended = await act(client, path, "expire", given_up)

    assert (refused.status_code, refused.json()["code"]) == (413, "too-large")
    assert taken.status_code == 201, taken.text
    assert ended.status_code == 200, ended.text


async def test_an_event_that_has_rotted_keeps_no_broker_from_starting(tmp_path: Path) -> None:
    async with open_broker(tmp_path, segment_bytes=64 * 1024) as app, client_of(app) as client:
        assert (await client.put("/topics/payments", json={})).is_success
        for name in ("one", "two"):
            await begin(client, message={"message_id": name})
        for _ in range(4):  # else the start would read the events, and refuse the damage
            body = {"body": {"text": "x" * 20_000}}
            assert (await client.post("/topics/payments/messages", json=body)).is_success
        rot_beyond_reading(app, b'{"event":"transaction_begun","transaction_id":"one"')

    async with open_broker(tmp_path, segment_bytes=64 * 1024) as app, client_of(app) as client:
        assert (await act(client, "two", "commit")).status_code == 200


@pytest.mark.parametrize("damage", [rot, rot_beyond_reading])
async def test_a_commit_whose_message_has_rotted_is_still_one(
    app: ServiceApp, client: httpx.AsyncClient, damage: Callable[[ServiceApp, bytes], None]
) -> None:
    await begin(client, message={"body": {"text": "rotten"}, "message_id": "one"})
    first = await done(client, "one", "commit")
    damage(app, b"rotten")

    again = await done(client, "one", "commit")
    shown = (await client.get("/transactions/one")).json()

    assert (again["state"], again["repeated"]) == ("committed", True)
    assert again["message"] == (first["message"] if damage is rot else None)
    assert shown["state"] == "committed"


@pytest.mark.parametrize("damage", [rot, rot_beyond_reading])
async def test_a_transaction_whose_parking_has_rotted_is_parked_without_a_reason(
    app: ServiceApp, client: httpx.AsyncClient, damage: Callable[[ServiceApp, bytes], None]
) -> None:
    await begin(client, message={"message_id": "one"})
    await done(client, "one", "expire", {"checks": 0, "checker": "c", "reason": "nobody knew"})
    damage(app, b'{"event":"transaction_parked","transaction_id":"one"')

    [parked] = (await client.get("/transactions")).json()["transactions"]

    assert parked["state"] == "parked"
    assert (parked["decision"]["by"], parked["decision"]["reason"]) == ("limit", None)


async def test_an_idempotency_key_is_refused_and_not_ignored(client: httpx.AsyncClient) -> None:
    headers = {"idempotency-key": '"order-17"'}
    refused = await client.post("/transactions", json=new(), headers=headers)

    assert (refused.status_code, refused.json()["code"]) == (422, "validation-failed")
    assert refused.json()["errors"][0]["pointer"] == "/header/idempotency-key"
    assert "message_id" in refused.json()["fix"]
