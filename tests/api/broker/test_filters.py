"""Filters over properties in pulls of one queue and of many, as a client sees them."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest

from eruca.contract.errors import FilterSyntaxError, error_of_problem
from eruca.contract.wire import RECORDS_MEDIA_TYPE, PullStatus, decode_multi_pull, decode_pull
from eruca_chassis.app import ServiceApp
from support.brokers import broker_of, rot_beyond_reading
from support.patience import PATIENCE_SECONDS

pytestmark = pytest.mark.anyio

QUEUE = "/topics/orders/queues/0/messages"
AS_RECORDS = {"accept": RECORDS_MEDIA_TYPE}


async def put(client: httpx.AsyncClient, *prices: int, queue_id: int = 0) -> None:
    messages = [
        {"body": {"text": str(price)}, "properties": {"price": str(price)}} for price in prices
    ]
    answer = await client.post(
        "/topics/orders/messages", params={"queue_id": queue_id}, json={"messages": messages}
    )
    assert answer.status_code == 201


async def held(app: ServiceApp, count: int) -> None:
    """Return once *count* requests are being held."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while len(broker_of(app).held) != count:  # noqa: ASYNC110  (it has no event for this)
            await asyncio.sleep(0)


def asking(condition: str, offset: int = 0, **more: float) -> dict[str, Any]:
    return {"offset": offset, "filter": condition, "filter_type": "sql92", **more}


def position(queue_id: int, condition: str, offset: int = 0) -> dict[str, Any]:
    return {"topic": "orders", "queue_id": queue_id, **asking(condition, offset)}


def texts(answer: dict[str, Any]) -> list[str]:
    return [message["body"]["text"] for message in answer["messages"]]


async def test_what_meets_the_condition_comes_in_either_form(client: httpx.AsyncClient) -> None:
    await put(client, 10, 30, 20, 40)

    as_json = await client.get(QUEUE, params=asking("price > 20"))
    as_records = await client.get(QUEUE, params=asking("price > 20"), headers=AS_RECORDS)

    assert (texts(as_json.json()), as_json.json()["next_offset"]) == (["30", "40"], 4)
    pulled = decode_pull(as_records.content)
    assert (len(pulled.sizes), pulled.next_offset) == (2, 4)
    assert bytes(pulled.records).count(b"price\x0110\x02") == 0


async def test_a_message_that_is_damaged_passes_every_filter_and_is_marked(
    app: ServiceApp, client: httpx.AsyncClient
) -> None:
    for text in ("first", "rotten", "last"):
        message = {"body": {"text": text}, "properties": {"price": "30"}}
        await client.post("/topics/orders/messages", params={"queue_id": 0}, json=message)
    rot_beyond_reading(app, b"rotten")

    pulls = [
        (await client.get(QUEUE, params=asking("price > 20", offset))).json() for offset in range(3)
    ]

    assert [pull["status"] for pull in pulls] == ["found", "damaged", "found"]
    assert [pull["next_offset"] for pull in pulls] == [1, 2, 3]
    assert (texts(pulls[0]), texts(pulls[2])) == (["first"], ["last"])
    assert (await client.get(QUEUE, params=asking("price > 50"))).json()["status"] == "damaged"


