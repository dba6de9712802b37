"""Deliveries that pass a filter, and when a group may change it."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from support.delivery_clients import DeliveryClient, texts
from support.group_members import TestMember

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    "filter_",
    [
        {"filter": "UA || AA"},
        {"filter": "TAGS IN ('UA', 'AA')", "filter_type": "sql92"},
    ],
)
async def test_what_the_filter_holds_back_is_passed_over(
    orders: DeliveryClient, filter_: dict[str, Any]
) -> None:
    for tag in ("UA", "DL", "AA", "DL"):
        await orders.send(tag.lower(), tag=tag)

    got = await orders.receive(**filter_)
    await orders.ack(*got)
    await orders.receive(**filter_)

    assert texts(got) == ["ua", "aa"]
    assert await orders.committed() == 4


async def test_tags_of_one_hash_are_told_apart(orders: DeliveryClient) -> None:
    await orders.send("1", tag="Aa")
    await orders.send("2", tag="BB")

    assert texts(await orders.receive(filter="BB")) == ["2"]


async def test_a_group_has_one_filter_for_a_topic(orders: DeliveryClient) -> None:
    await orders.send("a", tag="UA")
    await orders.receive(filter="UA")

    other = await orders.ask(filter="DL")

    assert (other.status_code, other.json()["code"]) == (409, "subscription-conflict")
    assert "'UA'" in other.json()["detail"]
    assert "'DL'" in other.json()["detail"]


async def test_once_nothing_is_unfinished_the_filter_may_change(orders: DeliveryClient) -> None:
    await orders.send("a", tag="UA")
    await orders.ack(*await orders.receive(filter="UA"))
    await orders.send("b", tag="DL")

    assert texts(await orders.receive(filter="DL")) == ["b"]
    config = (await orders.client.get("/groups/billing")).json()
    assert config["subscriptions"] == [{"topic": "orders", "filter": "DL", "filter_type": "tag"}]
    assert config["subscription_version"] == 2


async def test_what_is_unfinished_where_nobody_reads_any_more_does_not_keep_the_filter(
    client: httpx.AsyncClient,
) -> None:
    orders = DeliveryClient(client)
    await orders.create(queue_count=2)
    await orders.send("out of reach", queue_id=1)
    await orders.send("red and out of reach", queue_id=1, tag="red")
    assert len(await orders.receive()) == 2
    fewer = {"read_queue_count": 1, "write_queue_count": 1}
    assert (await client.put("/topics/orders?force=true", json=fewer)).is_success
    await orders.send("red", queue_id=0, tag="red")

    assert texts(await orders.receive(filter="red")) == ["red"]
    assert (await orders.ask(filter="blue")).json()["code"] == "subscription-conflict"
    again = {"read_queue_count": 2, "write_queue_count": 2}
    assert (await client.put("/topics/orders", json=again)).is_success
    assert texts(await orders.receive(filter="red")) == ["red and out of reach"]


async def test_members_and_deliveries_subscribe_alike(
    orders: DeliveryClient, client: httpx.AsyncClient
) -> None:
    member = TestMember(client, "a", group="billing")
    assert (await member.beat()).is_success
    await orders.send("a")

    same = await orders.ask()
    other = await orders.ask(filter="UA")

    assert texts(same.json()["deliveries"]) == ["a"]
    assert (other.status_code, other.json()["code"]) == (409, "subscription-conflict")


@pytest.mark.parametrize(
    ("filter_", "code"),
    [
        ({"filter": "a >", "filter_type": "sql92"}, "filter-syntax"),
        ({"filter": "||"}, "filter-syntax"),
        ({"filter": "a", "filter_type": "regex"}, "validation-failed"),
    ],
)
async def test_a_filter_that_means_nothing_is_refused(
    orders: DeliveryClient, filter_: dict[str, Any], code: str
) -> None:
    refused = await orders.ask(**filter_)

    assert (refused.status_code, refused.json()["code"]) == (422, code)
    assert refused.json()["errors"][0]["pointer"].startswith("/body/filter")
