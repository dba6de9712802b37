"""Completeness of answers: the read model's progress, and the missing data with the reasons."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Any

import httpx
import msgspec
import pytest
from sqlalchemy import text

import eruca
from eruca.contract.limits import BODY_SIZE_MAX
from eruca.contract.records import Record
from eruca_broker.core.records.rendering import Rendered, render
from support.in_process_cluster import InProcessCluster
from support.query_services import Queried, queried_by
from support.waiting import until_next_millisecond, until_told

pytestmark = pytest.mark.anyio
TOPIC = "flights"


async def send(
    queried: Queried,
    count: int = 1,
    *,
    broker: str = "broker-a",
    **fields: Any,  # noqa: ANN401
) -> list[eruca.SendResult]:
    """Send to one broker, in a later millisecond than whatever was sent before."""
    until_next_millisecond()
    queue = eruca.MessageQueue(TOPIC, broker, 0)
    async with queried.client.producer() as producer:
        sent = await producer.send_many(
            [eruca.Message(TOPIC, f"body {n}", **fields) for n in range(count)], queue=queue
        )
    return list(sent)


async def create_topic(queried: Queried) -> None:
    await queried.client.admin.create_topic(TOPIC, queue_count=1)


def ids(page: dict[str, Any]) -> list[str]:
    return [message["message_id"] for message in page["messages"]]


def ids_of(sent: list[eruca.SendResult]) -> list[str]:
    return [one.message_id for one in sent]


def reasons(answer: dict[str, Any]) -> list[tuple[str | None, str]]:
    return [(its["broker_name"], its["reason"]) for its in answer["incomplete"]]


async def test_a_client_finds_what_it_has_just_sent_however_far_the_read_model_is(
    queried: Queried,
) -> None:
    await create_topic(queried)
    [old] = await send(queried, tag="UA", keys=["UA1"])
    await queried.caught_up()
    await queried.stop_following()
    [new] = await send(queried, tag="UA", keys=["UA1", "x"])
    [other] = await send(queried, broker="broker-b", tag="AA", keys=["UA1"])

    found = await queried.get(f"/v1/messages/{new.message_id}")
    by_offset = await queried.get(f"/v1/messages/{other.offset_message_id}")
    by_key = await queried.get("/v1/messages", topic=TOPIC, key="UA1")
    by_tag = await queried.get("/v1/messages", topic=TOPIC, tag="UA")
    newest = await queried.get("/v1/messages", topic=TOPIC, limit=1)
    next_page = await queried.get("/v1/messages", topic=TOPIC, cursor=newest["next_cursor"])

    assert found["message"]["body"] == by_offset["message"]["body"] == {"text": "body 0"}
    assert ids(by_key) == [other.message_id, new.message_id, old.message_id]
    assert ids(by_tag) == [new.message_id, old.message_id]
    assert ids(newest) + ids(next_page) == ids(by_key)
    assert reasons(found) == reasons(by_key) == []
    lags = {its["broker_name"]: its["behind_bytes"] for its in by_key["read_model"]}
    assert lags["broker-a"] > 0
    assert lags["broker-b"] > 0


async def test_what_is_too_far_behind_to_be_looked_through_is_said(
    cluster: InProcessCluster, database_url: str
) -> None:
    async with queried_by(cluster, database_url, tail_bytes_max=64 * 1024) as queried:
        await create_topic(queried)
        await queried.caught_up()
        await queried.stop_following()
        async with queried.client.producer() as producer:
            queue = eruca.MessageQueue(TOPIC, "broker-a", 0)
            sent = await producer.send_many(
                [eruca.Message(TOPIC, random.randbytes(10_000), keys=[f"k{n}"]) for n in range(20)],
                queue=queue,
            )

        early = await queried.get(f"/v1/messages/{sent[0].message_id}")
        late = await queried.get(f"/v1/messages/{sent[19].message_id}")
        life = await queried.get(f"/v1/messages/{sent[19].message_id}/timeline")
        unknown = await queried.http.get("/v1/messages/no-such-id")
        by_offset = await queried.get(f"/v1/messages/{sent[19].offset_message_id}")
        page = await queried.get("/v1/messages", topic=TOPIC)
        by_key = await queried.get("/v1/messages", topic=TOPIC, key="k19")

    for answer in (early, page, late, life):
        assert reasons(answer) == [("broker-a", "model_behind")]
    assert len(page["messages"]) < len(sent)
    assert by_offset["message"]["message_id"] == sent[19].message_id
    # The broker's own key index knows what the read model does not.
    assert late["message"]["message_id"] == sent[19].message_id
    assert [event["kind"] for event in life["events"]] == ["stored"]
    assert unknown.status_code == 503
    assert unknown.json()["code"] == "search-incomplete"
    assert unknown.json()["retryable"]
    assert "broker-a" in unknown.json()["detail"]
    assert ids(by_key) == [sent[19].message_id]
    assert reasons(by_key) == []


async def test_messages_that_are_too_large_for_one_answer_of_a_broker_are_said_to_be_missing(
    cluster: InProcessCluster, database_url: str
) -> None:
    async with queried_by(cluster, database_url, tail_bytes_max=64 * 1024) as queried:
        await create_topic(queried)
        await queried.caught_up()
        await queried.stop_following()
        queue = eruca.MessageQueue(TOPIC, "broker-a", 0)
        large = eruca.Message(TOPIC, b"x" * BODY_SIZE_MAX, keys=["UA1"])
        async with queried.client.producer(compression_threshold_bytes=None) as producer:
            sent = [await producer.send(large, queue=queue) for _ in range(4)]

        page = await queried.get("/v1/messages", topic=TOPIC, key="UA1")

    # The log's tail holds the first, however large it is; the broker's key index has the last two.
    assert ids(page) == [sent[number].message_id for number in (3, 2, 0)]
    assert reasons(page) == [("broker-a", "too_many")]
    assert "than the newest 2" in page["incomplete"][0]["detail"]


async def test_what_a_broker_tells_of_a_message_and_cannot_be_is_no_defect(
    cluster: InProcessCluster, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with queried_by(cluster, database_url, tail_bytes_max=64 * 1024) as queried:
        await create_topic(queried)
        await queried.caught_up()
        await queried.stop_following()
        bodies = [random.randbytes(10_000) for _ in range(20)]
        async with queried.client.producer() as producer:
            sent = await producer.send_many(
                [eruca.Message(TOPIC, body, keys=["UA1"]) for body in bodies],
                queue=eruca.MessageQueue(TOPIC, "broker-a", 0),
            )

        def in_an_odd_place(record: Record, *, body_room: int) -> Rendered:
            message, size = render(record, body_room=body_room)
            return Rendered(msgspec.structs.replace(message, log_offset=2**63), size)

        for module in ("api.messages.find", "core.records.rendering"):
            monkeypatch.setattr(f"eruca_broker.{module}.render", in_an_odd_place)

        by_key = await queried.get("/v1/messages", topic=TOPIC, key="UA1")
        by_offset = await queried.http.get(f"/v1/messages/{sent[0].offset_message_id}")
        life = await queried.http.get(f"/v1/messages/{sent[0].offset_message_id}/timeline")

    assert ("broker-a", "model_behind") in reasons(by_key)
    for answer in (by_offset, life):
        assert (answer.status_code, answer.json()["code"]) == (503, "search-incomplete")
        assert f"found {2**63}" in answer.json()["detail"]


async def test_a_broker_that_is_gone_is_named_and_what_is_known_of_it_is_still_told(
    cluster: InProcessCluster, database_url: str
) -> None:
    async with queried_by(cluster, database_url) as queried:
        await create_topic(queried)
        [sent] = await send(queried, broker="broker-b", keys=["UA1"])
        await queried.caught_up()
        await cluster.stop_broker("broker-b")

        async def incomplete() -> dict[str, Any]:
            return await queried.get("/v1/messages", topic=TOPIC)

        page = await until_told(incomplete, reasons)
        found = await queried.get(f"/v1/messages/{sent.message_id}")
        by_offset = await queried.get(f"/v1/messages/{sent.offset_message_id}")
        unknown = await queried.http.get("/v1/messages/no-such-id")
        elsewhere = await queried.get("/v1/messages", topic="other")

    for answer in (page, found, by_offset, elsewhere):
        assert reasons(answer) == [("broker-b", "broker_unreachable")]
        [position] = [its for its in answer["read_model"] if its["broker_name"] == "broker-b"]
        assert position["end_offset"] is position["behind_bytes"] is None
        assert position["log_offset"] > 0
    assert ids(page) == [sent.message_id]
    for answer in (found, by_offset):
        assert answer["message"]["message_id"] == sent.message_id
        assert answer["message"]["body"] is None
        assert answer["message"]["body_missing"] == "broker_unreachable"
    assert (unknown.status_code, unknown.json()["code"]) == (503, "search-incomplete")


async def test_a_plan_tells_of_a_broker_that_has_messages_of_the_topic_and_is_gone(
    cluster: InProcessCluster, database_url: str
) -> None:
    async with queried_by(cluster, database_url) as queried:
        await create_topic(queried)
        await queried.client.admin.create_topic("other", queue_count=1)
        await send(queried, 3)
        [sent] = await send(queried, broker="broker-b")
        await queried.caught_up()
        stored = (await queried.get(f"/v1/messages/{sent.message_id}"))["message"]["stored_at"]
        later = (datetime.fromisoformat(stored) + timedelta(milliseconds=1)).isoformat()
        whole = await queried.get(f"/v1/exports/{TOPIC}/plan")
        await cluster.stop_broker("broker-b")

        async def plan() -> dict[str, Any]:
            answer = await queried.http.get(f"/v1/exports/{TOPIC}/plan")
            told: dict[str, Any] = answer.json()
            return told

        rest = await until_told(plan, lambda told: told.get("rows") == 3)
        before = await queried.get(f"/v1/exports/{TOPIC}/plan", until=stored)
        since = await queried.get(f"/v1/exports/{TOPIC}/plan", **{"since": stored})
        behind = await queried.get(f"/v1/exports/{TOPIC}/plan", **{"since": later})
        other = await queried.get("/v1/exports/other/plan")

    assert (whole["rows"], whole["incomplete"]) == (4, [])
    for answer in (rest, since):
        assert reasons(answer) == [("broker-b", "broker_unreachable")]
    for answer in (before, behind, other):
        assert reasons(answer) == []


async def test_without_name_servers_what_is_known_is_told_and_the_rest_is_said_to_be_missing(
    cluster: InProcessCluster, database_url: str
) -> None:
    async with queried_by(cluster, database_url) as queried:
        await create_topic(queried)
        [sent] = await send(queried)
        await queried.caught_up()
        await cluster.stop_name_servers()

        async def incomplete() -> dict[str, Any]:
            return await queried.get("/v1/messages", topic=TOPIC)

        page = await until_told(incomplete, reasons)

    assert (None, "name_servers_unreachable") in reasons(page)
    assert ids(page) == [sent.message_id]


async def test_a_stretch_of_the_log_that_nobody_read_in_time_is_said_to_be_missing(
    queried: Queried,
) -> None:
    await create_topic(queried)
    await send(queried, 3)
    await queried.caught_up()
    # As if the broker had deleted what comes next before it was read: the position is where the
    # log goes on, and not where the rows end.
    await move_position(queried, -7)
    [sent] = await send(queried)
    await queried.caught_up()

    page = await queried.get("/v1/messages", topic=TOPIC)
    status = await queried.get("/v1/status")
    unknown = await queried.http.get("/v1/messages/no-such-id")

    assert reasons(page) == [("broker-a", "log_gap")]
    assert sent.message_id in ids(page)
    assert [its["gaps"] for its in status["followed"]] == [1, 0]
    assert unknown.status_code == httpx.codes.NOT_FOUND


async def test_where_a_log_does_not_go_on_what_is_not_found_may_be_there(
    queried: Queried,
) -> None:
    await create_topic(queried)
    await send(queried, 3)
    await queried.caught_up()
    await queried.stop_following()
    # As if the broker had begun a new log, which has no record where the rows end.
    await move_position(queried, -7)
    [sent] = await send(queried, keys=["UA1"])

    unknown = await queried.http.get("/v1/messages/no-such-id")
    found = await queried.get(f"/v1/messages/{sent.message_id}")
    by_key = await queried.get("/v1/messages", topic=TOPIC, key="UA1")
    page = await queried.get("/v1/messages", topic=TOPIC)

    assert (unknown.status_code, unknown.json()["code"]) == (503, "search-incomplete")
    for answer in (found, by_key, page):
        assert reasons(answer) == [("broker-a", "log_gap")]
    # The broker's own key index knows it.
    assert found["message"]["message_id"] == sent.message_id
    assert ids(by_key) == [sent.message_id]


async def move_position(queried: Queried, by: int) -> None:
    """Have the rows of the first broker end elsewhere in its log."""
    async with queried.database.transaction() as connection:
        await connection.execute(
            text(
                "UPDATE generations SET log_offset = log_offset + :by FROM brokers "
                "WHERE generations.broker_no = brokers.broker_no AND broker_name = 'broker-a'"
            ),
            {"by": by},
        )


async def test_messages_of_a_topic_that_was_deleted_are_not_listed_but_known_by_id(
    queried: Queried,
) -> None:
    await create_topic(queried)
    [before] = await send(queried, keys=["UA1"])
    await queried.client.admin.delete_topic(TOPIC)
    await create_topic(queried)
    [after] = await send(queried, keys=["UA1"])

    for _ in ("in the log's tail", "in the rows"):
        assert ids(await queried.get("/v1/messages", topic=TOPIC)) == [after.message_id]
        assert ids(await queried.get("/v1/messages", topic=TOPIC, key="UA1")) == [after.message_id]
        found = await queried.get(f"/v1/messages/{before.message_id}")
        assert found["message"]["body"] == {"text": "body 0"}
        await queried.caught_up()


async def test_what_a_group_has_read_and_what_not_is_told_apart(queried: Queried) -> None:
    await create_topic(queried)
    sent = await send(queried, 5)
    broker = (await queried.client.admin.brokers())[0].brokers[0].urls["default"]
    async with httpx.AsyncClient(base_url=f"{broker}/v1", trust_env=False) as http:
        await http.put("/groups/billing", json={"start": "earliest"})
        commit = {"topic": TOPIC, "queue_id": 0, "offset": 3}
        await http.put("/groups/billing/offsets", json={"offsets": [commit]})
    await queried.caught_up()

    past = await queried.get("/v1/messages", topic=TOPIC, group="billing", group_state="past")
    not_yet = await queried.get("/v1/messages", topic=TOPIC, group="billing")
    unknown = await queried.http.get("/v1/messages", params={"topic": TOPIC, "group": "nobody"})

    assert {*ids(past)} == {one.message_id for one in sent[:3]}
    assert {*ids(not_yet)} == {one.message_id for one in sent[3:]}
    assert (unknown.status_code, unknown.json()["code"]) == (404, "group-not-found")


async def pages(queried: Queried, **query: Any) -> list[str]:  # noqa: ANN401
    """Return the ids of all pages, of which none may tell of something missing."""
    found: list[str] = []
    cursor: dict[str, str] = {}
    while True:
        page = await queried.get("/v1/messages", topic=TOPIC, limit=5, **query, **cursor)
        assert page["incomplete"] == []
        found += ids(page)
        if page["next_cursor"] is None:
            return found
        cursor = {"cursor": page["next_cursor"]}


@asynccontextmanager
async def broker_http(queried: Queried, name: str = "broker-a") -> AsyncIterator[httpx.AsyncClient]:
    groups = {group.broker_name: group for group in await queried.client.admin.brokers()}
    url = groups[name].brokers[0].urls["default"]
    async with httpx.AsyncClient(base_url=url, trust_env=False) as http:
        yield http


async def commit(queried: Queried, group: str, offset: int) -> None:
    """Have a group stand at an offset of the topic's queue on the first broker."""
    position = {"topic": TOPIC, "queue_id": 0, "offset": offset}
    async with broker_http(queried) as http:
        answer = await http.put(f"/v1/groups/{group}/offsets", json={"offsets": [position]})
    assert answer.is_success, answer.text


