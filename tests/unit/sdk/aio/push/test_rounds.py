"""Rounds: none is missed, and a topic that cannot be read now is looked for again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final, cast

import pytest

from eruca.aio.cluster.routes import Routes
from eruca.aio.push import rounds
from eruca.aio.push.background import Background
from eruca.aio.push.rounds import KnownQueues, Rounds
from eruca.contract.errors import ErucaError, NameServersUnreachableError, TopicNotFoundError
from eruca.core.messages.message_queue import MessageQueue
from eruca.core.routing.route_table import SubscribeView

pytestmark = pytest.mark.anyio

ORDERS: Final = (MessageQueue("orders", "a", 0), MessageQueue("orders", "a", 1))
WAIT_SECONDS: Final = 60  # for what comes at once


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class SomeRoutes:
    """Routes as a test sets them; the error that stands for a topic's route is raised."""

    def __init__(self) -> None:
        self.views: dict[str, tuple[MessageQueue, ...] | ErucaError] = {}

    async def subscribe_view(self, topic: str) -> SubscribeView:
        found = self.views[topic]
        if isinstance(found, ErucaError):
            raise found
        return SubscribeView(topic, found, {})


class Member:
    """Notes what it knows at each round."""

    def __init__(self, *topics: str) -> None:
        self.routes = SomeRoutes()
        self.known = asyncio.Queue[KnownQueues]()
        self.rounds = Rounds(topics, cast("Routes", self.routes), self.known.put)

    async def round(self) -> KnownQueues:
        """Return what the next round knows."""
        async with asyncio.timeout(WAIT_SECONDS):
            return await self.known.get()

    @asynccontextmanager
    async def started(self) -> AsyncIterator[None]:
        failures: list[BaseException] = []
        background = Background(failures.append)
        self.rounds.start(background, "rounds")
        yield
        await background.close()
        assert not failures


async def test_a_round_comes_at_once_and_whenever_it_is_asked_for() -> None:
    member = Member("orders")
    member.routes.views["orders"] = ORDERS[:1]

    async with member.started():
        assert (await member.round()).queues == {"orders": ORDERS[:1]}
        member.routes.views["orders"] = ORDERS
        member.rounds.ask()
        assert (await member.round()).queues == {"orders": ORDERS}


async def test_what_is_asked_for_during_a_round_is_seen_to_by_the_next() -> None:
    member = Member("orders")
    member.routes.views["orders"] = ORDERS
    asked: list[KnownQueues] = []

    async def ask_once(known: KnownQueues) -> None:
        if not asked:
            asked.append(known)
            again.ask()
        await member.known.put(known)

    again = member.rounds = Rounds(["orders"], cast("Routes", member.routes), ask_once)
    async with member.started():
        await member.round()
        await member.round()


@pytest.mark.parametrize(
    ("error", "queues", "unknown"),
    [
        (TopicNotFoundError("late"), {"orders": ORDERS, "late": ()}, frozenset()),
        (NameServersUnreachableError("none answers"), {"orders": ORDERS}, frozenset({"late"})),
    ],
    ids=["not there", "not known"],
)
async def test_a_topic_that_cannot_be_read_now_is_looked_for_again_unasked(
    error: ErucaError,
    queues: dict[str, tuple[MessageQueue, ...]],
    unknown: frozenset[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rounds, "LOOK_SECONDS", 0)
    member = Member("orders", "late")
    member.routes.views = {"orders": ORDERS, "late": error}

    async with member.started():
        first = await member.round()
        assert (first.queues, first.unknown, first.is_complete) == (queues, unknown, False)
        member.routes.views["late"] = ()
        while not (latest := await member.round()).is_complete:
            pass
        assert latest.queues == {"orders": ORDERS, "late": ()}


async def test_after_the_end_no_round_is_gone_through() -> None:
    member = Member("orders")
    member.routes.views["orders"] = ORDERS
    async with member.started():
        await member.round()
        member.rounds.end()
        member.rounds.ask()
    assert member.known.empty()
