"""When a service of a cluster counts as being at work, by what it and the name servers say."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from eruca_deploy.readiness import is_at_work

pytestmark = pytest.mark.anyio

BOTH = [
    {"broker_name": "broker-a", "followed_by": "query-1"},
    {"broker_name": "broker-b", "followed_by": "query-2"},
]
ANNOUNCED = {"entries": {"query-1": "http://query", "query-2": "http://other"}}


async def at_work(answers: dict[str, Any]) -> bool:
    """Ask about a service, with what is answered under each URL; nothing else is there."""

    def answer(request: httpx.Request) -> httpx.Response:
        found = answers.get(str(request.url))
        return httpx.Response(503) if found is None else httpx.Response(200, json=found)

    async with httpx.AsyncClient(transport=httpx.MockTransport(answer)) as client:
        return await is_at_work(
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


async def test_it_is_at_work_once_it_is_found_everywhere_and_every_log_is_followed() -> None:
    assert await at_work(world(BOTH, ANNOUNCED, ANNOUNCED))


@pytest.mark.parametrize(
    "answers",
    [
        {},
        world(BOTH[:1], ANNOUNCED, ANNOUNCED),
        world([BOTH[0], {**BOTH[1], "followed_by": None}], ANNOUNCED, ANNOUNCED),
        world(BOTH, ANNOUNCED, {"entries": {"query-2": "http://other"}}),
        world(BOTH, ANNOUNCED),
    ],
    ids=["silent", "a log not read yet", "a log left alone", "not announced", "a silent ns"],
)
async def test_else_it_is_not(answers: dict[str, Any]) -> None:
    assert not await at_work(answers)
