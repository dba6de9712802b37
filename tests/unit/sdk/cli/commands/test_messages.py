"""Messages by id and key: what was not searched is never taken for not there."""

from __future__ import annotations

import pytest

import eruca
from eruca.aio.http.transport import HttpResponse
from eruca.cli.commands import messages
from eruca.cli.session import Output, Session
from support.scripted_transport import (
    Request,
    ScriptedTransport,
    json_answer,
    live_brokers,
    problem_answer,
    route_of,
)

pytestmark = pytest.mark.anyio

REASON = "2 segments of the tier were uploaded without their keys"
UNIQUE_ID = "0A0000010000000000000000000000FF"


@pytest.fixture(params=[REASON, None], ids=["incomplete", "complete"])
def reason(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str | None:
    """Return what the brokers, which find nothing, have not searched; and have the CLI ask them."""
    given: str | None = request.param

    async def answer(asked: Request) -> HttpResponse:
        if "/messages?" in asked.target:
            page = {"messages": [], "is_complete": given is None, "next_cursor": None}
            return json_answer(page | {"incomplete": given})
        if asked.target == "/v1/brokers":
            return json_answer(live_brokers("a"))
        if "/topics/" in asked.target:
            return json_answer(route_of("orders", "a"))
        return problem_answer(eruca.NotFoundError("no such path"))

    def client(_session: Session) -> eruca.AsyncClient:
        return eruca.AsyncClient("http://one", transport=ScriptedTransport(answer))

    monkeypatch.setattr(Session, "client", client)
    return given


@pytest.mark.parametrize("output", Output)
async def test_an_incomplete_search_by_key_fails_and_says_why(
    output: Output, reason: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    code = await messages.find(Session(output=output), topic="orders", key="17")

    out, told = capsys.readouterr()
    assert code == (0 if reason is None else 1)
    assert (f"a may have more messages with the key: {REASON}" in told) == (reason is not None)
    assert ("no message found" in out + told) == (reason is None and output is Output.TABLE)


async def test_a_message_is_missing_only_if_everything_was_searched(reason: str | None) -> None:
    expected = eruca.RecordNotFoundError if reason is None else eruca.SearchIncompleteError

    with pytest.raises(expected, match=UNIQUE_ID):
        await messages.show(Session(), message_id=UNIQUE_ID, topic="orders")
