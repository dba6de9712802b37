"""Damaged records: answers that may lack them say so, and none shows them as sound."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

import eruca
from support.brokers import rot, rot_beyond_reading
from support.in_process_cluster import InProcessCluster
from support.query_services import Queried, queried_by

pytestmark = pytest.mark.anyio

OCTETS = {"accept": "application/octet-stream"}


async def send(client: eruca.AsyncClient, topic: str, count: int = 3) -> list[eruca.SendResult]:
    """Send ``TOPIC-0``, ``TOPIC-1`` … under the key ``k``."""
    await client.admin.create_topic(topic, queue_count=1)
    queue = min(await client.admin.queues(topic))
    async with client.producer() as producer:
        return [
            await producer.send(eruca.Message(topic, f"{topic}-{number}", keys=["k"]), queue=queue)
            for number in range(count)
        ]


@pytest.fixture
async def client(cluster: InProcessCluster) -> AsyncIterator[eruca.AsyncClient]:
    async with eruca.AsyncClient(cluster.namesrv_urls) as client:
        yield client


@asynccontextmanager
async def queried_after_damage(
    cluster: InProcessCluster, database_url: str, *, is_in_tail: bool
) -> AsyncIterator[Queried]:
    """Yield a service that has read the logs; or that cannot, and looks through their tails."""
    async with queried_by(cluster, database_url) as queried:
        if is_in_tail:
            await queried.stop_following()
        else:
            await queried.caught_up()
        yield queried


def damage_in(answer: dict[str, Any]) -> list[str]:
    return [its["detail"] for its in answer["incomplete"] if its["reason"] == "damaged"]


async def test_a_record_that_was_damaged_when_it_was_read_is_named_wherever_it_may_belong(
    cluster: InProcessCluster, client: eruca.AsyncClient, database_url: str
) -> None:
    sent = await send(client, "orders")
    await send(client, "flights")
    broken = sent[1]
    rot(cluster.brokers[broken.queue.broker_name], b"orders-1")

    async with queried_after_damage(cluster, database_url, is_in_tail=False) as queried:
        pages = [
            await queried.get("/v1/messages", topic="orders", **query)
            for query in ({}, {"key": "k"}, {"since": "2020-01-01T00:00:00Z"}, {"bodies": True})
        ]
        elsewhere = await queried.get("/v1/messages", topic="flights")
        before = await queried.get("/v1/messages", topic="orders", until="2020-01-01T00:00:00Z")
        refused = [
            await queried.http.get(f"/v1/messages/{message_id}{way}")
            for message_id in (broken.message_id, broken.offset_message_id)
            for way in ("", "/timeline")
        ]
        sound = await queried.get(f"/v1/messages/{sent[0].message_id}")

    for page in pages:
        assert [its["queue_offset"] for its in page["messages"]] == [2, 0]
        [detail] = damage_in(page)
        assert f"log offset {broken.log_offset} (the record does not match its checksum" in detail
        assert "orders/0@1" in detail
    assert damage_in(elsewhere) == damage_in(before) == damage_in(sound) == []
    for answer in refused:
        assert (answer.status_code, answer.json()["code"]) == (410, "message-damaged"), answer.text
        assert f"log offset {broken.log_offset}" in answer.json()["detail"]


async def test_a_record_whose_parts_cannot_be_told_apart_may_belong_to_any_topic_and_id(
    cluster: InProcessCluster, client: eruca.AsyncClient, database_url: str
) -> None:
    broken = (await send(client, "orders"))[1]
    rot_beyond_reading(cluster.brokers[broken.queue.broker_name], b"orders-1")

    async with queried_after_damage(cluster, database_url, is_in_tail=False) as queried:
        page = await queried.get("/v1/messages", topic="orders")
        answer = await queried.http.get(f"/v1/messages/{broken.message_id}")

    [detail] = damage_in(page)
    assert f"log offset {broken.log_offset}" in detail
    assert "its bytes say" not in detail
    assert (answer.status_code, answer.json()["code"]) == (410, "message-damaged"), answer.text


async def test_a_damaged_record_that_only_the_tail_has_is_named_as_well(
    cluster: InProcessCluster, client: eruca.AsyncClient, database_url: str
) -> None:
    async with queried_after_damage(cluster, database_url, is_in_tail=True) as queried:
        broken = (await send(client, "orders"))[1]
        rot(cluster.brokers[broken.queue.broker_name], b"orders-1")

        page = await queried.get("/v1/messages", topic="orders", key="k")
        answer = await queried.http.get(f"/v1/messages/{broken.message_id}")

    assert [its["queue_offset"] for its in page["messages"]] == [2, 0]
    [detail] = damage_in(page)
    assert f"log offset {broken.log_offset}" in detail
    assert (answer.status_code, answer.json()["code"]) == (410, "message-damaged"), answer.text


async def test_a_record_that_was_damaged_since_it_was_read_lacks_its_body_for_that_reason(
    cluster: InProcessCluster, client: eruca.AsyncClient, database_url: str
) -> None:
    async with queried_by(cluster, database_url) as queried:
        broken = (await send(client, "orders"))[1]
        await queried.caught_up()
        rot(cluster.brokers[broken.queue.broker_name], b"orders-1")

        found = [
            (await queried.get(f"/v1/messages/{message_id}"))["message"]
            for message_id in (broken.message_id, broken.offset_message_id)
        ]
        page = await queried.get("/v1/messages", topic="orders", bodies=True)
        body = await queried.http.get(f"/v1/messages/{broken.message_id}", headers=OCTETS)

    for message in (*found, page["messages"][1]):
        assert (message["body"], message["body_missing"]) == (None, "damaged")
        assert message["keys"] == ["k"]  # as it was read, when it was sound
    assert [its["body"] for its in page["messages"][::2]] == [
        {"text": "orders-2"},
        {"text": "orders-0"},
    ]
    assert (body.status_code, body.json()["code"]) == (410, "message-damaged")
