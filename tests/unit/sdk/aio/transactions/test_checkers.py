"""A producer chooses among transaction checkers."""

from __future__ import annotations

import pytest

import eruca
from eruca.aio.cluster.name_servers import NameServers
from eruca.aio.http.transport import HttpResponse
from eruca.aio.transactions.checkers import Checkers
from eruca.contract.errors import NotReadyError
from support.scripted_transport import Request, ScriptedTransport, json_answer, problem_answer

pytestmark = pytest.mark.anyio


class Table:
    """The name servers' table, as a test sets it."""

    def __init__(self, **entries: str) -> None:
        self.entries = entries
        self.fault: eruca.ErucaError | None = None
        self.transport = ScriptedTransport(self._answer)

    async def _answer(self, request: Request) -> HttpResponse:
        assert request.target == "/v1/kv/ERUCA_TXN_CHECKERS"
        if self.fault is not None:
            return problem_answer(self.fault)
        return json_answer({"namespace": "ERUCA_TXN_CHECKERS", "entries": self.entries})

    def checkers(self, *given: str) -> Checkers:
        return Checkers(NameServers(["http://namesrv"], self.transport), given, timeout=1)


async def test_one_is_kept_until_it_fails_and_all_are_looked_for_again_in_the_end() -> None:
    table = Table(one="http://c:1", two="http://d:2")
    checkers = table.checkers()
    first = await checkers.url()
    assert await checkers.url() == first

    assert checkers.turn_away(first)
    second = await checkers.url()
    assert {first, second} == {"http://c:1", "http://d:2"}
    assert len(table.transport.requests) == 1

    assert not checkers.turn_away(second)
    table.entries = {"three": "http://e:3"}
    assert await checkers.url() == "http://e:3"
    assert len(table.transport.requests) == 2


async def test_those_that_are_given_are_used_without_asking() -> None:
    table = Table(one="http://c:1")
    checkers = table.checkers("http://x:1")
    assert await checkers.url() == "http://x:1"

    assert not checkers.turn_away("http://x:1")
    assert not checkers.turn_away("http://never:1")
    assert await checkers.url() == "http://x:1"
    assert table.transport.requests == []


async def test_an_entry_that_is_no_url_does_not_hide_the_others() -> None:
    table = Table(one="nonsense", two="http://d:2/", three="")

    assert await table.checkers().url() == "http://d:2"


async def test_that_none_is_known_says_what_to_do() -> None:
    with pytest.raises(eruca.NoRouteError, match="ERUCA_TXN_CHECKER_URLS"):
        await Table().checkers().url()

    table = Table()
    table.fault = NotReadyError("starting")
    with pytest.raises(eruca.NameServersUnreachableError):
        await table.checkers().url()
