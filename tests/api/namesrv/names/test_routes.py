"""Routes over HTTP: of registered brokers, and no topic is missing while its broker may be."""

from __future__ import annotations

import asyncio
from urllib.parse import quote

import httpx
import pytest

from eruca_namesrv.app import create_app
from eruca_namesrv.settings import NamesrvSettings
from support.clocks import ManualClock
from support.registered_brokers import LONG, assert_nobody_knows, held, register, registration
from support.services import client_of

pytestmark = pytest.mark.anyio


async def test_a_registered_broker_is_in_its_topics_routes(client: httpx.AsyncClient) -> None:
    answer = await client.put("/v1/brokers/broker-a/0", json=registration("flights"))
    assert answer.json() == {
        "broker_name": "broker-a",
        "broker_id": 0,
        "needs_topics": False,
        "order_topics": {},
        "ordered_topics": {},
        "ordered_topics_digest": answer.json()["ordered_topics_digest"],
    }

    route = await client.get("/v1/topics/flights/route")

    assert route.json() == {
        "topic": "flights",
        "queues": [
            {
                "broker_name": "broker-a",
                "read_queue_count": 4,
                "write_queue_count": 4,
                "permission": "rw",
            }
        ],
        "brokers": [
            {
                "cluster": "c",
                "broker_name": "broker-a",
                "urls": {
                    "0": {
                        "default": "http://10.0.0.1:10911",
                        "public": "https://broker.example:443",
                    }
                },
                "store_hosts": {"0": "10.0.0.1:10911"},
                "epoch": 0,
                "roles": {"0": "master"},
                "replica_ids": {},
            }
        ],
        "order_config": None,
    }


async def test_an_unknown_topic_is_a_problem_that_says_so(client: httpx.AsyncClient) -> None:
    await register(client)

    refused = await client.get("/v1/topics/trains/route")

    assert (refused.status_code, refused.json()["code"]) == (404, "topic-not-found")
    assert refused.json()["detail"] == "no live broker has topic trains"
    assert refused.json()["fix"].startswith("create it: eruca topic create trains")


@pytest.mark.parametrize(
    ("topic", "fix"),
    [
        ("%DLQ%billing", "a broker creates it with the group's first dead letter; "
         "see eruca dlq list billing"),
        ("%RETRY%billing", "a broker creates it when the group consumes; see eruca group list"),
        ("ERUCA_SYS_EVENTS", "a broker makes system topics by itself; "
         "see eruca topic list --system"),
    ],
)  # fmt: skip
async def test_nobody_is_told_to_create_what_a_broker_makes_by_itself(
    client: httpx.AsyncClient, topic: str, fix: str
) -> None:
    await register(client)

    refused = await client.get(f"/v1/topics/{quote(topic)}/route")

    assert (refused.json()["code"], refused.json()["fix"]) == ("topic-not-found", fix)


@pytest.mark.parametrize("path", ["/v1/topics", "/v1/topics/flights/route"])
async def test_without_a_live_broker_it_is_unknown_which_topics_exist(
    client: httpx.AsyncClient, path: str
) -> None:
    refused = await client.get(path)

    assert_nobody_knows(refused)
    assert "start a broker" in refused.json()["fix"]


async def test_the_topics_of_the_only_broker_are_unknown_and_not_missing_while_it_restarts(
    client: httpx.AsyncClient, clock: ManualClock
) -> None:
    route = "/v1/topics/flights/route"
    for away in ("stopped", "expired"):
        await register(client, expiry_seconds=20)
        known = await client.get(route)
        assert known.status_code == 200
        if away == "stopped":
            await client.delete("/v1/brokers/broker-a/0")
        else:
            clock.advance(21)

        assert_nobody_knows(await client.get(route))
        assert (await client.get("/v1/brokers")).json() == {"brokers": []}


async def test_brokers_that_have_not_told_their_topics_make_none_missing(
    client: httpx.AsyncClient,
) -> None:
    without = registration()
    del without["topics"]
    await client.put("/v1/brokers/broker-a/0", json=without)
    replica = without | {"store_host": "10.0.0.2:10911"}
    await client.put("/v1/brokers/broker-a/1", json=replica)

    assert_nobody_knows(await client.get("/v1/topics/flights/route"))


@pytest.mark.parametrize(("topic", "status"), [("flights", 200), ("trains", 404)])
async def test_who_knew_a_route_waits_for_a_broker_to_hear_whether_the_topic_is_gone(
    client: httpx.AsyncClient, topic: str, status: int
) -> None:
    asking = asyncio.create_task(
        client.get(
            f"/v1/topics/{topic}/route?wait_seconds={LONG}", headers={"if-none-match": '"x"'}
        )
    )
    await held(client, 1)

    await register(client)

    assert (await asking).status_code == status


async def test_a_known_route_is_not_sent_again(client: httpx.AsyncClient) -> None:
    await register(client)
    route = await client.get("/v1/topics/flights/route")
    etag = route.headers["etag"]

    for known in (etag, f'"x", {etag}', f"W/{etag}", "*"):
        again = await client.get("/v1/topics/flights/route", headers={"if-none-match": known})
        assert (again.status_code, again.content) == (304, b"")
        assert again.headers["etag"] == etag
    for unknown in ('"x"', "", "x"):
        again = await client.get("/v1/topics/flights/route", headers={"if-none-match": unknown})
        assert (again.status_code, again.content) == (200, route.content)


async def test_name_servers_that_know_the_same_agree_on_the_tag(client: httpx.AsyncClient) -> None:
    await register(client)
    mine = await client.get("/v1/topics/flights/route")

    async with client_of(create_app(NamesrvSettings())) as other:
        await register(other)
        theirs = await other.get("/v1/topics/flights/route")

    assert mine.headers["etag"] == theirs.headers["etag"]
