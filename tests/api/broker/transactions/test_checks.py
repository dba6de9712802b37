"""Checks of transactions, and what was given up."""

from __future__ import annotations

import asyncio

import httpx
import pytest

from support.clocks import ManualClock
from support.transaction_calls import (
    BY_OPERATOR,
    BY_PRODUCER,
    act,
    begin,
    done,
    listed,
    park,
    pull,
    shown,
)

pytestmark = pytest.mark.anyio


async def test_each_check_is_granted_once_and_in_turn(client: httpx.AsyncClient) -> None:
    transaction_id = (await begin(client))["transaction_id"]

    answers = await asyncio.gather(
        *(act(client, transaction_id, "check", {"number": 1, "checker": f"c{n}"}) for n in range(3))
    )
    assert [answer.status_code for answer in answers] == [200, 409, 409]
    assert answers[1].json()["code"] == "check-out-of-turn"
    skipped = await act(client, transaction_id, "check", {"number": 3, "checker": "c"})
    assert skipped.status_code == 409
    await done(client, transaction_id, "check", {"number": 2, "checker": "c"})

    detail = await shown(client, transaction_id)
    assert detail["checks"] == 2
    assert [entry["checker"] for entry in detail["history"]] == [None, "c0", "c"]


async def test_no_check_comes_before_the_immunity_is_over(
    client: httpx.AsyncClient, clock: ManualClock
) -> None:
    transaction_id = (await begin(client, check_immunity_seconds=2.5))["transaction_id"]
    clock.advance(2.4)
    for verb, body in (("check", {"number": 1}), ("expire", {"checks": 0})):
        early = await act(client, transaction_id, verb, body | {"checker": "c"})
        assert (early.status_code, early.json()["code"]) == (409, "check-out-of-turn")
    clock.advance(0.1)
    await done(client, transaction_id, "check", {"number": 1, "checker": "c"})


async def test_the_answer_to_a_check_decides(client: httpx.AsyncClient) -> None:
    transaction_id = (await begin(client))["transaction_id"]
    answer = BY_PRODUCER | {"by": "check", "check_number": 1}
    early = await act(client, transaction_id, "commit", answer)
    assert (early.status_code, early.json()["code"]) == (409, "check-out-of-turn")
    await done(client, transaction_id, "check", {"number": 1, "checker": "c"})
    await done(client, transaction_id, "check", {"number": 2, "checker": "c"})

    decided = await done(client, transaction_id, "commit", answer)

    assert (decided["by"], decided["check_number"]) == ("check", 1)
    late = await act(client, transaction_id, "check", {"number": 3, "checker": "c"})
    assert late.json()["decision"]["by"] == "check"
    refused = await act(client, transaction_id, "expire", {"checks": 2, "checker": "c"})
    assert refused.json()["code"] == "already-decided"


async def test_who_gives_up_must_know_how_often_was_asked(client: httpx.AsyncClient) -> None:
    transaction_id = (await begin(client))["transaction_id"]
    await done(client, transaction_id, "check", {"number": 1, "checker": "c"})

    stale = await act(client, transaction_id, "expire", {"checks": 0, "checker": "c"})

    assert (stale.status_code, stale.json()["code"]) == (409, "check-out-of-turn")
    parked = await done(client, transaction_id, "expire", {"checks": 1, "checker": "c"})
    assert (parked["state"], parked["by"]) == ("parked", "limit")
    again = await done(client, transaction_id, "expire", {"checks": 1, "checker": "d"})
    assert again == parked | {"repeated": True}


async def test_what_was_given_up_is_rolled_back_for_everyone_but_an_operator(
    client: httpx.AsyncClient,
) -> None:
    transaction_id = (await begin(client))["transaction_id"]
    await park(client, transaction_id)
    assert await pull(client) == []
    assert await listed(client, state="parked") == [transaction_id]
    assert await listed(client, state="pending") == []

    refused = await act(client, transaction_id, "commit")
    assert (refused.status_code, refused.json()["decision"]["by"]) == (409, "limit")
    assert (await done(client, transaction_id, "rollback"))["state"] == "parked"
    decided = await done(client, transaction_id, "commit", BY_OPERATOR)

    assert (decided["by"], decided["reason"]) == ("operator", BY_OPERATOR["reason"])
    [message] = await pull(client)
    assert message["message_id"] == transaction_id
    assert await listed(client) == []
    detail = await shown(client, transaction_id)
    assert [entry["event"] for entry in detail["history"]] == [
        "begun",
        "checked",
        "parked",
        "committed",
    ]


async def test_an_operator_discards_what_was_given_up(client: httpx.AsyncClient) -> None:
    transaction_id = (await begin(client))["transaction_id"]
    await park(client, transaction_id)

    assert (await done(client, transaction_id, "rollback", BY_OPERATOR))["state"] == "rolled_back"

    assert (await act(client, transaction_id, "commit", BY_OPERATOR)).status_code == 409
    assert await pull(client) == []
