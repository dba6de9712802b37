"""Topics, as a client sees them."""

from __future__ import annotations

import json
from pathlib import Path

import httpx
import pytest

from eruca.contract.hashing import queue_of_hash, string_hash
from eruca.contract.records import Host
from eruca_broker.core.batches.batch import batch_of_records
from eruca_broker.core.state.events import TopicPut
from eruca_chassis.app import ServiceApp
from support.brokers import broker_of, client_of, open_broker, record
from support.waiting import until

pytestmark = pytest.mark.anyio
HOST = Host.parse("127.0.0.1", 10_911)


def order(version: int, **queues: int) -> dict[str, object]:
    return {"version": version, "queues": queues}


def ordered(version: int, **queues: int) -> dict[str, object]:
    """Return an ordered topic's settings."""
    return {"ordered": True, "order_config": order(version, **queues)}


async def test_a_topic_is_created_once_and_changed_thereafter(client: httpx.AsyncClient) -> None:
    created = await client.put("/topics/orders", json={"write_queue_count": 2, "ordered": True})
    changed = await client.put("/topics/orders", json={"permission": "r"})
    read = await client.get("/topics/orders")

    assert (created.status_code, changed.status_code) == (201, 200)
    assert created.json() == {
        "topic": "orders",
        "read_queue_count": 4,
        "write_queue_count": 2,
        "permission": "rw",
        "ordered": True,
        "order_config": None,
        "is_system": False,
    }
    assert changed.json() == read.json()
    assert (read.json()["permission"], read.json()["ordered"]) == ("r", True)
    assert read.json()["write_queue_count"] == 2  # what is not named stays as it is


@pytest.mark.parametrize(
    ("named", "counts"),
    [
        ({}, (4, 4)),
        ({"read_queue_count": 2}, (2, 2)),
        ({"read_queue_count": 8}, (8, 4)),
        ({"write_queue_count": 8}, (8, 8)),
        ({"write_queue_count": 2}, (4, 2)),
        ({"read_queue_count": 8, "write_queue_count": 1}, (8, 1)),
    ],
)
async def test_a_new_topic_has_no_queue_to_write_to_that_nobody_reads(
    client: httpx.AsyncClient, named: dict[str, int], counts: tuple[int, int]
) -> None:
    created = (await client.put("/topics/orders", json=named)).json()

    assert (created["read_queue_count"], created["write_queue_count"]) == counts


@pytest.mark.parametrize(
    "counts",
    [
        {"read_queue_count": 2},
        {"write_queue_count": 5},
        {"read_queue_count": 2, "write_queue_count": 3},
    ],
)
async def test_more_queues_to_write_to_than_to_read_are_refused(
    client: httpx.AsyncClient, counts: dict[str, int]
) -> None:
    before = (await client.put("/topics/orders", json={})).json()

    answer = await client.put("/topics/orders", json=counts)

    assert answer.status_code == 422, answer.text
    assert answer.json()["errors"][0]["pointer"] == "/body/write_queue_count"
    assert (await client.get("/topics/orders")).json() == before


async def test_an_order_config_stays_until_a_later_one_comes_or_order_is_given_up(
    tmp_path: Path,
) -> None:
    directory = tmp_path / "kept"
    async with open_broker(directory) as app, client_of(app) as client:
        await client.put("/topics/orders", json=ordered(2, a=4, b=2))
        await client.put("/topics/orders", json={"ordered": True, "permission": "r"})
        older = await client.put("/topics/orders", json=ordered(1, a=4))

        assert (older.status_code, older.json()["code"]) == (409, "conflict")
        kept = (await client.get("/topics/orders")).json()
        assert kept["order_config"] == {"version": 2, "queues": {"a": 4, "b": 2}}

    async with open_broker(directory) as app, client_of(app) as client:
        assert (await client.get("/topics/orders")).json() == kept
        unchanged = await client.put("/topics/orders", json={})
        assert unchanged.json() == kept
        given_up = await client.put("/topics/orders", json={"ordered": False})
        assert given_up.json()["order_config"] is None


