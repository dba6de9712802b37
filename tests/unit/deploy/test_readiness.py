"""What a service of a cluster lacks to be at work, by what it and the name servers say."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from eruca.contract.errors.problems import PROBLEM_MEDIA_TYPE
from eruca_deploy.readiness import lacks_readiness, lacks_work

pytestmark = pytest.mark.anyio

BOTH = [
    {"broker_name": "broker-a", "followed_by": "query-1"},
    {"broker_name": "broker-b", "followed_by": "query-2"},
]
ANNOUNCED = {"entries": {"query-1": "http://query", "query-2": "http://other"}}


async def lacking(answers: dict[str, Any]) -> str | None:
    """Ask about a service, with what is answered under each URL; nothing else is there."""

    def answer(request: httpx.Request) -> httpx.Response:
        found = answers.get(str(request.url))
        return httpx.Response(503) if found is None else httpx.Response(200, json=found)

    async with httpx.AsyncClient(transport=httpx.MockTransport(answer)) as client:
        return await lacks_work(
            client,
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
    problem = {"detail": "PostgreSQL does not answer", "fix": "start it"}

    def answer(_: httpx.Request) -> httpx.Response:
        return httpx.Response(503, json=problem, headers={"content-type": PROBLEM_MEDIA_TYPE})

    async with httpx.AsyncClient(transport=httpx.MockTransport(answer)) as client:
        told = await lacks_readiness(client, "http://query")

    assert told == "had 503 from http://query/readyz: PostgreSQL does not answer; start it"


async def test_it_is_at_work_once_it_is_found_everywhere_and_every_log_is_followed() -> None:
    assert await lacking(world(BOTH, ANNOUNCED, ANNOUNCED)) is None


@pytest.mark.parametrize(
    ("answers", "told"),
    [
        ({}, "had 503 from http://query/v1/status"),
        (world(BOTH[:1], ANNOUNCED, ANNOUNCED), "says that nobody follows broker-b"),
        (
            world([BOTH[0], {**BOTH[1], "followed_by": None}], ANNOUNCED, ANNOUNCED),
            "says that nobody follows broker-b",
        ),
        (
            world(BOTH, ANNOUNCED, {"entries": {"query-2": "http://other"}}),
            "is not known to http://ns-2",
        ),
        (world(BOTH, ANNOUNCED), "had 503 from http://ns-2/v1/kv/QUERY"),
    ],
    ids=["silent", "a log not read yet", "a log left alone", "not announced", "a silent ns"],
)
async def test_else_it_is_told_what_is_lacking(answers: dict[str, Any], told: str) -> None:
    assert await lacking(answers) == told
