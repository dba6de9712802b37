"""Requests go to a query service that answers, and fall back to another one."""

from __future__ import annotations

import asyncio

import pytest

from eruca.aio.cluster.client_context import ClientContext
from eruca.aio.http.credentials import ANONYMOUS
from eruca.aio.http.transport import HttpResponse
from eruca.aio.query import AsyncQuery
from eruca.aio.transaction_admin import AsyncTransactionAdmin
from eruca.contract.errors import NoRouteError, NotReadyError, TransportError
from eruca.core.client_settings import ClientSettings
from support.scripted_transport import Request, ScriptedTransport, json_answer, problem_answer

pytestmark = pytest.mark.anyio


class Services:
    """Name servers that know of some query services, some of which are away, or stop."""

    def __init__(
        self,
        *known: str,
        away: tuple[str, ...] = (),
        stopping: tuple[str, ...] = (),
        namesrv_urls: str = "http://namesrv:1",
    ) -> None:
        self.known = known
        self.away = away
        self.stopping = stopping
        self.ignorant: tuple[str, ...] = ()  # name servers that have just started
        self.transport = ScriptedTransport(self._answer)
        settings = ClientSettings.resolve({}, namesrv_urls=namesrv_urls)
        self.context = ClientContext(
            settings,
            credentials=ANONYMOUS,
            hot_transport=self.transport,
            transport=self.transport,
        )
        self.query = AsyncQuery(self.context)

    async def _answer(self, request: Request) -> HttpResponse:
        if request.target.startswith("/v1/kv/"):
            known = () if request.url in self.ignorant else self.known
            entries = {f"query-{number}": url for number, url in enumerate(known)}
            return json_answer({"namespace": "ERUCA_QUERY_SERVICES", "entries": entries})
        await asyncio.sleep(0)  # so that questions overlap
        if request.url in self.away:
            raise TransportError(f"{request.url}: refused")
        if request.url in self.stopping:
            return problem_answer(NotReadyError("the service is stopping"))
        return json_answer({"brokers": []})


async def test_questions_that_meet_the_same_dead_service_all_go_to_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ERUCA_QUERY_URLS", "http://q:1;http://q:2")  # in this order
    services = Services(away=("http://q:1",))

    await asyncio.gather(*(services.query.rebuild() for _ in range(8)))

    assert await services.query.urls() == ["http://q:2"]


async def test_one_that_stops_is_left_for_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ERUCA_QUERY_URLS", "http://q:1;http://q:2")  # in this order
    services = Services(stopping=("http://q:1",))

    assert await services.query.rebuild() == []
    assert await services.query.urls() == ["http://q:2"]

    services.stopping = ("http://q:1", "http://q:2")
    with pytest.raises(NotReadyError, match="the service is stopping"):
        await services.query.rebuild()


async def test_one_that_has_come_back_is_found_when_the_others_have_gone() -> None:
    services = Services("http://q:1", "http://q:2", away=("http://q:1",))
    while await services.query.urls() != ["http://q:2"]:
        await services.query.rebuild()  # which of them is asked first is left to chance
        if "http://q:1" in await services.query.urls():
            services.query = AsyncQuery(services.context)

    services.away = ("http://q:2",)
    assert await services.query.rebuild() == []


async def test_where_none_answers_the_error_says_so_and_they_are_looked_up_again() -> None:
    services = Services("http://q:1", "http://q:2", away=("http://q:1", "http://q:2"))
    with pytest.raises(TransportError, match="refused") as caught:
        await services.query.rebuild()
    assert caught.value.fix is not None
    assert "ERUCA_QUERY_URLS" in caught.value.fix

    services.known = ("http://q:3",)
    assert await services.query.rebuild() == []
    assert await services.query.urls() == ["http://q:3"]


async def test_a_name_server_that_has_just_started_does_not_hide_what_another_knows() -> None:
    services = Services("http://q:1", namesrv_urls="http://namesrv:1;http://namesrv:2")
    services.ignorant = (services.context.name_servers.current_url,)

    assert await services.query.urls() == ["http://q:1"]


async def test_where_none_is_known_the_error_says_how_to_have_one() -> None:
    with pytest.raises(NoRouteError, match="no query service is known to http://namesrv:1") as none:
        await Services().query.urls()

    assert none.value.fix is not None
    assert "python -m eruca_query" in none.value.fix


async def test_a_broker_is_forgotten_by_a_query_service_and_a_checker_that_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    services = Services("http://q:1", away=("http://t:1",))
    monkeypatch.setenv("ERUCA_TXN_CHECKER_URLS", "http://t:1;http://t:2")

    await services.query.forget("ROOM@broker-b")
    await AsyncTransactionAdmin(services.context).forget("ROOM@broker-b")

    asked = [
        (its.method, its.url) for its in services.transport.requests if "brokers" in its.target
    ]
    assert asked == [("DELETE", f"http://{where}") for where in ("q:1", "t:1", "t:2")]
