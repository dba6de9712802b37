"""Values that RocketMQ accepts and nobody intends: reserved groups, separators, a lone bar."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from eruca.contract.names import DEFAULT_GROUPS
from support.group_members import TestMember

pytestmark = pytest.mark.anyio

RESERVED = sorted(DEFAULT_GROUPS | {"CID_RMQ_SYS_TRANS", "CID_RMQ_SYS_x"})
FILTERS = ["TagA |", "TagA | TagB", "|", "TagA || TagB|", "Tag\x00A", "Tag\x01A"]
COUNTS = {"read_queue_count": 1, "write_queue_count": 1}


@pytest.mark.parametrize("group", RESERVED)
async def test_no_way_of_consuming_makes_a_reserved_group(
    client: httpx.AsyncClient, group: str
) -> None:
    await client.put("/topics/orders", json=COUNTS)
    await client.post("/topics/orders/messages", json={"body": {"text": "x"}})
    member = TestMember(client, group)
    commit = {"topic": "orders", "queue_id": 0, "offset": 1}

    answers = [
        await client.put(f"/groups/{group}", json={}),
        await client.put(
            f"/groups/{group}/members/7",
            json={"incarnation": "1", "subscriptions": [{"topic": "orders"}]},
        ),
        await client.post(f"/groups/{group}/deliveries", json={"topic": "orders"}),
        await client.put(f"/groups/{group}/offsets", json={"offsets": [commit]}),
    ]

    del member
    assert [(answer.status_code, answer.json()["code"]) for answer in answers] == [
        (403, "permission-denied")
    ] * 4
    assert all(answer.json()["fix"] for answer in answers)
    assert (await client.get(f"/groups/{group}")).status_code == 404


@pytest.mark.parametrize("text", FILTERS)
async def test_a_filter_that_no_tag_can_match_is_refused_wherever_it_is_given(
    client: httpx.AsyncClient, text: str
) -> None:
    await client.put("/topics/orders", json=COUNTS)
    subscription = {"topic": "orders", "filter": text}

    answers = [
        await client.get("/topics/orders/queues/0/messages", params={"offset": 0, "filter": text}),
        await client.put(
            "/groups/billing/members/7",
            json={"incarnation": "1", "subscriptions": [subscription]},
        ),
        await client.post("/groups/couriers/deliveries", json=subscription),
    ]

    for answer in answers:
        assert answer.status_code == 422, answer.text
        assert "single |" in answer.text or "control character" in answer.text
    assert (await client.get("/groups/couriers")).status_code == 404


@pytest.mark.parametrize("character", ["\0", "\x01", "\x02"])
@pytest.mark.parametrize(
    "fields",
    [
        {"tag": "a{}b"},
        {"keys": ["a{}b"]},
        {"sharding_key": "a{}b"},
        {"message_id": "a{}b"},
        {"properties": {"city": "a{}b"}},
        {"properties": {"a{}b": "Rome"}},
    ],
    ids=["tag", "keys", "sharding_key", "message_id", "value", "name"],
)
async def test_no_property_holds_what_ends_or_separates_texts(
    client: httpx.AsyncClient, fields: dict[str, object], character: str
) -> None:
    await client.put("/topics/orders", json=COUNTS)

    answer = await client.post(
        "/topics/orders/messages", json={"body": {"text": "x"}, **_with(fields, character)}
    )

    assert answer.status_code == 422
    assert "U+000" in answer.text or "blank" in answer.text
    [queue] = (await client.get("/topics/orders/queues")).json()["queues"]
    assert queue["max_offset"] == 0


def _with(value: Any, character: str) -> Any:  # noqa: ANN401  (a part of a document)
    if isinstance(value, str):
        return value.replace("{}", character)
    if isinstance(value, list):
        return [_with(item, character) for item in value]
    assert isinstance(value, dict)
    return {_with(name, character): _with(item, character) for name, item in value.items()}