async def test_a_message_whose_key_is_at_another_broker_is_sent_there(
    client: httpx.AsyncClient,
) -> None:
    await client.put("/topics/orders", json=ordered(1, **{"broker-a": 4, "broker-b": 4}))
    outcomes = set()
    for number in range(40):
        message = {"body": {"text": "x"}, "sharding_key": f"customer-{number}"}
        sent = await client.post("/topics/orders/messages", json=message)
        queue_id = queue_of_hash(string_hash(f"customer-{number}"), 8)
        outcomes.add(queue_id < 4)
        if queue_id < 4:  # this is broker-a
            assert (sent.status_code, sent.json()["queue_id"]) == (201, queue_id)
        else:
            assert (sent.status_code, sent.json()["code"]) == (421, "misdirected")
            assert "broker-b" in sent.json()["fix"]
    assert outcomes == {True, False}

    keyless = await client.post("/topics/orders/messages", json={"body": {"text": "x"}})
    named = await client.post(
        "/topics/orders/messages?queue_id=3", json={"body": {"text": "x"}, "sharding_key": "k"}
    )
    assert (keyless.status_code, named.status_code) == (201, 201)


async def test_settings_as_they_were_change_nothing(client: httpx.AsyncClient) -> None:
    await client.put("/topics/orders", json={})
    before = (await client.get("/status")).json()["log"]["max_offset"]

    again = await client.put("/topics/orders", json={})

    assert again.status_code == 200
    assert (await client.get("/status")).json()["log"]["max_offset"] == before


async def test_a_deleted_topic_starts_over(client: httpx.AsyncClient) -> None:
    message = {"body": {"text": "x"}}
    for _ in range(3):
        await client.post("/topics/orders/messages?queue_id=0", json=message)
    await client.put(
        "/groups/g/offsets", json={"offsets": [{"topic": "orders", "queue_id": 0, "offset": 3}]}
    )

    assert (await client.delete("/topics/orders")).status_code == 204

    assert (await client.get("/topics/orders")).status_code == 404
    assert (await client.delete("/topics/orders")).json()["code"] == "topic-not-found"
    assert (await client.get("/groups/g/offsets")).json()["offsets"] == []
    sent = await client.post("/topics/orders/messages?queue_id=0", json=message)
    assert sent.json()["queue_offset"] == 0


async def test_fewer_queues_put_the_others_out_of_reach(client: httpx.AsyncClient) -> None:
    message = {"body": {"text": "x"}}
    await client.post("/topics/orders/messages?queue_id=3", json=message)

    await client.put("/topics/orders", json={"read_queue_count": 3, "write_queue_count": 1})

    assert (
        await client.post("/topics/orders/messages?queue_id=1", json=message)
    ).status_code == 404
    assert (await client.get("/topics/orders/queues/2/messages?offset=0")).status_code == 200
    assert (await client.get("/topics/orders/queues/3/messages?offset=0")).status_code == 404
    await client.put("/topics/orders", json={"read_queue_count": 4})
    again = await client.get("/topics/orders/queues/3/messages?offset=0")
    assert len(again.json()["messages"]) == 1


async def send_forty(client: httpx.AsyncClient) -> None:
    """Send ten messages to each queue of orders; group g has read three of each."""
    for queue_id in range(4):
        messages = [{"body": {"text": "x"}}] * 10
        path = f"/topics/orders/messages?queue_id={queue_id}"
        assert (await client.post(path, json={"messages": messages})).status_code == 201
    commits = [{"topic": "orders", "queue_id": queue_id, "offset": 3} for queue_id in range(4)]
    assert (await client.put("/groups/g/offsets", json={"offsets": commits})).is_success


