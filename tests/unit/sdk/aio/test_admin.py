"""Administration: who is asked; and names that nothing can have are refused before anybody is."""

from __future__ import annotations

import math
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

import eruca
from eruca.aio.http.transport import HttpResponse
from support.scripted_transport import (
    Request,
    ScriptedTransport,
    json_answer,
    live_brokers,
    problem_answer,
    route_of,
)

pytestmark = pytest.mark.anyio

NAMESRV = "http://127.0.0.1:1"  # nobody listens there
QUEUE = eruca.MessageQueue("orders", "broker-a", 0)

Ask = Callable[[eruca.AsyncClient, str], Awaitable[object] | AsyncIterator[object]]

OF_TOPIC: dict[str, Ask] = {
    "create": lambda client, name: client.admin.create_topic(name),
    "change": lambda client, name: client.admin.change_topic(name, {}),
    "show": lambda client, name: client.admin.topic(name),
    "delete": lambda client, name: client.admin.delete_topic(name),
    "route": lambda client, name: client.admin.route(name),
    "queues": lambda client, name: client.admin.queues(name),
    "by key": lambda client, name: client.admin.messages_by_key(name, "17"),
    "scheduled": lambda client, name: client.admin.scheduled(name),
    "lag": lambda client, name: client.admin.groups.lag("billing", topic=name),
    "reset": lambda client, name: client.admin.groups.reset("billing", name, "latest"),
    "dead letters": lambda client, name: client.admin.groups.dead_letters("billing", topic=name),
    "redrive": lambda client, name: client.admin.groups.redrive("billing", topic=name),
    "find": lambda client, name: client.query.find(name),
}
OF_GROUP: dict[str, Ask] = {
    "create": lambda client, name: client.admin.groups.create(name),
    "show": lambda client, name: client.admin.groups.get(name),
    "delete": lambda client, name: client.admin.groups.delete(name),
    "members": lambda client, name: client.admin.groups.members(name),
    "lag": lambda client, name: client.admin.groups.lag(name),
    "commit": lambda client, name: client.admin.groups.commit(name, {}),
    "reset": lambda client, name: client.admin.groups.reset(name, "orders", "latest"),
    "dead letters": lambda client, name: client.admin.groups.dead_letters(name),
    "dead letter": lambda client, name: client.admin.groups.dead_letter(name, "broker-a", 1),
    "redrive": lambda client, name: client.admin.groups.redrive(name),
    "find": lambda client, name: client.query.find("orders", group=name),
    "transactions": lambda client, name: client.admin.transactions.undecided(producer_group=name),
}


async def answer_of(asked: Awaitable[object] | AsyncIterator[object]) -> object:
    return await (anext(asked) if isinstance(asked, AsyncIterator) else asked)


async def error_of(ask: Ask, name: str) -> eruca.ValidationError:
    async with eruca.AsyncClient(NAMESRV) as client:
        with pytest.raises(eruca.ValidationError) as refusal:
            await answer_of(ask(client, name))
        return refusal.value


@pytest.mark.parametrize("name", ["a b", "a/b", "", "x" * 128])
@pytest.mark.parametrize("ask", OF_TOPIC.values(), ids=OF_TOPIC)
async def test_a_name_that_no_topic_can_have_is_refused(ask: Ask, name: str) -> None:
    error = await error_of(ask, name)

    assert error.detail.startswith(f"topic: {name!r} ")
    assert error.fix == "use up to 127 letters, digits, %, |, _ and -"


@pytest.mark.parametrize("name", ["a b", "a/b", "", "x" * 121])
@pytest.mark.parametrize("ask", OF_GROUP.values(), ids=OF_GROUP)
async def test_a_name_that_no_group_can_have_is_refused(ask: Ask, name: str) -> None:
    error = await error_of(ask, name)

    assert f"group: {name!r} " in error.detail
    assert error.fix == "use up to 120 letters, digits, %, |, _ and -"


