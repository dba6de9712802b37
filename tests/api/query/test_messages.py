"""Messages found over HTTP: by ids, by topic, key, tag and time, page by page."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

import numpy as np
import pytest
from sqlalchemy import select, text

import eruca
from eruca.contract.limits import BODY_SIZE_MAX
from eruca.contract.wire import OCTETS_MEDIA_TYPE
from eruca_query.core.key_hashes import hash_keys
from eruca_query.core.property_values import Slices
from eruca_query.projection.tables import chunks, names
from eruca_query.searching.life_sql import PLACES_MAX
from eruca_query.searching.message_search import COPIES_MAX
from eruca_query.searching.message_sql import READ_CHUNKS_MAX
from eruca_query.searching.whole_messages import BODIES_SIZE_MAX
from support.in_process_cluster import InProcessCluster
from support.query_services import Queried, queried_by
from support.times import moment
from support.waiting import until_next_millisecond

pytestmark = pytest.mark.anyio
TOPIC = "flights"


async def send(
    queried: Queried,
    count: int = 1,
    **fields: Any,  # noqa: ANN401  (Message's)
) -> list[eruca.SendResult]:
    """Send to whichever broker is next, in a later millisecond than whatever was sent before."""
    until_next_millisecond()
    async with queried.client.producer() as producer:
        sent = await producer.send_many(
            [eruca.Message(TOPIC, f"body {n}", **fields) for n in range(count)]
        )
    return list(sent)


def ids(page: dict[str, Any]) -> list[str]:
    return [message["message_id"] for message in page["messages"]]


async def test_a_message_is_found_by_either_id(queried: Queried) -> None:
    [sent] = await send(queried, tag="UA", keys=["UA1545"], properties={"origin": "EWR"})
    await queried.caught_up()

    for message_id in (sent.message_id, sent.offset_message_id, sent.offset_message_id.lower()):
        found = await queried.get(f"/v1/messages/{message_id}")

        message = found["message"]
        assert message["message_id"] == sent.message_id
        assert message["offset_message_id"] == sent.offset_message_id
        assert message["body"] == {"text": "body 0"}
        assert message["body_missing"] is None
        assert message["properties"] == {"origin": "EWR"}
        assert (message["tag"], message["keys"]) == ("UA", ["UA1545"])
        assert message["broker_name"] == sent.queue.broker_name
        assert found["also_stored"] == found["incomplete"] == []


@pytest.mark.parametrize("body", ["größer".encode(), bytes(range(256)), b"\0"])
async def test_a_body_comes_as_it_was_sent(queried: Queried, body: bytes) -> None:
    async with queried.client.producer() as producer:
        sent = await producer.send(eruca.Message(TOPIC, body))

    answer = await queried.http.get(
        f"/v1/messages/{sent.message_id}", headers={"accept": OCTETS_MEDIA_TYPE}
    )

    assert (answer.status_code, answer.content) == (200, body)
    assert answer.headers["content-type"] == OCTETS_MEDIA_TYPE


@pytest.mark.parametrize("message_id", ["order/17", "/", "a?b=c&d#e", "größer%2F东"])
async def test_an_id_of_a_clients_own_is_found_whatever_it_holds(
    queried: Queried, message_id: str
) -> None:
    await send(queried, message_id=message_id)

    for _ in ("in the log's tail", "in the rows"):
        found = await queried.client.query.message(message_id)
        told = await queried.client.query.timeline(message_id)

        assert found.message.message_id == told.message_id == message_id
        await queried.caught_up()


async def test_of_an_id_that_all_messages_have_the_first_are_told_and_that_there_are_more(
    queried: Queried,
) -> None:
    first = (await send(queried, COPIES_MAX, message_id="same-id"))[0]

    found = await queried.get("/v1/messages/same-id")
    assert (len(found["also_stored"]), found["incomplete"]) == (COPIES_MAX - 1, [])

    await send(queried, message_id="same-id")
    for _ in ("in the logs' tails", "in the rows"):
        found = await queried.get("/v1/messages/same-id")
        told = await queried.get("/v1/messages/same-id/timeline")

        places = [found["message"], *found["also_stored"]]
        assert len(places) == COPIES_MAX
        assert len(told["places"]) == PLACES_MAX
        assert [its["offset_message_id"] for its in told["places"]] == [
            its["offset_message_id"] for its in places[:PLACES_MAX]
        ]
        assert found["message"]["offset_message_id"] == first.offset_message_id
        assert [its["reason"] for its in found["incomplete"]] == ["too_many"]
        assert [its["reason"] for its in told["incomplete"]] == ["too_many"]
        await queried.caught_up()


async def test_how_far_the_read_model_has_come_is_told_of_each_broker(queried: Queried) -> None:
    await send(queried, 8)
    await queried.caught_up()

    page = await queried.get("/v1/messages", topic=TOPIC)

    assert [its["broker_name"] for its in page["read_model"]] == ["broker-a", "broker-b"]
    assert {its["behind_bytes"] for its in page["read_model"]} == {0}
    assert len(page["messages"]) == 8


async def test_messages_come_page_by_page_the_newest_first(queried: Queried) -> None:
    sent = await send(queried, 57, tag="UA")
    await queried.caught_up()

    pages: list[dict[str, Any]] = []
    cursor: dict[str, str] = {}
    while True:
        page = await queried.get("/v1/messages", topic=TOPIC, limit=10, **cursor)
        pages.append(page)
        if page["next_cursor"] is None:
            break
        cursor = {"cursor": page["next_cursor"]}

    shown = [message for page in pages for message in page["messages"]]
    assert [len(page["messages"]) for page in pages] == [10, 10, 10, 10, 10, 7]
    assert {message["message_id"] for message in shown} == {one.message_id for one in sent}
    times = [message["stored_at"] for message in shown]
    assert times == sorted(times, reverse=True)
    assert {message["body_missing"] for message in shown} == {"not_asked"}


async def test_a_key_a_tag_and_a_time_are_matched_exactly(queried: Queried) -> None:
    [first] = await send(queried, tag="UA", keys=["UA1545", "EWR"])
    [second] = await send(queried, tag="UA", keys=["UA15"])
    [third] = await send(queried, tag="AA", keys=["EWR"])
    await queried.caught_up()
    message = (await queried.get(f"/v1/messages/{second.message_id}"))["message"]

    by_key = await queried.get("/v1/messages", topic=TOPIC, key="EWR")
    by_part = await queried.get("/v1/messages", topic=TOPIC, key="UA15")
    by_tag = await queried.get("/v1/messages", topic=TOPIC, tag="UA")
    by_both = await queried.get("/v1/messages", topic=TOPIC, tag="AA", key="EWR")
    none = await queried.get("/v1/messages", topic=TOPIC, key="E")
    elsewhere = await queried.http.get("/v1/messages", params={"topic": "other"})
    until = await queried.get("/v1/messages", topic=TOPIC, until=message["stored_at"])
    at = datetime.fromisoformat(message["stored_at"])
    later = (at + timedelta(microseconds=500)).isoformat()
    since = await queried.get("/v1/messages", topic=TOPIC, **{"since": later})

    assert ids(by_key) == [third.message_id, first.message_id]
    assert ids(by_part) == [second.message_id]
    assert ids(by_tag) == [second.message_id, first.message_id]
    assert ids(by_both) == [third.message_id]
    assert ids(none) == []
    assert (elsewhere.status_code, elsewhere.json()["code"]) == (404, "topic-not-found")
    assert second.message_id not in ids(until)  # from is part of a span of time, to is not
    assert all(moment(m["stored_at"]) < moment(message["stored_at"]) for m in until["messages"])
    assert second.message_id not in ids(since)
    assert all(moment(m["stored_at"]) > moment(message["stored_at"]) for m in since["messages"])


async def test_keys_of_one_hash_are_told_apart_however_many_have_it(queried: Queried) -> None:
    await send(queried)
    await queried.caught_up()
    async with queried.database.transaction() as connection:
        topic_no = await connection.scalar(select(names.c.name_no).where(names.c.name == TOPIC))
    assert isinstance(topic_no, int)
    wanted, other = two_keys_of_one_hash(topic_no)
    [sent] = await send(queried, keys=[wanted])
    await send(queried, 20, keys=[other, f"{wanted}x"])
    await queried.caught_up()

    page = await queried.get("/v1/messages", topic=TOPIC, key=wanted, limit=1)

    assert ids(page) == [sent.message_id]
    assert page["next_cursor"] is None


def two_keys_of_one_hash(topic_no: int) -> tuple[str, str]:
    """Return two keys that PostgreSQL's index cannot tell apart."""
    seen: dict[int, str] = {}
    for first in count(step=50_000):
        keys = [f"k{number}" for number in range(first, first + 50_000)]
        sizes = np.array([len(key) for key in keys], np.int64)
        data = np.frombuffer("".join(keys).encode(), np.uint8)
        slices = Slices(data, np.cumsum(sizes) - sizes, sizes)
        hashes = hash_keys(slices, np.full(len(keys), topic_no, np.int64))
        for key, its_hash in zip(keys, hashes.tolist(), strict=True):
            if its_hash in seen:
                return seen[its_hash], key
            seen[its_hash] = key
    raise AssertionError("there are more keys than hashes")


