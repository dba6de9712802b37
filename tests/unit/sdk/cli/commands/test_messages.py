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
OFFSET_ID = "7F00000100002A9F00000000007D2548"
MESSAGE = {
    "topic": "orders",
    "queue_id": 3,
    "queue_offset": 1041,
    "log_offset": 8_201_544,
    "size": 231,
    "damage": None,
    "message_id": "7F00000100002A9F000000000134F1F5",
    "offset_message_id": OFFSET_ID,
    "tag": None,
    "keys": [UNIQUE_ID],
    "sharding_key": None,
    "properties": {},
    "body": {"text": "paid"},
    "flag": 0,
    "reconsume_times": 0,
    "born_at": "2026-11-21T08:00:00.121Z",
    "born_host": "127.0.0.1:52044",
    "stored_at": "2026-11-21T08:00:00.123Z",
    "store_host": "127.0.0.1:10911",
}
LOG_RECORD = {
    "log_offset": MESSAGE["log_offset"],
    "size": MESSAGE["size"],
    "message": MESSAGE,
    "sys_flag": 0,
    "prepared_offset": 0,
    "system_properties": {},
}


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


async def test_an_offset_id_is_not_searched_for_by_key(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A search through all of a tier takes many pages, and one request finds it."""

    async def answer(asked: Request) -> HttpResponse:
        assert "/messages?" not in asked.target
        if "/log/records/" in asked.target:
            return json_answer(LOG_RECORD)
        brokers = live_brokers("a")
        brokers["brokers"][0]["brokers"][0]["store_host"] = "127.0.0.1:10911"
        return json_answer(brokers)

    def client(_session: Session) -> eruca.AsyncClient:
        return eruca.AsyncClient("http://one", transport=ScriptedTransport(answer))

    monkeypatch.setattr(Session, "client", client)
    await messages.show(Session(), message_id=OFFSET_ID, topic="orders")

    assert OFFSET_ID in capsys.readouterr().out


@pytest.mark.parametrize("brokers", [1, 2])
async def test_a_search_by_unique_id_ends_with_the_page_that_has_it(brokers: int) -> None:
    pages = 0

    async def answer(asked: Request) -> HttpResponse:
        nonlocal pages
        if "/messages?" in asked.target:
            pages += 1
            its = [MESSAGE | {"message_id": UNIQUE_ID}] if pages == 3 else [MESSAGE]
            page = {"messages": its, "is_complete": False, "next_cursor": "more"}
            return json_answer(page | {"incomplete": None})
        if asked.target == "/v1/brokers":
            return json_answer(live_brokers(*"ab"[:brokers]))
        return json_answer(route_of("orders", *"ab"[:brokers]))

    async with eruca.AsyncClient("http://one", transport=ScriptedTransport(answer)) as client:
        found = await client.admin.message_by_unique_id("orders", UNIQUE_ID)

    assert found.message_id == UNIQUE_ID
    assert pages <= 2 + brokers