async def test_a_position_that_only_the_log_tells_decides_which_messages_come(
    queried: Queried,
) -> None:
    await create_topic(queried)
    old = ids_of(await send(queried, 20))
    await commit(queried, "billing", 0)
    await commit(queried, "audit", 20)
    await queried.caught_up()
    await queried.stop_following()
    new = ids_of(await send(queried, 2))
    await commit(queried, "billing", 15)
    await commit(queried, "audit", 3)
    await commit(queried, "latecomer", 21)

    for group, offset in (("billing", 15), ("audit", 3), ("latecomer", 21)):
        past = await pages(queried, group=group, group_state="past")
        not_yet = await pages(queried, group=group)

        assert sorted(past) == sorted([*old, *new][:offset])
        assert sorted(not_yet) == sorted([*old, *new][offset:])


async def test_a_group_that_only_the_log_tells_to_be_gone_has_read_nothing(
    queried: Queried,
) -> None:
    await create_topic(queried)
    sent = ids_of(await send(queried, 8))
    await commit(queried, "billing", 8)
    await queried.caught_up()
    await queried.stop_following()
    async with broker_http(queried) as http:
        assert (await http.delete("/v1/groups/billing")).is_success

    assert await pages(queried, group="billing", group_state="past") == []
    assert sorted(await pages(queried, group="billing")) == sorted(sent)


async def test_a_topics_end_that_only_the_log_tells_hides_nothing_of_other_brokers(
    queried: Queried,
) -> None:
    await create_topic(queried)
    kept = ids_of(await send(queried, 12))
    await send(queried, 20, broker="broker-b")
    await queried.caught_up()
    await queried.stop_following()
    async with broker_http(queried, "broker-b") as http:
        assert (await http.delete(f"/v1/topics/{TOPIC}")).is_success

    assert sorted(await pages(queried)) == sorted(kept)
