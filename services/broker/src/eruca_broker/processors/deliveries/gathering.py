"""Requests about one group that are done together: decided in one turn, recorded in one write.

A turn ends when what was decided is in the log, under synchronous flush on the disk. Requests of
one kind that come while a turn is taken therefore gather, and have the next one together::

    request ──► round ──turn──► decided, one after the other ──► recorded, at once ──► answered
                  ▲  further requests join until the round has its turn, or is full

What each is told is what it would have been told had they come one after the other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Final, Generic, TypeAlias, TypeVar

from eruca.contract.errors import ErucaError

ROUND_MAX: Final = 64  # requests in one turn; others of the group wait for it

Asked = TypeVar("Asked")
Told = TypeVar("Told")
_Do: TypeAlias = Callable[[str, Sequence[Asked]], Awaitable[Sequence[Told | ErucaError]]]


class _Round(Generic[Asked, Told]):
    """Requests that will have a turn together."""

    def __init__(self) -> None:
        self.requests: list[Asked] = []
        self.task: asyncio.Task[Sequence[Told | ErucaError]] | None = None


class Gathering(Generic[Asked, Told]):
    """One kind of request, of all groups.

    Args:
        turn: Gives a group's turn.
        do: Does the requests of a round, in the group's turn; returns an outcome for each. What it
            raises, each of them gets.
    """

    def __init__(
        self, turn: Callable[[str], AbstractAsyncContextManager[None]], do: _Do[Asked, Told]
    ) -> None:
        self._turn = turn
        self._do = do
        self._rounds: dict[str, _Round[Asked, Told]] = {}  # that others may join, by group

    async def done(self, group: str, asked: Asked) -> Told:
        """Return what a request is told.

        Raises:
            ErucaError: As *do* gave or raised it.
        """
        joined = self._rounds.get(group)
        if joined is None or len(joined.requests) >= ROUND_MAX:
            joined = self._rounds[group] = _Round()
            joined.task = asyncio.create_task(self._run(group, joined))
        place = len(joined.requests)
        joined.requests.append(asked)
        assert joined.task is not None
        # Whoever is cancelled leaves the others alone; what was asked is done all the same.
        told = (await asyncio.shield(joined.task))[place]
        if isinstance(told, ErucaError):
            raise told
        return told

    async def _run(self, group: str, having: _Round[Asked, Told]) -> Sequence[Told | ErucaError]:
        async with self._turn(group):
            if self._rounds.get(group) is having:
                del self._rounds[group]
            return await self._do(group, having.requests)
