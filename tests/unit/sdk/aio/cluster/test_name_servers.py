"""Name servers: one is kept while it answers, and the others are there when it does not."""

from __future__ import annotations

import asyncio

import pytest

import eruca
from eruca.aio.cluster.name_servers import NameServers
from eruca.aio.http.transport import HttpResponse
from eruca.contract.errors import (
    NameServerSettlingError,
    NotFoundError,
    NotReadyError,
    TopicNotFoundError,
)
from support.scripted_transport import Request, ScriptedTransport, json_answer, problem_answer

pytestmark = pytest.mark.anyio

URLS = ["http://n1", "http://n2", "http://n3"]


def name_servers(*alive: str) -> tuple[NameServers, ScriptedTransport]:
    async def answer(request: Request) -> HttpResponse:
        if request.url in alive:
            return json_answer({"from": request.url})
        raise eruca.TransportError("nobody there")

    transport = ScriptedTransport(answer)
    return NameServers(URLS, transport), transport


async def test_one_that_answers_is_kept() -> None:
    servers, transport = name_servers(*URLS)

    for _ in range(5):
        await servers.request("GET", "/", timeout=1)

    assert len({request.url for request in transport.requests}) == 1


async def test_clients_do_not_all_begin_with_the_same() -> None:
    assert len({name_servers()[0].current_url for _ in range(100)}) == 3


@pytest.mark.parametrize("alive", URLS)
async def test_any_one_that_is_alive_is_enough(alive: str) -> None:
    servers, transport = name_servers(alive)

    await servers.request("GET", "/", timeout=1)
    await servers.request("GET", "/", timeout=1)

    assert servers.current_url == alive
    assert len(transport.requests) <= 4, "the one that answered is asked first the next time"


async def test_one_that_is_starting_is_left_for_another() -> None:
    async def answer(request: Request) -> HttpResponse:
        if request.url != "http://n2":
            return problem_answer(NotReadyError("starting"))
        return json_answer({})

    servers = NameServers(URLS, ScriptedTransport(answer))

    assert (await servers.request("GET", "/", timeout=1)).status == 200


async def test_a_refusal_is_an_answer_and_no_reason_to_ask_another() -> None:
    async def answer(_: Request) -> HttpResponse:
        return problem_answer(eruca.TopicNotFoundError("no topic"))

    transport = ScriptedTransport(answer)

    assert (await NameServers(URLS, transport).request("GET", "/", timeout=1)).status == 404
    assert len(transport.requests) == 1


@pytest.mark.parametrize(
    "foreign",
    [
        problem_answer(NotFoundError("there is nothing at /")),  # a broker's
        HttpResponse(403, {"content-type": "text/html"}, b"<h1>Forbidden</h1>"),  # a proxy's
    ],
)
async def test_what_answers_otherwise_is_no_name_server(foreign: HttpResponse) -> None:
    async def answer(request: Request) -> HttpResponse:
        return json_answer({}) if request.url == "http://n2" else foreign

    transport = ScriptedTransport(answer)
    assert (await NameServers(URLS, transport).request("GET", "/", timeout=1)).status == 200

    with pytest.raises(eruca.NameServersUnreachableError) as failed:
        await NameServers(["http://broker"], transport).request("GET", "/", timeout=1)

    assert "http://broker: the answer is not a name server's" in failed.value.detail
    assert "ERUCA_NAMESRV_URLS" in str(failed.value)


async def test_if_none_answers_the_error_tells_of_each() -> None:
    servers, _ = name_servers()

    with pytest.raises(eruca.NameServersUnreachableError) as failed:
        await servers.request("GET", "/", timeout=1)

    assert all(url in str(failed.value) for url in URLS)
    assert "ERUCA_NAMESRV_URLS" in str(failed.value)


async def test_one_that_hangs_leaves_time_for_the_others() -> None:
    async def answer(request: Request) -> HttpResponse:
        if request.url != "http://n3":
            await asyncio.Event().wait()
        return json_answer({})

    transport = ScriptedTransport(answer)
    await NameServers(URLS, transport).request("GET", "/", timeout=1.2)

    assert all(request.timeout <= 0.61 for request in transport.requests[:2])


