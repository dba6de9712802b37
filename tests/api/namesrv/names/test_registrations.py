"""Registrations, lists and the KV store of the name server over HTTP."""

from __future__ import annotations

import asyncio
import threading

import httpx
import pytest

from support.registered_brokers import LONG, held, register, registration

pytestmark = pytest.mark.anyio


async def test_a_stranger_with_a_copied_name_is_refused(client: httpx.AsyncClient) -> None:
    await register(client, version=5)

    refused = await client.put(
        "/v1/brokers/broker-a/0", json=registration("flights", version=4, host="10.9.9.9:1")
    )

    assert (refused.status_code, refused.json()["code"]) == (409, "conflict")
    assert "10.0.0.1:10911" in refused.json()["detail"]


async def test_a_registration_with_an_unusable_topic_is_refused_whole(
    client: httpx.AsyncClient,
) -> None:
    refused = await client.put("/v1/brokers/broker-a/0", json=registration("flights", "a b"))

    assert refused.status_code == 422
    assert refused.json()["errors"][0]["pointer"] == "/body/topics/1/topic"
    assert (await client.get("/v1/brokers")).json() == {"brokers": []}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("cluster", "a b"),
        ("urls", {}),
        ("urls", {"default": "ftp://x"}),
        ("urls", {"default": "http://x/path"}),
        ("data_version", -1),
        ("expiry_seconds", 0),
        ("expiry_seconds", "NaN"),
        ("unknown_field", 1),
    ],
)
async def test_a_wrong_registration_is_refused(
    client: httpx.AsyncClient, field: str, value: object
) -> None:
    refused = await client.put("/v1/brokers/broker-a/0", json=registration() | {field: value})

    assert refused.status_code == 422
    assert refused.json()["errors"][0]["pointer"].startswith(f"/body/{field}")


async def test_a_url_that_leads_nowhere_is_refused_with_what_to_write_instead(
    client: httpx.AsyncClient,
) -> None:
    urls = {"default": "http://10.0.0.1:1", "inside": "http://h:99999"}

    refused = await client.put("/v1/brokers/broker-a/0", json=registration() | {"urls": urls})

    assert (refused.status_code, refused.json()["code"]) == (422, "validation-failed")
    assert refused.json()["errors"] == [
        {
            "pointer": "/body/urls/inside",
            "detail": 'expected a port from 1 to 65535, found 99999; got "http://h:99999"',
        }
    ]


async def test_unregistering_names_what_is_not_there_or_not_meant(
    client: httpx.AsyncClient,
) -> None:
    missing = await client.delete("/v1/brokers/broker-a/0")
    assert (missing.status_code, missing.json()["code"]) == (404, "broker-not-found")

    await register(client)
    mistaken = await client.delete("/v1/brokers/broker-a/0", params={"store_host": "10.9.9.9:1"})
    assert (mistaken.status_code, mistaken.json()["code"]) == (409, "conflict")


async def test_brokers_and_clusters_list_who_lives(client: httpx.AsyncClient) -> None:
    await register(client)
    await client.put("/v1/brokers/broker-a/1", json=registration(host="10.0.0.2:10911"))

    [group] = (await client.get("/v1/brokers")).json()["brokers"]

    assert (group["cluster"], group["broker_name"]) == ("c", "broker-a")
    assert [b["broker_id"] for b in group["brokers"]] == [0, 1]
    assert group["brokers"][0]["last_seen_at"] == "2023-11-14T22:13:32.000Z"
    assert group["brokers"][0]["expires_at"] == "2023-11-14T22:15:32.000Z"
    assert (await client.get("/v1/clusters")).json() == {"clusters": {"c": ["broker-a"]}}


async def test_topics_come_in_pages_that_leave_none_out(client: httpx.AsyncClient) -> None:
    names = [f"topic-{i:02d}" for i in range(25)]
    await register(client, topics=names)

    found: list[str] = []
    params: dict[str, str | int] = {"limit": 10}
    while True:
        page = (await client.get("/v1/topics", params=params)).json()
        found += page["topics"]
        if page["next_cursor"] is None:
            break
        params["cursor"] = page["next_cursor"]

    assert found == names


async def test_a_cursor_that_nobody_gave_is_refused(client: httpx.AsyncClient) -> None:
    refused = await client.get("/v1/topics", params={"cursor": "made-up!"})

    assert (refused.status_code, refused.json()["code"]) == (422, "validation-failed")


async def test_kv_entries_are_set_read_listed_and_removed(client: httpx.AsyncClient) -> None:
    url = "/v1/kv/settings/colour"
    entry = {"namespace": "settings", "key": "colour", "value": "red"}

    assert (await client.put(url, json={"value": "red"})).json() == entry
    assert (await client.get(url)).json() == entry
    listed = await client.get("/v1/kv/settings")
    assert listed.json() == {"namespace": "settings", "entries": {"colour": "red"}}
    assert (await client.delete(url)).status_code == 204
    for refused in (await client.get(url), await client.delete(url)):
        assert (refused.status_code, refused.json()["code"]) == (404, "key-not-found")
    assert (await client.get("/v1/kv/settings")).json()["entries"] == {}


async def test_the_order_of_a_topic_reaches_its_broker_its_route_and_who_waits(
    client: httpx.AsyncClient,
) -> None:
    await register(client)
    etag = (await client.get("/v1/topics/flights/route")).headers["etag"]
    request = asyncio.create_task(
        client.get(
            "/v1/topics/flights/route",
            params={"wait_seconds": LONG},
            headers={"if-none-match": etag},
        )
    )
    await held(client, 1)

    order = {"value": "broker-a:4"}
    await client.put("/v1/kv/ORDER_TOPIC_CONFIG/flights", json=order)

    assert (await request).json()["order_config"] == "broker-a:4"
    answer = await client.put("/v1/brokers/broker-a/0", json=registration("flights"))
    assert answer.json()["order_topics"] == {"flights": "broker-a:4"}


async def test_status_counts_what_is_known(client: httpx.AsyncClient) -> None:
    await register(client, topics=["t", "u"])

    status = (await client.get("/v1/status")).json()

    assert (status["brokers"], status["topics"]) == (1, 2)
    assert (status["held_requests"], status["held_requests_max"]) == (0, 3)
    assert status["started_at"] == "2023-11-14T22:13:20.000Z"
    metrics = (await client.get("/metrics")).text
    assert "eruca_namesrv_brokers 1.0" in metrics
    assert "eruca_namesrv_topics 2.0" in metrics


async def test_the_order_of_a_topic_is_in_its_route_although_who_set_it_has_left(
    client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    await register(client)
    assert (await client.get("/v1/topics/flights/route")).json()["order_config"] is None
    is_writing, may_end = threading.Event(), threading.Event()

    def slow_fsync(_descriptor: int) -> None:
        is_writing.set()
        assert may_end.wait(60)

    with monkeypatch.context() as patch:
        patch.setattr("eruca_chassis.files.whole_files.os.fsync", slow_fsync)
        order = {"value": "broker-a:4"}
        putting = asyncio.create_task(client.put("/v1/kv/ORDER_TOPIC_CONFIG/flights", json=order))
        assert await asyncio.to_thread(is_writing.wait, 60)
        putting.cancel()
        may_end.set()
        with pytest.raises(asyncio.CancelledError):
            await putting

    stored = await client.get("/v1/kv/ORDER_TOPIC_CONFIG/flights")
    assert stored.json()["value"] == "broker-a:4"
    assert (await client.get("/v1/topics/flights/route")).json()["order_config"] == "broker-a:4"