async def test_a_page_comes_with_bodies_where_they_are_asked_for(queried: Queried) -> None:
    await send(queried, 3)
    await queried.caught_up()

    page = await queried.get("/v1/messages", topic=TOPIC, bodies=True, limit=2)

    assert {m["body"]["text"] for m in page["messages"]} < {"body 0", "body 1", "body 2"}
    assert len(page["messages"]) == 2


async def test_a_page_ends_where_its_bodies_would_be_too_large(queried: Queried) -> None:
    large = b"x" * (BODY_SIZE_MAX - 1)
    count = BODIES_SIZE_MAX // len(large) + 2
    async with queried.client.producer(compression_threshold_bytes=None) as producer:
        sent = [await producer.send(eruca.Message(TOPIC, large)) for _ in range(count)]
    await queried.caught_up()

    first = await queried.get("/v1/messages", topic=TOPIC, bodies=True)
    rest = await queried.get("/v1/messages", topic=TOPIC, bodies=True, cursor=first["next_cursor"])

    assert len(first["messages"]) == count - 2
    assert rest["next_cursor"] is None
    assert ids(first) + ids(rest) == [one.message_id for one in reversed(sent)]
    for message in (*first["messages"], *rest["messages"]):
        assert len(message["body"]["text"]) == len(large)


