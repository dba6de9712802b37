"""Transactions as they are listed, shown and counted."""

from __future__ import annotations

import httpx
import pytest

from support.transaction_calls import (
    BY_OPERATOR,
    BY_PRODUCER,
    act,
    begin,
    done,
    listed,
    park,
    shown,
)

pytestmark = pytest.mark.anyio


async def test_the_list_has_pages_and_filters(client: httpx.AsyncClient) -> None:
    ids = [
        (await begin(client, producer_group=f"group-{number % 2}"))["transaction_id"]
        for number in range(6)
    ]
    await park(client, ids[2])

    assert await listed(client, limit=2) == ids
    assert await listed(client, limit=1, producer_group="group-0") == ids[::2]
    assert await listed(client, producer_group="group-0", state="pending") == [ids[0], ids[4]]
    assert await listed(client, producer_group="nobody") == []


async def test_a_transaction_shows_its_message_and_its_history(client: httpx.AsyncClient) -> None:
    receipt = await begin(client, check_immunity_seconds=0.5, message={"keys": ["k"]})
    transaction_id = receipt["transaction_id"]

    pending = await shown(client, transaction_id)
    assert pending["state"] == "pending"
    assert pending["check_immunity_seconds"] == 0.5
    assert pending["message"]["body"] == {"text": "pay"}
    assert pending["message"]["keys"] == ["k"]
    assert pending["half_log_offset"] == receipt["half_log_offset"]
    decided = await done(client, transaction_id, "commit")
    over = await shown(client, transaction_id)

    assert over["state"] == "committed"
    assert over["message"] == pending["message"]
    assert over["committed"] == decided["message"]
    assert [entry["event"] for entry in over["history"]] == ["begun", "committed"]


@pytest.mark.parametrize("verb", [None, "commit", "check", "expire"])
async def test_what_nobody_began_is_not_found(client: httpx.AsyncClient, verb: str | None) -> None:
    bodies = {
        "commit": BY_PRODUCER,
        "check": {"number": 1, "checker": "c"},
        "expire": {"checks": 0, "checker": "c"},
    }
    if verb is None:
        answer = await client.get("/transactions/nobody")
    else:
        answer = await act(client, "nobody", verb, bodies[verb])
    assert (answer.status_code, answer.json()["code"]) == (404, "transaction-not-found")


async def test_metrics_count_what_has_become_of_transactions(client: httpx.AsyncClient) -> None:
    ids = [(await begin(client))["transaction_id"] for _ in range(4)]
    await done(client, ids[0], "commit")
    await act(client, ids[0], "rollback")
    await done(client, ids[1], "rollback", BY_OPERATOR)
    await park(client, ids[2])

    lines = (await client.get("http://localhost/metrics")).text.splitlines()

    for line in (
        "eruca_broker_transactions_pending 1.0",
        "eruca_broker_transactions_parked 1.0",
        "eruca_broker_transactions_begun_total 4.0",
        'eruca_broker_transactions_decided_total{by="producer",outcome="commit"} 1.0',
        'eruca_broker_transactions_decided_total{by="operator",outcome="rollback"} 1.0',
        'eruca_broker_transactions_decided_total{by="limit",outcome="rollback"} 1.0',
        "eruca_broker_transaction_checks_total 1.0",
        "eruca_broker_transaction_conflicts_total 1.0",
    ):
        assert line in lines
