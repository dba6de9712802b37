"""Rounds: the periodic work of a member to read the queues that it should.

A round begins by reading the queues of its topics from the routes. A round starts on request,
within a second if a topic is missing or its route unknown, and every 20 s in case something was
missed. The next round handles requests that come during a round.

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
LOOK_SECONDS: Final = 1.0  # between two looks for a missing topic

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class KnownQueues:
    """The queues of some topics, with their brokers."""

    queues: dict[str, tuple[MessageQueue, ...]]  # by topic; empty for a missing topic
    unknown: frozenset[str]  # topics whose route is unknown now
    is_complete: bool  # whether all topics exist and are known


class Rounds:
    """The rounds of one member.

    Args:
        topics: Its subscribed topics.
        routes: The client's.
        go_through: Executes a round, with the queues known at its beginning.
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
            failed="the route of %s is unknown now: %s",
            over="the route of %s is known again",
        )
        self._asked = asyncio.Event()
        self._is_over = False

    def start(self, background: Background, name: str) -> None:
        """Start with a round."""
        background.start(self._run(), name)

    def ask(self) -> None:
        """Schedule a round."""
        self._asked.set()

    def end(self) -> None:
        """Start no further round; a round that is still reading the routes is not executed."""
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
