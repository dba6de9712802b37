"""Topics, as a client sees them."""

from __future__ import annotations

import json
from pathlib import Path

import httpx
import pytest

from support.brokers import client_of, open_broker
from support.waiting import until

pytestmark = pytest.mark.anyio


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
        "is_system": False,
    }
    assert changed.json() == read.json()
    assert (read.json()["permission"], read.json()["ordered"]) == ("r", False)


async def test_settings_as_they_were_change_nothing(client: httpx.AsyncClient) -> None:
    await client.put("/topics/orders", json={})
    before = (await client.get("/status")).json()["log"]["max_offset"]

    again = await client.put("/topics/orders", json={})

    assert again.status_code == 200
    assert (await client.get("/status")).json()["log"]["max_offset"] == before


async def test_a_deleted_topic_starts_anew(client: httpx.AsyncClient) -> None:
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
    await client.put("/topics/orders", json={})
    again = await client.get("/topics/orders/queues/3/messages?offset=0")
    assert len(again.json()["messages"]) == 1


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
    ],
)
async def test_settings_that_are_not_allowed_are_pointed_at(
    client: httpx.AsyncClient, path: str, body: object, pointer: str
) -> None:
    refused = await client.put(path, json=body)

    assert (refused.status_code, refused.json()["errors"][0]["pointer"]) == (422, pointer)


@pytest.mark.parametrize(
    "query", ["limit=0", "limit=1001", "cursor=%FF", "cursor=!", "cursor=/w", "cursor="]
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
        assert (await client.get("/groups/g/offsets")).json() == group.json()
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
    """Whether *directory* could be made; not while the broker writes a file of that name."""
    try:
        directory.mkdir()
    except FileExistsError:
        return False
    return True