async def test_where_nothing_meets_it_the_answer_says_how_far_it_got(
    client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    await put(client, *range(10))
    monkeypatch.setattr("eruca_broker.store.pulling.queue_reader.SCAN_RECORDS_MAX", 6)

    first = (await client.get(QUEUE, params=asking("price > 20", wait_seconds=30))).json()
    second = await client.get(
        QUEUE, params=asking("price > 20", first["next_offset"]), headers=AS_RECORDS
    )

    assert (first["status"], first["messages"]) == ("no_matched_message", [])
    assert (first["next_offset"], first["max_offset"]) == (6, 10)
    pulled = decode_pull(second.content)
    assert (pulled.status, pulled.next_offset) == (PullStatus.NO_MATCHED_MESSAGE, 10)


async def test_tags_and_keys_are_properties_too(client: httpx.AsyncClient) -> None:
    for tag in ("red", "blue"):
        message = {"body": {"text": tag}, "tag": tag, "keys": [f"k-{tag}"]}
        await client.post("/topics/orders/messages", params={"queue_id": 0}, json=message)

    by_tag = await client.get(QUEUE, params=asking("TAGS IN ('red')"))
    by_key = await client.get(QUEUE, params=asking("KEYS ENDSWITH 'blue'"))

    assert (texts(by_tag.json()), texts(by_key.json())) == (["red"], ["blue"])


async def test_queues_of_one_pull_may_have_conditions_of_their_own(
    client: httpx.AsyncClient,
) -> None:
    await put(client, 1, 2, 3, queue_id=0)
    await put(client, 1, 2, 3, queue_id=1)
    request = {"queues": [position(0, "price > 2"), position(1, "price < 2")]}

    as_json = (await client.post("/pull", json=request)).json()
    as_records = await client.post("/pull", json=request, headers=AS_RECORDS)

    assert [texts(section["answer"]) for section in as_json["queues"]] == [["3"], ["1"]]
    assert [len(pulled.sizes) for _, pulled in decode_multi_pull(as_records.content)] == [1, 1]


async def test_what_conditions_cost_is_shared_by_the_queues_of_a_pull(
    client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    for queue_id in (0, 1, 2):
        await put(client, *range(20), queue_id=queue_id)
    monkeypatch.setattr("eruca_broker.processors.pull_message.SCAN_WORK_MAX", 6_000)
    request = {"queues": [position(queue_id, "price > 99") for queue_id in range(3)]}

    sections = (await client.post("/pull", json=request)).json()["queues"]

    reached = [section["answer"]["next_offset"] for section in sections]
    assert len(reached) == 3
    assert all(1 <= offset < 20 for offset in reached)
    assert max(reached) - min(reached) <= 2


async def test_an_arrival_that_does_not_meet_the_condition_keeps_holding(
    app: ServiceApp, client: httpx.AsyncClient
) -> None:
    await put(client, 99)
    pull = asyncio.create_task(
        client.get(QUEUE, params=asking("price > 20", offset=1, wait_seconds=30))
    )
    await held(app, 1)

    await put(client, 10, 11)
    assert len(broker_of(app).held) == 1
    await put(client, 12, 30)

    answer = (await pull).json()
    assert (texts(answer), answer["next_offset"]) == (["30"], 5)


async def test_a_pull_that_expires_need_not_be_scanned_again(
    app: ServiceApp, client: httpx.AsyncClient
) -> None:
    await put(client, 99)
    request = {"queues": [position(0, "price > 20", 1), position(1, "price > 20")]}
    pull = asyncio.create_task(client.post("/pull", json={**request, "wait_seconds": 0.3}))
    await held(app, 1)

    await put(client, 10, 11)

    [section] = (await pull).json()["queues"]
    assert (section["queue_id"], section["answer"]["status"]) == (0, "no_new_message")
    assert section["answer"]["next_offset"] == 3


async def test_an_arrival_too_large_to_be_examined_at_once_is_answered(
    app: ServiceApp, client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client pulls on, and others get their turn meanwhile."""
    monkeypatch.setattr("eruca_broker.store.pulling.queue_reader.SCAN_RECORDS_MAX", 5)
    await put(client, 99)
    pull = asyncio.create_task(
        client.get(QUEUE, params=asking("price > 20", offset=1, wait_seconds=30))
    )
    await held(app, 1)

    await put(client, *range(12))

    answer = (await pull).json()
    assert answer["status"] == "no_matched_message"
    assert answer["next_offset"] == 11  # five at the arrival, five for the answer


@pytest.mark.parametrize("is_multi", [False, True], ids=["one queue", "many queues"])
async def test_a_mistake_is_shown_with_its_place_and_a_hint(
    client: httpx.AsyncClient, *, is_multi: bool
) -> None:
    if is_multi:
        request = {"queues": [position(1, "price > 20"), position(0, "NOT price > 5")]}
        refused = await client.post("/pull", json=request)
    else:
        refused = await client.get(QUEUE, params=asking("NOT price > 5"))

    problem = refused.json()
    assert (refused.status_code, problem["code"]) == (422, "filter-syntax")
    assert (problem["position"], problem["excerpt"]) == (0, "NOT price")
    assert problem["fix"] == "write NOT (price > 5)"
    pointer = "/body/queues/1/filter" if is_multi else "/query/filter"
    assert problem["errors"][0]["pointer"] == pointer
    assert isinstance(error_of_problem(problem, 422), FilterSyntaxError)


async def test_a_filter_of_another_kind_is_refused(client: httpx.AsyncClient) -> None:
    pulled = await client.get(QUEUE, params={"offset": 0, "filter_type": "regex"})
    asked = {**position(0, "a"), "filter_type": "regex"}
    many = await client.post("/pull", json={"queues": [asked]})

    assert [answer.status_code for answer in (pulled, many)] == [422, 422]
    assert pulled.json()["errors"][0]["pointer"] == "/query/filter_type"
    assert many.json()["errors"][0]["pointer"] == "/body/queues/0/filter_type"
