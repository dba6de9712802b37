"""The missing conditions of a starting service, from its own and the name servers' answers."""

from __future__ import annotations

from typing import Any

import pytest

from eruca.aio.http.transport import HttpResponse
from eruca.contract.errors import UnavailableError
from eruca_deploy.readiness import lacks_announcement, lacks_brokers, lacks_readiness, lacks_work
from support.scripted_transport import Request, ScriptedTransport, json_answer, problem_answer

pytestmark = pytest.mark.anyio

BOTH = [
    {"broker_name": "broker-a", "followed_by": "query-1"},
    {"broker_name": "broker-b", "followed_by": "query-2"},
]
AWAY = UnavailableError("gone", fix="wait")
ANNOUNCED = {"entries": {"query-1": "http://query", "query-2": "http://other"}}


def answering(answers: dict[str, Any]) -> ScriptedTransport:
    """Return a transport with what is answered under each URL; nothing else is there."""

    async def answer(request: Request) -> HttpResponse:
        found = answers.get(request.url + request.target)
        return problem_answer(AWAY) if found is None else json_answer(found)

    return ScriptedTransport(answer)


async def test_what_a_service_lacks_is_told_in_its_own_words() -> None:
    async def answer(_: Request) -> HttpResponse:
        return problem_answer(UnavailableError("PostgreSQL does not answer", fix="start it"))

    told = await lacks_readiness(ScriptedTransport(answer), "http://query")

    assert told == ("had 503 from http://query/readyz: PostgreSQL does not answer (start it)")


@pytest.mark.parametrize(
    ("followed", "told"),
    [
        (BOTH, None),
        (BOTH[:1], "says that no instance follows broker-b"),
        ([BOTH[0], {**BOTH[1], "followed_by": None}], "says that no instance follows broker-b"),
        (None, "had 503 from http://query/v1/status: gone (wait)"),
    ],
    ids=["at work", "a log not read yet", "a log left alone", "silent"],
)
async def test_it_is_at_work_once_every_log_is_followed(
    followed: list[dict[str, Any]] | None, told: str | None
) -> None:
    status = None if followed is None else {"followed": followed}
    answers = {"http://query/v1/status": status}

    lacking = await lacks_work(answering(answers), "http://query", brokers={"broker-a", "broker-b"})

    assert lacking == told


@pytest.mark.parametrize(
    ("tables", "told"),
    [
        ([ANNOUNCED, ANNOUNCED], None),
        ([ANNOUNCED, {"entries": {"query-2": "http://other"}}], "is not known to http://ns-2"),
        ([ANNOUNCED], "had 503 from http://ns-2/v1/kv/QUERY: gone (wait)"),
    ],
    ids=["announced", "not announced", "a silent name server"],
)
async def test_it_is_found_once_every_name_server_knows_it(
    tables: list[dict[str, Any]], told: str | None
) -> None:
    answers = {f"http://ns-{number}/v1/kv/QUERY": one for number, one in enumerate(tables, 1)}

    lacking = await lacks_announcement(
        answering(answers),
        "http://query",
        namespace="QUERY",
        namesrv_urls=["http://ns-1", "http://ns-2"],
    )

    assert lacking == told


@pytest.mark.parametrize(("ids", "told"), [([0, 2], None), ([2], "does not know broker-a")])
async def test_a_broker_is_known_once_its_master_is(ids: list[int], told: str | None) -> None:
    async def answer(_: Request) -> HttpResponse:
        brokers = [{"broker_id": broker_id} for broker_id in ids]
        return json_answer({"brokers": [{"broker_name": "broker-a", "brokers": brokers}]})

    assert await lacks_brokers(ScriptedTransport(answer), "http://ns-1", {"broker-a"}) == told
