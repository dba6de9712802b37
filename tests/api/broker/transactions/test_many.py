"""Many transactions in one request: each has its own outcome."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest

from eruca.contract.limits import SHARED_TRANSACTION_COUNT_MAX
from eruca_chassis.app import ServiceApp
from support.brokers import broker_of
from support.transaction_calls import BY_OPERATOR, BY_PRODUCER, begin, done, listed, new, pull

pytestmark = pytest.mark.anyio


async def results(client: httpx.AsyncClient, verb: str, *items: object) -> list[dict[str, Any]]:
    answer = await client.post(f"/transactions:{verb}", json={"transactions": items})
    assert answer.status_code == 200, answer.text
    found: list[dict[str, Any]] = answer.json()["results"]
    return found


def named(name: str, **fields: Any) -> dict[str, Any]:  # noqa: ANN401
    return new(message={"message_id": name} | fields.pop("message", {}), **fields)


def decision(name: str, outcome: str, **fields: object) -> dict[str, object]:
    return {"transaction_id": name, "outcome": outcome} | BY_PRODUCER | fields


async def test_each_is_begun_and_decided_as_if_alone(client: httpx.AsyncClient) -> None:
    alone = await begin(client)
    begun = await results(client, "begin", named("a"), named("b", queue_id=0), new())
    made = begun[2]["receipt"]["transaction_id"]
    decided = await results(
        client,
        "decide",
        decision("a", "commit"),
        decision("b", "rollback", reason="no money"),
        decision(made, "commit", **BY_OPERATOR),
    )

    receipts = [result["receipt"] for result in begun]
    assert all(receipt.keys() == alone.keys() for receipt in receipts)
    assert [(r["transaction_id"], r["queue_id"]) for r in receipts] == [
        ("a", 1),
        ("b", 0),
        (made, 1),
    ]
    outcomes = [(d["receipt"]["state"], d["receipt"]["by"]) for d in decided]
    assert outcomes == [
        ("committed", "producer"), ("rolled_back", "producer"), ("committed", "operator"),
    ]  # fmt: skip
    assert [message["message_id"] for message in await pull(client)] == ["a", made]
    assert await listed(client) == [alone["transaction_id"]]


async def test_one_that_is_refused_leaves_the_others_alone(client: httpx.AsyncClient) -> None:
    await begin(client, message={"message_id": "known"})
    begun = await results(
        client,
        "begin",
        named("a"),
        named("known", message={"body": {"text": "other"}}),
        named("c", queue_id=9),
        named("d", message={"tag": "|"}),
        named("e"),
    )
    alone = await client.post("/transactions", json=named("d", message={"tag": "|"}))
    decided = await results(
        client,
        "decide",
        decision("a", "commit"),
        decision("x", "commit"),
        decision("e", "rollback"),
    )

    codes = [result["problem"] and result["problem"]["code"] for result in begun]
    assert codes == [None, "transaction-id-in-use", "queue-not-found", "validation-failed", None]
    its = {name: begun[3]["problem"][name] for name in ("status", "detail", "errors", "fix")}
    assert its == {name: alone.json()[name] for name in its}
    assert [result["receipt"] is None for result in begun] == [False, True, True, True, False]
    codes = [result["problem"] and result["problem"]["code"] for result in decided]
    assert codes == [None, "transaction-not-found", None]
    assert [message["message_id"] for message in await pull(client)] == ["a"]
    assert await listed(client) == ["known"]


async def test_one_that_comes_twice_is_begun_and_decided_once(client: httpx.AsyncClient) -> None:
    first, again, other = await results(
        client, "begin", named("a"), named("a"), named("a", message={"body": {"text": "other"}})
    )
    decided = await results(
        client,
        "decide",
        decision("a", "commit"),
        decision("a", "commit"),
        decision("a", "rollback"),
    )

    assert again["receipt"] == first["receipt"] | {"repeated": True}
    assert other["problem"]["code"] == "transaction-id-in-use"
    assert [result["receipt"] and result["receipt"]["repeated"] for result in decided] == [
        False, True, None,
    ]  # fmt: skip
    assert decided[2]["problem"]["decision"]["outcome"] == "commit"
    assert len(await pull(client)) == 1


async def test_a_problem_says_when_to_retry(client: httpx.AsyncClient) -> None:
    begun = await results(client, "begin", *(named(f"t{number}") for number in range(9)))

    assert [result["problem"] is None for result in begun] == [True] * 8 + [False]
    assert begun[8]["problem"]["code"] == "overloaded"
    assert begun[8]["retry_after_seconds"] == 5
    assert len(await listed(client)) == 8


async def test_all_of_one_request_are_one_write(
    app: ServiceApp, client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = broker_of(app).store
    ends: list[int] = []
    monkeypatch.setattr(store._writer, "on_written", ends.append)

    await results(client, "begin", *(named(f"t{number}") for number in range(5)))
    await results(client, "decide", *(decision(f"t{number}", "commit") for number in range(5)))

    assert len(ends) == 2
    assert len(await pull(client)) == 5


@pytest.mark.parametrize("verb", ["begin", "decide"])
async def test_a_request_of_the_wrong_shape_is_refused_as_a_whole(
    client: httpx.AsyncClient, verb: str
) -> None:
    item = named("a") if verb == "begin" else decision("a", "commit")
    for items, pointer in (
        ([], "/body/transactions"),
        ([item] * (SHARED_TRANSACTION_COUNT_MAX + 1), "/body/transactions"),
        ([item, item | {"extra": 1}], "/body/transactions/1/extra"),
        ([item, item | {"producer_group": "a b"}], "/body/transactions/1/producer_group"),
    ):
        answer = await client.post(f"/transactions:{verb}", json={"transactions": items})
        assert answer.status_code == 422, answer.text
        assert answer.json()["errors"][0]["pointer"] == pointer
    twice = '{"transactions":[{"topic":"a","topic":"payments"}]}'
    answer = await client.post(
        f"/transactions:{verb}", content=twice, headers={"content-type": "application/json"}
    )
    assert answer.status_code in (400, 422)
    assert await listed(client) == []


async def test_a_decision_waits_for_the_beginning_before_it(client: httpx.AsyncClient) -> None:
    begun, decided = await asyncio.gather(
        results(client, "begin", named("a"), named("b")),
        results(client, "decide", decision("a", "commit"), decision("b", "rollback")),
    )
    for index, (name, outcome) in enumerate((("a", "commit"), ("b", "rollback"))):
        assert begun[index]["receipt"]["transaction_id"] == name
        if decided[index]["receipt"] is None:  # it came first
            assert decided[index]["problem"]["code"] == "transaction-not-found"
            await done(client, name, outcome)
    assert [message["message_id"] for message in await pull(client)] == ["a"]