@pytest.mark.parametrize("name", ["a b", "a/b", "", "x" * 256])
async def test_a_name_that_the_key_value_table_cannot_have_is_refused(name: str) -> None:
    for ask in (
        lambda client, name: client.admin.list_kv(name),
        lambda client, name: client.admin.put_kv(name, "k", "v"),
    ):
        error = await error_of(ask, name)
        assert error.detail.startswith(f"namespace: {name!r} ")
    for ask in (
        lambda client, name: client.admin.kv("n", name),
        lambda client, name: client.admin.put_kv("n", name, "v"),
        lambda client, name: client.admin.delete_kv("n", name),
    ):
        error = await error_of(ask, name)
        assert error.detail.startswith(f"key: {name!r} ")
        assert error.fix == "use up to 255 letters, digits, _, %, |, @, ., : and -"


@pytest.mark.parametrize("value", [5, "x" * 70_000])
async def test_a_value_that_the_key_value_table_cannot_have_is_refused(value: Any) -> None:  # noqa: ANN401
    error = await error_of(lambda client, _: client.admin.put_kv("n", "k", value), "")

    assert error.detail.startswith("value: ")


OF_NUMBER: dict[str, Callable[[eruca.AsyncClient, Any], Awaitable[object]]] = {
    "per_second": lambda client, n: client.admin.groups.redrive("billing", per_second=n),
    "count_max": lambda client, n: client.pull_consumer(topics="orders").poll(n),
    "wait_seconds": lambda client, n: client.pull_consumer(topics="orders").poll(wait_seconds=n),
    "offset": lambda client, n: client.pull_consumer(topics="orders").seek(QUEUE, n),
    "offsets": lambda client, n: client.pull_consumer("g", topics="orders").commit({QUEUE: n}),
    "wait_seconds for deliveries": lambda client, n: client.simple_consumer("g", "orders").receive(
        wait_seconds=n
    ),
}


@pytest.mark.parametrize("number", [math.nan, -1, "3"])
@pytest.mark.parametrize("name", OF_NUMBER)
async def test_what_is_no_number_is_refused(name: str, number: float | str) -> None:
    """As a wait or a count it would be an empty answer for ever."""
    error = await error_of(lambda client, _: OF_NUMBER[name](client, number), "")

    argument = name.partition(" ")[0]
    found = re.escape(repr(number))
    assert re.match(rf"{argument}: (expected .+, found {found}$|{found} is no)", error.detail)


async def test_what_is_no_offset_id_is_told_what_one_is() -> None:
    error = await error_of(lambda client, text: client.admin.message_by_offset_id(text), "x")

    assert error.detail.startswith("expected an offset id of 32 hex digits")


async def test_topics_are_listed_by_a_name_server_that_has_not_just_started() -> None:
    async def name_server(request: Request) -> HttpResponse:
        knows = request.url != ignorant
        if request.target == "/v1/brokers":
            return json_answer(live_brokers("a") if knows else live_brokers())
        return json_answer({"topics": ["orders"] if knows else [], "next_cursor": None})

    transport = ScriptedTransport(name_server)
    async with eruca.AsyncClient("http://one;http://another", transport=transport) as client:
        ignorant = client.context.name_servers.current_url
        assert await client.admin.list_topics() == ["orders"]


OLDEST = "2026-11-28T06:00:00.000Z"


def lag_of(queue_count: int | None, lag: int | None, oldest: str | None = None) -> dict[str, Any]:
    total = {"queue_count": queue_count, "lag": lag, "oldest_unconsumed_at": oldest}
    return {"lags": [{"group": "billing", **total}], "next_cursor": None}