async def test_queues_that_a_group_has_still_to_read_are_not_taken_away(
    client: httpx.AsyncClient,
) -> None:
    await send_forty(client)
    before = (await client.get("/topics/orders")).json()
    fewer = {"read_queue_count": 2, "write_queue_count": 2}

    refused = await client.put("/topics/orders", json=fewer)
    kept = (await client.get("/topics/orders")).json()
    for queue_id in (2, 3):
        done = [{"topic": "orders", "queue_id": queue_id, "offset": 10}]
        await client.put("/groups/g/offsets", json={"offsets": done})
    done_with = await client.put("/topics/orders", json=fewer)

    assert (refused.status_code, refused.json()["code"]) == (409, "conflict")
    assert "14 unread messages" in refused.json()["detail"]
    assert [error["detail"] for error in refused.json()["errors"]] == [
        f"group 'g' has 7 unread messages in queue {queue_id}" for queue_id in (2, 3)
    ]
    assert kept == before
    assert (done_with.status_code, done_with.json()["read_queue_count"]) == (200, 2)


async def test_what_a_group_has_not_read_of_queues_taken_by_force_counts_as_lag(
    client: httpx.AsyncClient,
) -> None:
    await send_forty(client)

    fewer = {"read_queue_count": 2, "write_queue_count": 2}
    forced = await client.put("/topics/orders?force=true", json=fewer)

    assert forced.status_code == 200, forced.text
    for query in ("", "?topic=orders"):
        offsets = (await client.get(f"/groups/g/offsets{query}")).json()
        assert offsets["lag"] == 28
        assert [its["lag"] for its in offsets["offsets"]] == [7, 7, 7, 7]


@pytest.mark.parametrize("prefix", ["RETRY", "DLQ"])
async def test_what_follows_a_group_is_not_deleted_before_it(
    client: httpx.AsyncClient, app: ServiceApp, prefix: str
) -> None:
    name = f"%{prefix}%g"
    await client.put("/groups/g", json={})
    await broker_of(app).store.change(TopicPut(name, 1, 1, "rw"))
    letters = batch_of_records(name, 0, [record(name)] * 5)
    await broker_of(app).store.append(letters, HOST)
    path = f"/topics/%25{prefix}%25g"

    refused = await client.delete(path)
    queues = (await client.get(f"{path}/queues")).json()["queues"]
    await client.delete("/groups/g")
    of_nobody = await client.delete(path)

    assert (refused.status_code, refused.json()["code"]) == (409, "conflict")
    assert "belongs to group 'g', and contains 5 messages" in refused.json()["detail"]
    assert queues[0]["max_offset"] == 5
    assert of_nobody.status_code == (404 if prefix == "RETRY" else 204)  # retries go with it


async def test_topics_are_listed_by_name_a_page_at_a_time(client: httpx.AsyncClient) -> None:
    names = [f"t{number:02}" for number in range(7)]
    for name in reversed(names):
        await client.put(f"/topics/{name}", json={})

    seen: list[str] = []
    cursor = None
    while True:
        query = {"limit": 3} | ({"cursor": cursor} if cursor else {})
        page = (await client.get("/topics", params=query)).json()
        assert len(page["topics"]) <= 3
        seen += [topic["topic"] for topic in page["topics"]]
        cursor = page["next_cursor"]
        if cursor is None:
            break

    assert seen == names
    everything = (await client.get("/topics", params={"include_system": True})).json()["topics"]
    assert [topic["topic"] for topic in everything if topic["is_system"]] == ["ERUCA_SYS_EVENTS"]


@pytest.mark.parametrize("method", ["PUT", "DELETE"])
@pytest.mark.parametrize("topic", ["ERUCA_SYS_EVENTS", "TBW102", "rmq_sys_x"])
async def test_system_topics_are_protected(
    client: httpx.AsyncClient, method: str, topic: str
) -> None:
    refused = await client.request(method, f"/topics/{topic}", json={} if method == "PUT" else None)

    assert (refused.status_code, refused.json()["code"]) == (403, "system-topic-protected")


async def test_the_brokers_own_events_can_be_read(client: httpx.AsyncClient) -> None:
    await client.put("/topics/orders", json={})

    read = await client.get("/topics/ERUCA_SYS_EVENTS/queues/0/messages?offset=0")

    assert "topic_put" in {message["tag"] for message in read.json()["messages"]}


