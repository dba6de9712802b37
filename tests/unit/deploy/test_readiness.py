"""The missing conditions of a starting service, from its own and the name servers' answers."""

from __future__ import annotations

from typing import Any

import pytest

from eruca.aio.http.transport import HttpResponse
from eruca.contract.errors import UnavailableError
from eruca_deploy.readiness import (
    lacks_brokers,
    lacks_controllers,
    lacks_readiness,
    lacks_work,
)
from support.scripted_transport import Request, ScriptedTransport, json_answer, problem_answer

pytestmark = pytest.mark.anyio

BOTH = [
    {"broker_name": "broker-a", "followed_by": "query-1"},
    {"broker_name": "broker-b", "followed_by": "query-2"},
]
AWAY = UnavailableError("gone", fix="wait")
ANNOUNCED = {"entries": {"query-1": "http://query", "query-2": "http://other"}}


async def lacking(answers: dict[str, Any]) -> str | None:
    """Ask about a service, with what is answered under each URL; nothing else is there."""

    async def answer(request: Request) -> HttpResponse:
        found = answers.get(request.url + request.target)
        return problem_answer(AWAY) if found is None else json_answer(found)

    return await lacks_work(
        ScriptedTransport(answer),
        "http://query",
        brokers={"broker-a", "broker-b"},
        namespace="QUERY",
        namesrv_urls=["http://ns-1", "http://ns-2"],
    )


def world(followed: list[dict[str, Any]], *tables: dict[str, Any]) -> dict[str, Any]:
    """Return the answers of a service that follows logs, and of name servers with these tables."""
    answers: dict[str, Any] = {"http://query/v1/status": {"name": "query-1", "followed": followed}}
    for number, table in enumerate(tables, 1):
        answers[f"http://ns-{number}/v1/kv/QUERY"] = table
    return answers


async def test_what_a_service_lacks_is_told_in_its_own_words() -> None:
    async def answer(_: Request) -> HttpResponse:
        return problem_answer(UnavailableError("PostgreSQL does not answer", fix="start it"))

    told = await lacks_readiness(ScriptedTransport(answer), "http://query")

    assert told == ("had 503 from http://query/readyz: PostgreSQL does not answer (start it)")


async def test_it_is_at_work_once_it_is_found_everywhere_and_every_log_is_followed() -> None:
    assert await lacking(world(BOTH, ANNOUNCED, ANNOUNCED)) is None


@pytest.mark.parametrize(
    ("answers", "told"),
    [
        ({}, "had 503 from http://query/v1/status: gone (wait)"),
        (world(BOTH[:1], ANNOUNCED, ANNOUNCED), "says that no instance follows broker-b"),
        (
            world([BOTH[0], {**BOTH[1], "followed_by": None}], ANNOUNCED, ANNOUNCED),
            "says that no instance follows broker-b",
        ),
        (
            world(BOTH, ANNOUNCED, {"entries": {"query-2": "http://other"}}),
            "is not known to http://ns-2",
        ),
        (world(BOTH, ANNOUNCED), "had 503 from http://ns-2/v1/kv/QUERY: gone (wait)"),
    ],
    ids=["silent", "a log not read yet", "a log left alone", "not announced", "a silent ns"],
)
async def test_else_it_is_told_what_is_lacking(answers: dict[str, Any], told: str) -> None:
    assert await lacking(answers) == told


@pytest.mark.parametrize(("ids", "told"), [([0, 2], None), ([2], "does not know broker-a")])
async def test_a_broker_is_known_once_its_master_is(ids: list[int], told: str | None) -> None:
    async def answer(_: Request) -> HttpResponse:
        brokers = [{"broker_id": broker_id} for broker_id in ids]
        return json_answer({"brokers": [{"broker_name": "broker-a", "brokers": brokers}]})

    assert await lacks_brokers(ScriptedTransport(answer), "http://ns-1", {"broker-a"}) == told


@pytest.mark.parametrize(
    ("entries", "told"),
    [({"controller-1": "http://c-1"}, None), ({}, "knows no controller")],
)
async def test_clients_find_a_controller_once_one_is_announced(
    entries: dict[str, str], told: str | None
) -> None:
    async def answer(_: Request) -> HttpResponse:
        return json_answer({"entries": entries})

    assert await lacks_controllers(ScriptedTransport(answer), "http://ns-1") == told
