"""Rounds: what a member goes through again and again, to read what it should.

A round begins by looking where the queues of its topics are. One comes whenever it is asked for;
within a second where a topic was not there or its route not known; and every 20 s, should anything
have been missed. What is asked for during a round is seen to by the next.

Source: RocketMQ 5.3, ``RebalanceService``.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from eruca.aio.cluster.outages import Outages
from eruca.aio.cluster.routes import Routes
from eruca.aio.push.background import Background
from eruca.contract.errors import ErucaError, TopicNotFoundError
from eruca.core.messages.message_queue import MessageQueue

ROUND_SECONDS: Final = 20.0  # RocketMQ's rebalance.waitInterval
LOOK_SECONDS: Final = 1.0  # between two looks for a topic that is not there yet

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class KnownQueues:
    """The queues of some topics, with their brokers."""

    queues: dict[str, tuple[MessageQueue, ...]]  # by topic; none of one that is not there
    unknown: frozenset[str]  # topics whose route is not known just now
    is_complete: bool  # whether all topics are there and known


class Rounds:
    """The rounds of one member.

    Args:
        topics: What it subscribes to.
        routes: The client's.
        go_through: Goes through a round, with what is known of the queues when it begins.
    """

    def __init__(
        self,
        topics: Iterable[str],
        routes: Routes,
        go_through: Callable[[KnownQueues], Awaitable[None]],
    ) -> None:
        self._topics = tuple(topics)
        self._routes = routes
        self._go_through = go_through
        self._outages = Outages(
            _logger,
            failed="the route of %s is not known just now: %s",
            over="the route of %s is known again",
        )
        self._asked = asyncio.Event()
        self._is_over = False

    def start(self, background: Background, name: str) -> None:
        """Begin with a round."""
        background.start(self._run(), name)

    def ask(self) -> None:
        """Have a round soon."""
        self._asked.set()

    def end(self) -> None:
        """Have no further round; one that is still looking for the queues is not gone through."""
        self._is_over = True

    async def _run(self) -> None:
        while not self._is_over:
            self._asked.clear()
            known = await self._look()
            if self._is_over:
                return
            await self._go_through(known)
            with suppress(TimeoutError):
                async with asyncio.timeout(ROUND_SECONDS if known.is_complete else LOOK_SECONDS):
                    await self._asked.wait()

    async def _look(self) -> KnownQueues:
        queues: dict[str, tuple[MessageQueue, ...]] = {}
        unknown: set[str] = set()
        is_complete = True
        for topic in self._topics:
            try:
                queues[topic] = (await self._routes.subscribe_view(topic)).queues
                self._outages.answered(topic)
            except TopicNotFoundError:
                queues[topic] = ()
                is_complete = False
            except ErucaError as error:
                self._outages.failed(topic, error)
                unknown.add(topic)
                is_complete = False
        return KnownQueues(queues, frozenset(unknown), is_complete)
