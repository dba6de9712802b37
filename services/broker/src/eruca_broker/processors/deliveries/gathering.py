"""Requests about one group that share a turn: decided in order, recorded in one write.

A turn ends when its decisions are in the log, and under synchronous flush on the disk. So requests
of one kind that come while a turn is taken gather, and share the next turn::

    request ──► round ──turn──► decided, one after the other ──► recorded, at once ──► answered
                  ▲  further requests join until the round has its turn, or is full

Each gets the same answer as if they had come one after the other.
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
    """Requests that will share a turn."""

    def __init__(self) -> None:
        self.requests: list[Asked] = []
        self.task: asyncio.Task[Sequence[Told | ErucaError]] | None = None


class Gathering(Generic[Asked, Told]):
    """One kind of request, of all groups.

    Args:
        turn: Gives a group's turn.
        do: Does the requests of a round, in the group's turn; returns an outcome for each. An error
            that it raises is the outcome of each.
    """

    def __init__(
        self, turn: Callable[[str], AbstractAsyncContextManager[None]], do: _Do[Asked, Told]
    ) -> None:
        self._turn = turn
        self._do = do
        self._rounds: dict[str, _Round[Asked, Told]] = {}  # rounds that others may join, by group

    async def done(self, group: str, asked: Asked) -> Told:
        """Return the outcome of a request.

        Raises:
            ErucaError: As *do* returned or raised it.
        """
        joined = self._rounds.get(group)
        if joined is None or len(joined.requests) >= ROUND_MAX:
            joined = self._rounds[group] = _Round()
            joined.task = asyncio.create_task(self._run(group, joined))
        place = len(joined.requests)
        joined.requests.append(asked)
        assert joined.task is not None
        # A cancelled caller does not affect the others; its request is done all the same.
        told = (await asyncio.shield(joined.task))[place]
        if isinstance(told, ErucaError):
            raise told
        return told

    async def _run(self, group: str, having: _Round[Asked, Told]) -> Sequence[Told | ErucaError]:
        async with self._turn(group):
            if self._rounds.get(group) is having:
                del self._rounds[group]
            told = await self._do(group, having.requests)
        assert len(told) == len(having.requests), "a request would get another one's outcome"
        return told