async def test_a_held_request_is_given_its_time_on_top() -> None:
    servers, transport = name_servers(*URLS)

    await servers.request("GET", "/", timeout=1, held_seconds=20)

    assert transport.requests[0].timeout > 20


async def test_whatever_stands_before_a_name_server_and_refuses_counts_as_away() -> None:
    async def answer(_: Request) -> HttpResponse:
        return HttpResponse(
            502, {"content-type": "application/problem+json"}, b'{"code": "validation-failed"}'
        )

    with pytest.raises(eruca.NameServersUnreachableError):
        await NameServers(URLS, ScriptedTransport(answer)).request("GET", "/", timeout=1)


async def test_one_that_has_never_answered_https_is_suspected_of_speaking_plain_http() -> None:
    async def answer(request: Request) -> HttpResponse:
        raise eruca.TimeoutExpiredError(f"{request.url}: no answer within 1 s")

    servers = NameServers(["https://n1"], ScriptedTransport(answer))

    with pytest.raises(eruca.NameServersUnreachableError, match="write http:// instead of"):
        await servers.request("GET", "/", timeout=1)
    assert "write http:// instead of https://" in servers.silence
    assert "no answer within 1 s" in servers.silence


async def test_a_sender_that_gives_up_waiting_for_a_route_says_who_did_not_answer() -> None:
    async def never(_: Request) -> HttpResponse:
        await asyncio.Event().wait()
        raise AssertionError

    transport = ScriptedTransport(never)
    async with eruca.AsyncClient("https://n1", timeout_seconds=20, transport=transport) as client:
        producer = client.producer(send_timeout_seconds=0.2)
        with pytest.raises(eruca.TimeoutExpiredError, match="https://n1 has not answered; if"):
            await producer.send(eruca.Message("orders", b"x"))


def settling() -> HttpResponse:
    return problem_answer(NameServerSettlingError("it has just started"))


@pytest.mark.parametrize("known", [json_answer({}), problem_answer(TopicNotFoundError("no"))])
@pytest.mark.parametrize("knows", URLS)
async def test_one_that_knows_beats_those_that_do_not_know_yet(
    knows: str, known: HttpResponse
) -> None:
    async def answer(request: Request) -> HttpResponse:
        return known if request.url == knows else settling()

    servers = NameServers(URLS, ScriptedTransport(answer))

    assert await servers.request("GET", "/", timeout=60) is known


async def test_where_nobody_knows_yet_all_are_asked_again_until_one_does() -> None:
    async def answer(request: Request) -> HttpResponse:
        is_known = len(transport.requests) > 2 * len(URLS)
        return json_answer({"from": request.url}) if is_known else settling()

    transport = ScriptedTransport(answer)
    servers = NameServers(URLS, transport)

    assert (await servers.request("GET", "/", timeout=60)).status == 200
    assert servers.settling is None


async def test_not_to_know_yet_is_no_answer_and_may_be_repeated_when_time_is_up() -> None:
    async def answer(request: Request) -> HttpResponse:
        if request.url == "http://n1":
            raise eruca.TransportError("nobody there")
        return settling()

    servers = NameServers(URLS, ScriptedTransport(answer))

    with pytest.raises(NameServerSettlingError) as raised:
        await servers.request("GET", "/", timeout=0.01)

    assert raised.value.retryable
    assert servers.settling is not None


async def test_where_no_broker_lives_each_is_asked_once_and_the_error_may_be_repeated() -> None:
    brokerless = problem_answer(eruca.NoLiveBrokerError("no live broker"))

    async def answer(request: Request) -> HttpResponse:
        if request.url == "http://n1":
            raise eruca.TransportError("nobody there")
        return brokerless

    transport = ScriptedTransport(answer)
    with pytest.raises(eruca.NoLiveBrokerError, match="start a broker") as raised:
        await NameServers(URLS, transport).request("GET", "/", timeout=60)

    assert raised.value.retryable
    assert len(transport.requests) == len(URLS)
