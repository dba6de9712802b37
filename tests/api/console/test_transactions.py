"""Transactions as pages show them, and the decision of an operator through a page."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator

import httpx
import pytest

import eruca
from support.consoles import Visited, begin, visited_in
from support.waiting import until_told

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module")
async def visited(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Visited]:
    async with visited_in(tmp_path_factory.mktemp("cluster")) as visited:
        await visited.client.admin.create_topic("orders", queue_count=1)
        yield visited


async def park(visited: Visited, transaction_id: str) -> None:
    """Give a transaction up, as the checker does."""
    url = f"{visited.cluster.broker_urls['broker-a']}/v1/transactions/{transaction_id}:expire"
    async with httpx.AsyncClient(trust_env=False) as http:
        answer = await http.post(url, json={"checks": 0, "checker": "checker-1", "reason": "late"})
        assert answer.status_code == httpx.codes.OK, answer.text


async def stored(client: eruca.AsyncClient) -> int:
    """Return the number of messages of the topic."""
    return sum(one.max_offset for one in (await client.admin.queues("orders")).values())


async def test_parked_transactions_come_first_and_a_page_has_the_events(visited: Visited) -> None:
    await begin(visited.client, "orders", "first")
    await begin(visited.client, "orders", "second")
    await park(visited, "second")

    text = await until_told(
        lambda: visited.page("/transactions"), lambda text: "badge warn" in text
    )
    assert re.findall(r"<code>(first|second)</code>", text) == ["second", "first"]
    oldest = await visited.page("/transactions?sort=begun")
    assert re.findall(r"<code>(first|second)</code>", oldest) == ["first", "second"]
    assert "No transaction matches." in await visited.page("/transactions?q=nothing")
    page = await visited.page("/transactions/broker-a/second")
    assert "nobody: the checks were used up" in page
    assert ">late<" in page
    assert "&#34;total&#34;: 1.10" in page, "numbers keep their digits"
    assert "no transaction checker is known" in page


async def test_a_decision_says_first_what_it_changes(visited: Visited) -> None:
    await begin(visited.client, "orders", "parked")
    await park(visited, "parked")
    path = "/transactions/broker-a/parked/decision?outcome=commit"
    before = await stored(visited.client)

    preview = await visited.page(path)
    assert "One message is delivered to the topic orders." in preview
    for fields, said in (
        ({"outcome": "commit", "typed": "orders"}, "reason: expected 1 to"),
        ({"outcome": "commit", "reason": "paid", "typed": "order"}, "expected orders, found"),
        ({"outcome": "maybe", "reason": "paid", "typed": "orders"}, "expected commit or rollback"),
    ):
        refused = await visited.act(path, **fields)
        assert refused.status_code == httpx.codes.UNPROCESSABLE_ENTITY
        assert said in refused.text
    assert await stored(visited.client) == before

    done = await visited.act(path, outcome="commit", reason="paid by hand", typed="orders")
    assert done.status_code == httpx.codes.OK, done.text
    assert f"at offset {before}" in done.text
    assert await stored(visited.client) == before + 1
    found = await visited.client.admin.transactions.get("parked")
    assert found.decision is not None
    assert (found.decision.by, found.decision.reason) == ("operator", "paid by hand")

    again = await visited.act(path, outcome="commit", reason="paid by hand", typed="orders")
    assert "It was decided before" in again.text
    assert await stored(visited.client) == before + 1
    other = await visited.act(path, outcome="rollback", reason="no", typed="orders")
    assert other.status_code == httpx.codes.CONFLICT
    assert "It is decided already." in await visited.page(path)


async def test_a_rolled_back_message_is_never_delivered(visited: Visited) -> None:
    await begin(visited.client, "orders", "unpaid")
    path = "/transactions/broker-a/unpaid/decision?outcome=rollback"
    before = await stored(visited.client)

    assert "The message is never delivered to the topic orders." in await visited.page(path)
    done = await visited.act(path, outcome="rollback", reason="unpaid", typed="orders")

    assert "The message is never delivered." in done.text
    assert await stored(visited.client) == before
    assert "rolled back" in await visited.page("/transactions/broker-a/unpaid")


async def test_a_decision_without_the_token_of_its_page_is_refused(visited: Visited) -> None:
    await begin(visited.client, "orders", "forged")
    path = "/transactions/broker-a/forged/decision"

    answer = await visited.http.post(
        path, data={"outcome": "commit", "reason": "x", "typed": "orders"}
    )

    assert answer.status_code == httpx.codes.FORBIDDEN
    assert (await visited.client.admin.transactions.get("forged")).state == "pending"