async def test_an_id_that_nobody_has_is_not_found(queried: Queried) -> None:
    [sent] = await send(queried)
    no_place = sent.offset_message_id[:-16] + "8000000000000000"
    await queried.caught_up()

    for message_id in ("7F0000010000A1B20000000100000001", no_place, "no-such-id", "%00%C3%BF"):
        answer = await queried.http.get(f"/v1/messages/{message_id}")

        assert answer.status_code == 404, answer.text
        assert answer.json()["code"] == "message-not-found"
        assert answer.json()["fix"]


@pytest.mark.parametrize(
    ("query", "pointer"),
    [
        ({}, "/query/topic"),
        ({"topic": "a b"}, "/query/topic"),
        ({"topic": "ERUCA_SYS_EVENTS"}, "/query/topic"),
        ({"topic": "RMQ_SYS_TRANS_OP_HALF_TOPIC"}, "/query/topic"),
        ({"topic": "t", "key": "a b"}, "/query/key"),
        ({"topic": "t", "limit": 0}, "/query/limit"),
        ({"topic": "t", "limit": 1001}, "/query/limit"),
        ({"topic": "t", "limit": 101, "bodies": True}, "/query/limit"),
        ({"topic": "t", "cursor": "nonsense"}, "/query/cursor"),
        ({"topic": "t", "cursor": "MTox"}, "/query/cursor"),
        ({"topic": "t", "since": "yesterday"}, "/query/since"),
        (
            {"topic": "t", "since": "2026-11-22T00:00:00Z", "until": "2026-11-21T00:00:00Z"},
            "/query/since",
        ),
        ({"topic": "t", "group_state": "perhaps"}, "/query/group_state"),
        ({"topic": "t", "group_state": "past"}, "/query/group_state"),
    ],
)
async def test_what_cannot_be_meant_is_refused(
    queried: Queried, query: dict[str, Any], pointer: str
) -> None:
    answer = await queried.http.get("/v1/messages", params=query)

    assert answer.status_code == 422, answer.text
    assert pointer in [error["pointer"] for error in answer.json()["errors"]]
    assert answer.json()["fix"]


async def test_times_are_told_in_utc(queried: Queried) -> None:
    before = datetime.now(UTC)
    [sent] = await send(queried)

    message = (await queried.get(f"/v1/messages/{sent.message_id}"))["message"]

    stored_at = datetime.fromisoformat(message["stored_at"])
    assert abs((stored_at - before).total_seconds()) < 60


async def test_a_page_that_no_index_leads_to_is_read_from_few_chunks_at_a_time(
    cluster: InProcessCluster, database_url: str
) -> None:
    async with queried_by(cluster, database_url, chunk_rows=1) as queried:
        for _ in range(2 * READ_CHUNKS_MAX):
            [last] = await send(queried, tag="UA")
            await queried.caught_up()
        async with queried.database.transaction() as connection:
            oldest = await connection.scalar(select(chunks.c.chunk).order_by(chunks.c.last_ms))
            # As if it took for ever to read.
            await connection.execute(text(f"LOCK TABLE messages_{oldest}"))

            page = await queried.get("/v1/messages", topic=TOPIC, tag="UA", limit=1)

    assert ids(page) == [last.message_id]


async def test_a_unique_id_of_several_topics_is_told_apart_by_the_topic(queried: Queried) -> None:
    async with queried.client.producer() as producer:
        for topic in (TOPIC, "bills"):
            message = eruca.Message(topic, f"of {topic}", message_id="order-17")
            await producer.send(message)
    path = "/v1/messages/order-17"
    octets = {"accept": "application/octet-stream"}

    found = {
        topic: (await queried.get(path, topic=topic))["message"]["body"]
        for topic in (TOPIC, "bills")
    }
    by_sdk = await queried.client.query.message("order-17", topic="bills")
    first = await queried.get(path)
    which = await queried.http.get(path, headers=octets)
    body = await queried.http.get(path, params={"topic": "bills"}, headers=octets)
    nowhere = await queried.http.get(path, params={"topic": "other"})

    assert found == {topic: {"text": f"of {topic}"} for topic in (TOPIC, "bills")}
    assert by_sdk.message.topic == "bills"
    assert [place["topic"] for place in first["also_stored"]] == ["bills"]
    assert (which.status_code, which.json()["errors"][0]["pointer"]) == (422, "/query/topic")
    assert (body.status_code, body.text) == (200, "of bills")
    assert nowhere.status_code == 404
