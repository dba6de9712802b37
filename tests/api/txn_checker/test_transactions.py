"""Operators list transactions and decide them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from eruca_postgres.instance import Instance
from support.checkers import Checked, begin, checked_by, messages
from support.in_process_cluster import in_process_cluster
from support.waiting import until_told

pytestmark = pytest.mark.anyio


@pytest.fixture
async def checked(tmp_path: Path, database_url: str) -> AsyncIterator[Checked]:
    """Two brokers, and a checker that lets transactions alone."""
    async with (
        in_process_cluster(tmp_path, brokers=2) as cluster,
        checked_by(cluster, database_url, timeout_seconds=600) as checked,
    ):
        yield checked


async def listed(checked: Checked, count: int, **query: object) -> list[str]:
    """Return the ids of a list once it has *count*."""

    async def ask() -> list[str]:
        ids: list[str] = []
        cursor = None
        while True:
            page = await checked.http.get(
                "/v1/transactions",
                params={"limit": 2, **query} | ({"cursor": cursor} if cursor else {}),  # type: ignore[arg-type]  # of any type
            )
            assert page.status_code == 200, page.text
            assert len(page.json()["transactions"]) <= 2
            ids += [transaction["transaction_id"] for transaction in page.json()["transactions"]]
            cursor = page.json()["next_cursor"]
            if cursor is None:
                return ids

    return await until_told(ask, lambda ids: len(ids) == count)


async def test_transactions_of_all_brokers_are_listed_from_old_to_young(checked: Checked) -> None:
    brokers = list(checked.brokers.values())
    begun = [await begin(brokers[number % 2]) for number in range(5)]

    assert await listed(checked, 5) == begun
    assert await listed(checked, 3, broker_name="broker-a") == begun[::2]


async def test_a_list_can_be_narrowed(checked: Checked) -> None:
    committed = await checked.begin()
    pending = await checked.begin()
    other = await checked.begin(producer_group="other")
    await checked.broker.post(
        f"/v1/transactions/{committed}:commit", json={"producer_group": "orders"}
    )
    await checked.until_state(committed, "committed")

    assert await listed(checked, 1, state="committed") == [committed]
    assert await listed(checked, 2, state="pending") == [pending, other]
    assert await listed(checked, 1, state="pending", producer_group="other") == [other]
    assert await listed(checked, 0, state="parked") == []


async def test_a_list_says_how_far_the_logs_have_been_read(checked: Checked) -> None:
    await checked.seen(await checked.begin())

    followed = (await checked.http.get("/v1/transactions")).json()["followed"]

    by_name = {broker["broker_name"]: broker for broker in followed}
    assert by_name["broker-a"]["log_offset"] > 0
    assert by_name["broker-a"]["followed_by"] == checked.app.parts[Instance].name


@pytest.mark.parametrize("cursor", ["", "x", "Zm9v", "MSAyIDMgNA", "MSBhACBi"])
async def test_a_cursor_that_no_list_gave_is_refused(checked: Checked, cursor: str) -> None:
    refused = await checked.http.get("/v1/transactions", params={"cursor": cursor})

    assert refused.status_code == 422
    assert refused.json()["errors"][0]["pointer"] == "/query/cursor"


async def test_a_transaction_that_nobody_began_is_not_found(checked: Checked) -> None:
    shown = await checked.http.get("/v1/transactions/nobody")
    decided = await checked.http.post("/v1/transactions/nobody:commit", json={"reason": "why not"})

    assert (shown.status_code, decided.status_code) == (404, 404)
    assert shown.json()["code"] == "transaction-not-found"


async def test_one_id_at_two_brokers_needs_the_brokers_name(checked: Checked) -> None:
    message = {"body": {"text": "twice"}, "message_id": "one-id"}
    for broker in checked.brokers.values():
        await begin(broker, message=message)
    await listed(checked, 2)

    unclear = await checked.http.get("/v1/transactions/one-id")
    shown = await checked.http.get("/v1/transactions/one-id", params={"broker_name": "broker-b"})
    committed = await checked.http.post(
        "/v1/transactions/one-id:commit",
        params={"broker_name": "broker-b"},
        json={"reason": "the second"},
    )

    assert (unclear.status_code, unclear.json()["code"]) == (409, "conflict")
    assert shown.json()["broker_name"] == "broker-b"
    assert committed.json()["state"] == "committed"
    assert await messages(checked.broker) == []
    assert await messages(checked.brokers["broker-b"]) == ["twice"]


async def test_an_operator_decides_once_and_gives_a_reason(checked: Checked) -> None:
    transaction_id = await checked.begin()
    await checked.seen(transaction_id)
    path = f"/v1/transactions/{transaction_id}"

    unreasoned = await checked.http.post(f"{path}:rollback", json={})
    first = await checked.http.post(f"{path}:rollback", json={"reason": "no such order"})
    again = await checked.http.post(f"{path}:rollback", json={"reason": "no such order"})
    opposite = await checked.http.post(f"{path}:commit", json={"reason": "there is"})

    assert unreasoned.status_code == 422
    assert (first.json()["state"], first.json()["repeated"]) == ("rolled_back", False)
    assert again.json()["repeated"] is True
    assert (opposite.status_code, opposite.json()["code"]) == (409, "already-decided")
    assert opposite.json()["decision"]["reason"] == "no such order"
    assert await messages(checked.broker) == []


async def test_at_a_broker_nobody_knows_there_is_nothing_to_decide(checked: Checked) -> None:
    transaction_id = await checked.begin()

    refused = await checked.http.post(
        f"/v1/transactions/{transaction_id}:commit",
        params={"broker_name": "broker-z"},
        json={"reason": "a slip of the pen"},
    )

    assert (refused.status_code, refused.json()["code"]) == (404, "broker-not-found")
    assert "no live broker called broker-z is registered" in refused.json()["detail"]


async def test_a_transaction_of_a_broker_that_is_away_is_shown_and_not_decided(
    tmp_path: Path, database_url: str
) -> None:
    async with (
        in_process_cluster(tmp_path / "1", brokers=1) as cluster,
        checked_by(cluster, database_url, timeout_seconds=600) as checked,
    ):
        transaction_id = await checked.begin()
        await checked.seen(transaction_id)

    async with (
        in_process_cluster(tmp_path / "2", brokers=0) as nobody,
        checked_by(nobody, database_url, broker_seconds=1) as checked,
    ):
        seen = await checked.seen(transaction_id)
        refused = await checked.http.post(
            f"/v1/transactions/{transaction_id}:commit", json={"reason": "now"}
        )

    assert seen["state"] == "pending"
    assert (refused.status_code, refused.json()["code"]) == (503, "broker-unreachable")
    assert "broker-a" in refused.json()["detail"]
    assert refused.json()["retryable"] is True