@pytest.mark.parametrize(
    ("path", "body", "pointer"),
    [
        ("/topics/n.o", {}, "/path/topic"),
        (f"/topics/{'x' * 128}", {}, "/path/topic"),
        ("/topics/orders", {"read_queue_count": 0}, "/body/read_queue_count"),
        ("/topics/orders", {"write_queue_count": 1025}, "/body/write_queue_count"),
        ("/topics/orders", {"permission": "rwx"}, "/body/permission"),
        ("/topics/orders", {"colour": "red"}, "/body/colour"),
        ("/topics/orders", {"order_config": order(1, a=1)}, "/body/order_config"),
        ("/topics/orders", ordered(0, a=1), "/body/order_config/version"),
        ("/topics/orders", ordered(1), "/body/order_config/queues"),
        ("/topics/orders", ordered(1, a=0), "/body/order_config/queues/a"),
        (
            "/topics/orders",
            ordered(1, **{f"b{n}": 1 for n in range(65)}),
            "/body/order_config/queues",
        ),
    ],
)
async def test_settings_that_are_not_allowed_are_pointed_at(
    client: httpx.AsyncClient, path: str, body: object, pointer: str
) -> None:
    refused = await client.put(path, json=body)

    assert (refused.status_code, refused.json()["errors"][0]["pointer"]) == (422, pointer)


@pytest.mark.parametrize(
    "query", ["limit=0", "limit=1001", "cursor=%C3%BF", "cursor=!", "cursor=/w", "cursor="]
)
async def test_a_list_query_that_is_not_understood_is_422(
    client: httpx.AsyncClient, query: str
) -> None:
    assert (await client.get(f"/topics?{query}")).status_code == 422


async def test_topics_and_offsets_are_there_after_a_restart(tmp_path: Path) -> None:
    directory = tmp_path / "kept"
    async with open_broker(directory) as app, client_of(app) as client:
        await client.put("/topics/orders", json={"read_queue_count": 7})
        for _ in range(5):
            await client.post("/topics/orders/messages?queue_id=1", json={"body": {"text": "x"}})
        await client.put(
            "/groups/g/offsets", json={"offsets": [{"topic": "orders", "queue_id": 1, "offset": 2}]}
        )
        topic, group = await client.get("/topics/orders"), await client.get("/groups/g/offsets")

    async with open_broker(directory) as app, client_of(app) as client:
        assert (await client.get("/topics/orders")).json() == topic.json()
        now, then = (await client.get("/groups/g/offsets")).json(), group.json()
        assert now.pop("traffic_since") >= then.pop("traffic_since")  # of the counters
        assert now == then
        sent = await client.post("/topics/orders/messages?queue_id=1", json={"body": {"text": "x"}})
        assert sent.json()["queue_offset"] == 5


async def test_rocketmqs_file_of_topics_follows_without_the_topics_waiting_for_it(
    client: httpx.AsyncClient, tmp_path: Path
) -> None:
    file = tmp_path / "store" / "config" / "topics.json"
    for number in range(5):
        await client.put(f"/topics/orders-{number}", json={})

    await until(
        lambda: (
            json.loads(file.read_bytes())["topicConfigTable"].keys()
            >= {f"orders-{number}" for number in range(5)}
        )
    )


async def test_a_topic_is_created_even_where_rocketmqs_file_cannot_be_written(
    client: httpx.AsyncClient, tmp_path: Path
) -> None:
    config = tmp_path / "store" / "config"
    await until(lambda: made(config / "topics.json.new"))

    assert (await client.put("/topics/orders", json={})).status_code == 201

    (config / "topics.json.new").rmdir()
    await until(lambda: b'"orders"' in (config / "topics.json").read_bytes())


def made(directory: Path) -> bool:
    """Tell whether *directory* could be created; false while the broker writes a file there."""
    try:
        directory.mkdir()
    except FileExistsError:
        return False
    return True
