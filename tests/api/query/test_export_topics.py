"""The list of topics that can be exported: complete, even while a broker is away."""

from __future__ import annotations

from typing import Any

import pytest

import eruca
from eruca.contract.names import dead_letter_topic, retry_topic
from support.in_process_cluster import InProcessCluster
from support.postgres import embedded_server
from support.query_services import Queried, queried_by

pytestmark = pytest.mark.anyio
TARGET = "/v1/exports/topics"


async def create(queried: Queried, topic: str, *, broker_name: str) -> None:
    await queried.client.admin.create_topic(topic, queue_count=1, broker_name=broker_name)
    async with queried.client.producer() as producer:
        await producer.send(
            eruca.Message(topic, b"a"), queue=eruca.MessageQueue(topic, broker_name, 0)
        )


async def listed(queried: Queried, **query: Any) -> list[str]:  # noqa: ANN401
    """Return the topics of all pages."""
    topics: list[str] = []
    while True:
        page = await queried.get(TARGET, **query)
        topics += page["topics"]
        if page["next_cursor"] is None:
            return topics
        query["cursor"] = page["next_cursor"]


async def test_topics_are_listed_page_by_page_without_system_topics(queried: Queried) -> None:
    for topic in ("orders", "payments", "flights"):
        await queried.client.admin.create_topic(topic, queue_count=1)
    await queried.client.admin.groups.create("billing")

    topics = await listed(queried)
    pages = await listed(queried, limit=1)
    strange = await queried.http.get(TARGET, params={"cursor": "!"})

    assert topics == pages == sorted(topics)
    assert {"flights", "orders", "payments"} <= {*topics}
    assert {*topics} - {"flights", "orders", "payments"} <= {
        retry_topic("billing"),
        dead_letter_topic("billing"),
    }
    assert strange.status_code == 422


async def test_topics_of_a_broker_that_is_away_are_listed_until_it_is_forgotten(
    cluster: InProcessCluster, database_url: str
) -> None:
    async with queried_by(cluster, database_url) as queried:
        await create(queried, "orders", broker_name="broker-a")
        for topic in ("payments", "deleted"):
            await create(queried, topic, broker_name="broker-b")
        await queried.client.admin.delete_topic("deleted")
        await queried.caught_up()
        await cluster.take_broker_away("broker-b")

        topics = await listed(queried)
        plan = await queried.get("/v1/exports/payments/plan")
        assert (await queried.http.delete("/v1/brokers/broker-b")).status_code == 204
        later = await listed(queried)

    assert topics == ["orders", "payments"]
    assert [one["broker_name"] for one in plan["incomplete"]] == ["broker-b"]
    assert later == ["orders"]


async def test_without_a_name_server_no_list_is_made_up(
    cluster: InProcessCluster, database_url: str
) -> None:
    async with queried_by(cluster, database_url) as queried:
        await create(queried, "orders", broker_name="broker-a")
        await queried.caught_up()
        await cluster.stop_name_servers()

        refused = await queried.http.get(TARGET)

    assert refused.status_code == 503
    assert refused.json()["retryable"]


async def test_without_the_database_neither_list_nor_plan_looks_complete(
    cluster: InProcessCluster,
) -> None:
    with embedded_server() as server:
        async with queried_by(cluster, server.url) as queried:
            for broker_name in ("broker-a", "broker-b"):
                await create(queried, "orders", broker_name=broker_name)
            await create(queried, "payments", broker_name="broker-b")
            await queried.caught_up()
            await cluster.take_broker_away("broker-b")
            known = await queried.get("/v1/exports/orders/plan")
            server.stop()

            plan = await queried.get("/v1/exports/orders/plan")
            refusals = [
                await queried.http.get(target) for target in (TARGET, "/v1/exports/payments/plan")
            ]

            server.start()

    gaps = [(one["broker_name"], one["reason"]) for one in known["incomplete"]]
    assert gaps == [("broker-b", "broker_unreachable")]
    gaps = [(one["broker_name"], one["reason"]) for one in plan["incomplete"]]
    assert gaps == [(None, "read_model_unreachable")]
    assert plan["rows"] == known["rows"] == 1
    for refused in refusals:
        assert (refused.status_code, refused.json()["code"]) == (503, "database-unavailable")
        assert refused.json()["retryable"]
