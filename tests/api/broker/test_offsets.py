"""Offsets of queues and of groups, offsets by time, messages by key."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from eruca.contract.limits import KEY_SIZE_MAX
from eruca.contract.properties import encode_properties
from eruca_chassis.app import ServiceApp
from support.brokers import (
    RECORDS,
    batch,
    broker_of,
    client_of,
    open_broker,
    record,
    rot,
    rot_beyond_reading,
    rot_head,
)
from support.clocks import ManualClock

pytestmark = pytest.mark.anyio


async def put(client: httpx.AsyncClient, text: str, **more: Any) -> dict[str, Any]:  # noqa: ANN401
    answer = await client.post(
        "/topics/orders/messages?queue_id=0", json={"body": {"text": text}, **more}
    )
    receipt: dict[str, Any] = answer.json()
    return receipt


async def commit(client: httpx.AsyncClient, *offsets: tuple[str, int, int]) -> httpx.Response:
    return await client.put(
        "/groups/g/offsets",
        json={
            "offsets": [
                {"topic": topic, "queue_id": queue_id, "offset": offset}
                for topic, queue_id, offset in offsets
            ]
        },
    )


async def test_queues_tell_where_they_begin_and_end(client: httpx.AsyncClient) -> None:
    first = await put(client, "a")
    last = await put(client, "b")

    queues = (await client.get("/topics/orders/queues")).json()["queues"]

    assert [queue["queue_id"] for queue in queues] == [0, 1, 2, 3]
    assert (queues[0]["min_offset"], queues[0]["max_offset"]) == (0, 2)
    assert queues[0]["earliest_stored_at"][:23] == first["stored_at"][:23]
    assert queues[0]["latest_stored_at"][:23] == last["stored_at"][:23]
    assert (queues[1]["max_offset"], queues[1]["latest_stored_at"]) == (0, None)


async def test_a_time_leads_to_an_offset(client: httpx.AsyncClient) -> None:
    stored_at = [(await put(client, text))["stored_at"] for text in "abc"]
    path = "/topics/orders/queues/0/offset"

    async def offset(timestamp: str, boundary: str) -> int:
        query = {"timestamp": timestamp, "boundary": boundary}
        answer = (await client.get(path, params=query)).json()
        assert (answer["topic"], answer["queue_id"]) == ("orders", 0)
        found: int = answer["offset"]
        return found

    assert await offset("2000-01-01T00:00:00Z", "lower") == 0
    assert await offset("2999-01-01T00:00:00+02:00", "lower") == 3
    assert await offset("2999-01-01T00:00:00Z", "upper") == 2
    assert await offset(stored_at[2], "upper") == 2
    assert await offset(stored_at[0], "lower") == 0
    for extreme in ("0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999Z"):
        assert await offset(extreme, "lower") in (0, 3)


@pytest.mark.parametrize("damage", [rot, rot_beyond_reading, rot_head])
async def test_a_damaged_message_does_not_hide_where_a_time_leads(
    client: httpx.AsyncClient, app: ServiceApp, damage: Callable[[ServiceApp, bytes], None]
) -> None:
    for text in ("a", "b", "rotten", "c", "d"):  # the one in the middle is looked at first
        await put(client, text)
    await client.put("/groups/g", json={})
    damage(app, b"rotten")

    for timestamp, offset in (("2001-01-01T00:00:00Z", 0), ("2999-01-01T00:00:00Z", 5)):
        path = "/topics/orders/queues/0/offset"
        told = await client.get(path, params={"timestamp": timestamp})
        wanted = {"topic": "orders", "queue_ids": [0], "to": timestamp}
        reset = await client.post("/groups/g/offsets:reset", json=wanted)

        assert (told.status_code, told.json()["offset"]) == (200, offset)
        assert (reset.status_code, reset.json()["queues"][0]["to_offset"]) == (200, offset)


async def test_a_queue_that_cannot_be_read_hides_none_of_the_others(
    client: httpx.AsyncClient, app: ServiceApp
) -> None:
    for queue_id in (0, 1):
        for text in "ab":
            body = {"body": {"text": text}}
            await client.post(f"/topics/orders/messages?queue_id={queue_id}", json=body)
    await commit(client, ("orders", 0, 1), ("orders", 1, 1))
    [file] = (broker_of(app).store.directory / "consumequeue" / "orders" / "0").iterdir()
    os.truncate(file, 0)

    queues = await client.get("/topics/orders/queues")
    group = await client.get("/groups/g/offsets")
    path = "/topics/orders/queues/0/offset?timestamp=2001-01-01T00:00:00Z"
    by_time = await client.get(path)

    assert [q["max_offset"] for q in queues.json()["queues"]] == [2, 2, 0, 0]
    times = [q["earliest_stored_at"] is None for q in queues.json()["queues"]]
    assert times == [True, False, True, True]
    assert [o["lag"] for o in group.json()["offsets"]] == [1, 1]
    assert group.json()["oldest_unconsumed_at"] is not None
    assert (by_time.status_code, by_time.json()["code"]) == (503, "unavailable")
    assert "consume queue 0 of 'orders'" in by_time.json()["detail"]


async def test_a_time_between_two_milliseconds_parts_what_was_stored_before_from_the_rest(
    client: httpx.AsyncClient,
) -> None:
    stored = [datetime.fromisoformat((await put(client, text))["stored_at"]) for text in "abc"]
    between = stored[0] + timedelta(microseconds=500)
    before = sum(moment < between for moment in stored)

    for boundary, offset in (("lower", before), ("upper", before - 1)):
        query = {"timestamp": between.isoformat(), "boundary": boundary}
        answer = await client.get("/topics/orders/queues/0/offset", params=query)
        assert answer.json()["offset"] == offset


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/topics/orders/queues/0/offset", 422),
        ("/topics/orders/queues/0/offset?timestamp=0001-01-01T00:00:00%2B23:59", 422),
        ("/topics/orders/queues/0/offset?timestamp=9999-12-31T23:59:59-23:59", 422),
        ("/topics/orders/queues/0/offset?timestamp=yesterday", 422),
        ("/topics/orders/queues/0/offset?timestamp=2026-01-01T00:00:00", 422),
        ("/topics/orders/queues/0/offset?timestamp=2026-01-01T00:00:00Z&boundary=middle", 422),
        ("/topics/orders/queues/4/offset?timestamp=2026-01-01T00:00:00Z", 404),
        ("/topics/unknown/queues/0/offset?timestamp=2026-01-01T00:00:00Z", 404),
    ],
)
async def test_a_time_that_leads_nowhere_is_refused(
    client: httpx.AsyncClient, path: str, status: int
) -> None:
    await put(client, "a")

    assert (await client.get(path)).status_code == status


async def test_a_group_stands_where_it_committed_and_nowhere_else(
    client: httpx.AsyncClient,
) -> None:
    _, second, _ = [await put(client, text) for text in "abc"]

    assert (await commit(client, ("orders", 0, 1))).status_code == 204

    wherever = (await client.get("/groups/g/offsets")).json()
    of_topic = (await client.get("/groups/g/offsets?topic=orders")).json()
    oldest = second["stored_at"]
    assert wherever == {
        "group": "g",
        "offsets": [
            {
                "topic": "orders",
                "queue_id": 0,
                "committed_offset": 1,
                "min_offset": 0,
                "max_offset": 3,
                "lag": 2,
                "oldest_unconsumed_at": oldest,
                "started": None,
                "owner": None,
            }
        ],
        "lag": 2,
        "oldest_unconsumed_at": oldest,
        # It has no start here: nobody knows how far its first commit moved.
        "traffic": [{"topic": "orders", "message_count": 0, "size_bytes": 0}],
        "traffic_since": wherever["traffic_since"],
    }
    assert [(o["queue_id"], o["committed_offset"], o["lag"]) for o in of_topic["offsets"]] == [
        (0, 1, 2),
        (1, None, None),
        (2, None, None),
        (3, None, None),
    ]


async def test_positions_may_go_backwards(
    client: httpx.AsyncClient,
) -> None:
    await put(client, "a")
    for offset, lag in ((1, 0), (0, 1), (1, 0)):
        await commit(client, ("orders", 0, offset))
        [position] = (await client.get("/groups/g/offsets")).json()["offsets"]
        assert (position["committed_offset"], position["lag"]) == (offset, lag)


@pytest.mark.parametrize(
    ("bad", "status"),
    [
        (("orders", 4, 0), 404),
        (("unknown", 0, 0), 404),
        (("n.o", 0, 0), 422),
        (("orders", 0, -1), 422),
    ],
)
async def test_all_positions_are_stored_or_none(
    client: httpx.AsyncClient, bad: tuple[str, int, int], status: int
) -> None:
    await put(client, "a")

    refused = await commit(client, ("orders", 0, 1), bad)

    assert refused.status_code == status
    assert refused.json()["errors"][0]["pointer"].startswith("/body/offsets/1")
    assert (await client.get("/groups/g/offsets")).json()["offsets"] == []


async def test_an_unknown_group_has_no_offsets_and_a_wrong_name_is_refused(
    client: httpx.AsyncClient,
) -> None:
    assert (await client.get("/groups/nobody/offsets")).json()["offsets"] == []
    assert (await client.get("/groups/n.o/offsets")).status_code == 422
    assert (await client.get("/groups/nobody/offsets?topic=unknown")).status_code == 404


async def test_messages_are_found_by_each_key_and_by_id_newest_first(
    client: httpx.AsyncClient,
) -> None:
    receipts = [await put(client, text, keys=["all", text]) for text in "abc"]

    async def found(**query: str | int) -> list[str]:
        answer = (await client.get("/topics/orders/messages", params=query)).json()
        assert answer["is_complete"] == (answer["next_cursor"] is None)
        return [message["body"]["text"] for message in answer["messages"]]

    assert await found(key="b") == ["b"]
    assert await found(key="all") == ["c", "b", "a"]
    assert await found(key="all", limit=2) == ["c", "b"]
    assert await found(key=receipts[1]["message_id"]) == ["b"]
    assert await found(key="nothing") == []
    assert await found(key="all", **{"since": "2999-01-01T00:00:00Z"}) == []
    assert await found(key="all", until="2000-01-01T00:00:00Z") == []
    assert len(await found(key="all", **{"since": receipts[0]["stored_at"]})) == 3


async def test_keys_with_one_hash_are_told_apart(client: httpx.AsyncClient) -> None:
    await put(client, "x", keys=["Aa"])

    found = (await client.get("/topics/orders/messages?key=BB")).json()

    assert found.pop("is_complete") is True
    assert found == {"messages": [], "next_cursor": None, "damaged": [], "incomplete": None}


@pytest.mark.parametrize("limit", [1, 3, 64, None])
async def test_all_messages_with_a_key_are_found_page_by_page(
    client: httpx.AsyncClient, app: ServiceApp, limit: int | None
) -> None:
    count = 130
    batch = [{"body": {"text": str(number)}, "keys": ["all"]} for number in range(count)]
    answer = await client.post("/topics/orders/messages", json={"messages": batch})
    assert answer.status_code == 201
    query: dict[str, str | int] = {"key": "all"} | ({} if limit is None else {"limit": limit})

    found: list[str] = []
    while True:
        page = (await client.get("/topics/orders/messages", params=query)).json()
        assert len(page["messages"]) <= (limit or 32)
        found += [message["body"]["text"] for message in page["messages"]]
        await put(client, "later", keys=["all"])  # which shifts no page
        assert page["is_complete"] == (page["next_cursor"] is None)
        if page["is_complete"]:
            break
        query["cursor"] = page["next_cursor"]

    assert found == [str(number) for number in reversed(range(count))]


async def test_as_many_as_the_limit_are_complete_where_there_are_no_more(
    client: httpx.AsyncClient,
) -> None:
    for text in "ab":
        await put(client, text, keys=["k"])

    answers = [
        (await client.get(f"/topics/orders/messages?key=k&limit={limit}")).json()
        for limit in (1, 2, 3)
    ]

    assert [answer["is_complete"] for answer in answers] == [False, True, True]


async def test_from_is_part_of_a_span_of_time_and_to_is_not(tmp_path: Path) -> None:
    clock = ManualClock()
    async with open_broker(tmp_path / "store", clock) as app, client_of(app) as client:
        stored_at = []
        for text in "abc":
            stored_at.append((await put(client, text, keys=["k"]))["stored_at"])
            clock.advance(0.001)
        a, b, c = stored_at

        async def found(**span: str) -> str:
            query = {"key": "k", **span}
            answer = (await client.get("/topics/orders/messages", params=query)).json()
            return "".join(message["body"]["text"] for message in answer["messages"])

        assert await found(**{"since": b}) == "cb"
        assert await found(until=b) == "a"
        assert await found(**{"since": a}, until=c) == "ba"
        assert await found(**{"since": b}, until=b) == ""
        assert await found(until=c.replace("Z", "5Z")) == "cba"  # half a millisecond later


LONG_KEYS = ("k" * 2_000, "k" * KEY_SIZE_MAX, "\N{GRINNING FACE}" * KEY_SIZE_MAX)


@pytest.mark.parametrize("key", LONG_KEYS, ids=["2 000", "the longest", "four bytes each"])
@pytest.mark.parametrize("way", ["JSON", "records"])
async def test_a_key_that_can_be_sent_can_be_asked_for(
    client: httpx.AsyncClient, key: str, way: str
) -> None:
    if way == "JSON":
        await put(client, "x", keys=[key])
    else:
        await client.put("/topics/orders", json={})
        properties = encode_properties({"KEYS": f"short {key}"})
        raw = record("orders", b"x", properties=properties)
        answer = await client.post(
            "/topics/orders/queues/0/records", content=batch([raw]), headers=RECORDS
        )
        assert answer.status_code == 201, answer.text

    found = await client.get("/topics/orders/messages", params={"key": key})

    assert len(str(found.request.url)) < 64 * 1024 - 1024  # a request's head has room for it
    assert [message["keys"][-1] for message in found.json()["messages"]] == [key]


@pytest.mark.parametrize("name", ["KEYS", "TAGS"])
async def test_a_key_or_tag_that_could_not_be_asked_for_is_not_stored(
    client: httpx.AsyncClient, app: ServiceApp, name: str
) -> None:
    await client.put("/topics/orders", json={})
    end = broker_of(app).store.log_max_offset
    word = "k" * (KEY_SIZE_MAX + 1)
    fields: dict[str, Any] = {"keys": ["a", word]} if name == "KEYS" else {"tag": word}
    raw = record("orders", b"x", properties=encode_properties({name: word}))

    as_json = await client.post("/topics/orders/messages", json={"body": {"text": "x"}} | fields)
    as_records = await client.post(
        "/topics/orders/queues/0/records",
        content=batch([record("orders"), raw]),
        headers=RECORDS,
    )
    asked = await client.get("/topics/orders/messages", params={"key": word})

    assert as_json.status_code == 422, as_json.text
    assert (as_records.status_code, as_records.json()["code"]) == (400, "malformed-records")
    assert f"the maximum is {KEY_SIZE_MAX}" in as_records.json()["detail"]
    assert asked.status_code == 422
    assert broker_of(app).store.log_max_offset == end


@pytest.mark.parametrize("cursor", ["", "x", "eA", "LTE"])
async def test_a_cursor_that_no_look_up_gave_is_refused(
    client: httpx.AsyncClient, cursor: str
) -> None:
    await put(client, "a", keys=["k"])

    answer = await client.get("/topics/orders/messages", params={"key": "k", "cursor": cursor})

    assert answer.status_code == 422
    assert answer.json()["errors"][0]["pointer"] == "/query/cursor"


@pytest.mark.parametrize("damage", [rot, rot_beyond_reading, rot_head])
async def test_a_search_that_meets_a_damaged_message_is_not_complete(
    client: httpx.AsyncClient, app: ServiceApp, damage: Callable[[ServiceApp, bytes], None]
) -> None:
    await put(client, "sound", keys=["k"])
    receipt = await put(client, "rotten", keys=["k"])
    damage(app, b"rotten")

    found = (await client.get("/topics/orders/messages?key=k")).json()

    assert [message["body"]["text"] for message in found["messages"]] == ["sound"]
    assert not found["is_complete"]
    [damaged] = found["damaged"]
    assert damaged["log_offset"] == receipt["log_offset"]


async def test_a_search_answer_ends_where_it_would_be_too_large(client: httpx.AsyncClient) -> None:
    for _ in range(4):
        await put(client, "x" * 3 * 1024**2, keys=["k"])

    answer = (await client.get("/topics/orders/messages?key=k")).json()

    assert (len(answer["messages"]), answer["is_complete"]) == (3, False)


@pytest.mark.parametrize(
    "query",
    [
        *("", "key=", "key=a&limit=0", "key=a&limit=65", "key=a&since=x", "key=a&until=5"),
        "key=a&since=2026-01-02T00:00:00Z&until=2026-01-01T00:00:00Z",
    ],
)
async def test_a_search_that_is_not_understood_is_422(
    client: httpx.AsyncClient, query: str
) -> None:
    await put(client, "a")

    assert (await client.get(f"/topics/orders/messages?{query}")).status_code == 422
    assert (await client.get("/topics/unknown/messages?key=a")).status_code == 404
