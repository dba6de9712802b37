"""Requests to controllers: any of them answers, and no change is made twice."""

from __future__ import annotations

import json

import pytest

import eruca
from eruca.aio.http.transport import HttpResponse
from eruca.cli.replicas.controllers import VARIABLE, Controllers, controller_urls
from eruca.cli.replicas.group_changes import without
from eruca.contract.errors import (
    NotFoundError,
    NotReadyError,
    PreconditionFailedError,
    TransportError,
    ValidationError,
)
from support.group_rows import CHANGED_AT, group, name
from support.scripted_transport import Request, ScriptedTransport, json_answer, problem_answer

pytestmark = pytest.mark.anyio

FIRST, SECOND = "http://c1:9878", "http://c2:9878"


async def test_the_option_comes_before_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, f"{FIRST};{SECOND}")
    async with eruca.AsyncClient() as client:
        assert await controller_urls(client, None) == (FIRST, SECOND)
        assert await controller_urls(client, "http://c3:9878") == ("http://c3:9878",)


async def test_what_is_no_url_is_refused_with_its_source() -> None:
    async with eruca.AsyncClient() as client:
        with pytest.raises(ValidationError, match="--controller: 'c1' is not the URL of a"):
            await controller_urls(client, "c1")


async def test_a_controller_that_does_not_answer_is_followed_by_the_next() -> None:
    async def answer(request: Request) -> HttpResponse:
        if request.url == FIRST:
            raise TransportError("refused")
        return json_answer(group().model_dump(mode="json"))

    transport = ScriptedTransport(answer)

    assert await Controllers(transport, [FIRST, SECOND]).group("broker-a") == group()
    assert [request.url for request in transport.requests] == [FIRST, SECOND]
    assert transport.requests[0].target == "/v1/broker-groups/broker-a"


async def test_one_that_cannot_work_is_followed_by_the_next_and_the_last_fault_is_told() -> None:
    async def answer(_: Request) -> HttpResponse:
        return problem_answer(NotReadyError("PostgreSQL does not answer"))

    with pytest.raises(NotReadyError, match="start a controller, or name one that runs"):
        await Controllers(ScriptedTransport(answer), [FIRST, SECOND]).group("broker-a")


async def test_a_refusal_is_the_answer_of_all_controllers() -> None:
    async def answer(_: Request) -> HttpResponse:
        return problem_answer(NotFoundError("there is no broker group broker-x"))

    transport = ScriptedTransport(answer)

    with pytest.raises(NotFoundError, match="broker-x"):
        await Controllers(transport, [FIRST, SECOND]).group("broker-x")
    assert len(transport.requests) == 1


@pytest.mark.parametrize(
    ("version", "header", "value"),
    [("7-0", "if-match", '"7-0"'), (None, "if-none-match", "*")],
)
async def test_a_change_is_asked_for_from_the_version_that_was_read(
    version: str | None, header: str, value: str
) -> None:
    async def answer(_: Request) -> HttpResponse:
        return json_answer(group().model_dump(mode="json"))

    transport = ScriptedTransport(answer)
    row = without(group(), 2, {})

    await Controllers(transport, [FIRST]).change("broker-a", row, version=version)

    [request] = transport.requests
    assert request.method == "PUT"
    assert request.headers[header] == value
    assert json.loads(request.body)["in_sync"] == [{"replica_id": 1, "uid": "uid-1"}]


async def test_an_unanswered_change_is_repeated_unchanged_at_the_next() -> None:
    async def answer(request: Request) -> HttpResponse:
        if request.url == FIRST:
            raise TransportError("reset")
        return problem_answer(PreconditionFailedError("it has version 8-0"))

    transport = ScriptedTransport(answer)

    with pytest.raises(PreconditionFailedError):
        await Controllers(transport, [FIRST, SECOND]).change(
            "broker-a", without(group(), 2, {}), version="7-0"
        )
    first, second = transport.requests
    assert (first.body, first.headers) == (second.body, second.headers)


async def test_a_history_is_read_page_by_page_until_there_are_enough() -> None:
    changes = [
        {
            "kind": "changed",
            "version": f"{epoch}-0",
            "changed_at": CHANGED_AT.isoformat(),
            "epoch": epoch,
            "master": name(1).model_dump(),
            "in_sync": [name(1).model_dump()],
            "min_in_sync": 1,
            "unclean": False,
            "by": None,
            "reason": None,
        }
        for epoch in (9, 8, 7, 6)
    ]

    async def answer(request: Request) -> HttpResponse:
        page = changes[2:] if "cursor=more" in request.target else changes[:2]
        cursor = None if "cursor=more" in request.target else "more"
        return json_answer({"broker_name": "broker-a", "changes": page, "next_cursor": cursor})

    transport = ScriptedTransport(answer)
    controllers = Controllers(transport, [FIRST])

    assert [c.epoch for c in await controllers.history("broker-a", limit=9)] == [9, 8, 7, 6]
    assert [c.epoch for c in await controllers.history("broker-a", limit=3)] == [9, 8, 7]
    assert [c.epoch for c in await controllers.history("broker-a", limit=1)] == [9]
    assert len(transport.requests) == 2 + 2 + 1
