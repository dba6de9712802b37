"""Transactions that are committed or rolled back, once."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest

from eruca.contract.names import CHECK_MAX_TOPIC, HALF_TOPIC, OP_HALF_TOPIC
from eruca.contract.records import SysFlag
from eruca_chassis.app import ServiceApp
from support.brokers import broker_of, client_of, open_broker
from support.clocks import ManualClock
from support.log_model import read_log
from support.transaction_calls import (
    BY_OPERATOR,
    BY_PRODUCER,
    GROUP,
    act,
    begin,
    done,
    listed,
    new,
    park,
    pull,
    shown,
)

pytestmark = pytest.mark.anyio


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