@pytest.mark.parametrize(
    ("parts", "lag", "is_oldest_known"),
    [
        ((lag_of(2, 5, OLDEST), lag_of(1, 3, OLDEST)), 8, True),
        ((lag_of(2, 5, OLDEST), lag_of(0, None)), 5, True),  # it has begun at one broker only
        ((lag_of(2, 5, OLDEST), lag_of(1, 0)), 5, True),
        ((lag_of(2, 5, OLDEST), lag_of(None, None)), None, False),
        ((lag_of(2, 5, OLDEST), lag_of(1, 3)), 8, False),
        ((lag_of(0, None), lag_of(0, None)), None, False),
    ],
)
async def test_a_lag_is_the_sum_over_all_brokers_or_unknown(
    parts: tuple[dict[str, Any], ...], lag: int | None, is_oldest_known: bool
) -> None:
    async def answer(request: Request) -> HttpResponse:
        if request.target == "/v1/brokers":
            return json_answer(live_brokers("a", "b"))
        assert request.target.startswith("/v1/group-lags?")
        return json_answer(parts["b" in request.url.rpartition("/")[2]])

    async with eruca.AsyncClient("http://one", transport=ScriptedTransport(answer)) as client:
        total = (await client.admin.groups.lags())["billing"]

    assert total.lag == lag
    assert (total.oldest_unconsumed_at is not None) == is_oldest_known


async def test_a_broker_of_an_earlier_version_makes_all_lags_unknown() -> None:
    async def answer(request: Request) -> HttpResponse:
        if request.target == "/v1/brokers":
            return json_answer(live_brokers("a", "b"))
        if "b" in request.url.rpartition("/")[2]:
            return problem_answer(eruca.NotFoundError("no such path"))
        return json_answer(lag_of(2, 5, OLDEST))

    unanswered: dict[str, eruca.ErucaError] = {}
    async with eruca.AsyncClient("http://one", transport=ScriptedTransport(answer)) as client:
        lags = await client.admin.groups.lags(unanswered=unanswered)
        with pytest.raises(eruca.UnavailableError, match="earlier version"):
            await client.admin.groups.lags()

    assert lags == {"billing": eruca.TotalLag(None, None)}
    assert list(unanswered) == ["b"]


@pytest.mark.parametrize(
    "page",
    [
        {"incomplete": "2 segments of the tier have no keys"},
        {"damaged": [{"log_offset": 17, "reason": "2 segments of the tier have no keys"}]},
    ],
    ids=["not searched", "damaged"],
)
async def test_a_search_by_key_says_what_it_has_not_searched(page: dict[str, Any]) -> None:
    """Two pages of each broker; only one page of one of them lacks something."""

    async def answer(request: Request) -> HttpResponse:
        if "/messages?" not in request.target:
            return json_answer(route_of("orders", "a", "b"))
        is_last = "cursor=" in request.target
        found = {"messages": [], "is_complete": is_last, "next_cursor": None if is_last else "c"}
        lacks = is_last and "b" in request.url.rpartition("/")[2]
        return json_answer(found | (page if lacks else {}))

    incomplete: dict[str, str] = {}
    async with eruca.AsyncClient("http://one", transport=ScriptedTransport(answer)) as client:
        found = await client.admin.messages_by_key("orders", "17", incomplete=incomplete)
        with pytest.raises(eruca.SearchIncompleteError, match=r"b: .*segments of the tier"):
            await client.admin.messages_by_key("orders", "17")

    assert found == []
    assert list(incomplete) == ["b"]
    assert "2 segments of the tier have no keys" in incomplete["b"]


async def test_a_search_by_key_keeps_a_bounded_number_of_reasons() -> None:
    async def answer(request: Request) -> HttpResponse:
        if "/messages?" not in request.target:
            return json_answer(route_of("orders", "a"))
        number = int(request.target.partition("cursor=")[2] or 0)
        following = None if number == 30 else str(number + 1)
        page = {"messages": [], "is_complete": False, "incomplete": f"page {number}"}
        return json_answer(page | {"next_cursor": following})

    incomplete: dict[str, str] = {}
    async with eruca.AsyncClient("http://one", transport=ScriptedTransport(answer)) as client:
        await client.admin.messages_by_key("orders", "17", incomplete=incomplete)

    assert incomplete["a"].startswith("page 0; page 1; ")
    assert len(incomplete["a"]) < 100
