"""Answers that one caller has got a moment ago.

A page that is open in several tabs, and its live updates, ask the same questions. Concurrent equal
questions are asked once. The cache belongs to one caller, so it needs no rights of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass
from datetime import UTC, datetime
from time import monotonic
from typing import Any, Final, Generic, TypeVar, cast

from eruca_console.core.busy_time import BusyTime

LIFE_SECONDS: Final = 1.0
COSTLY_LIFE_SECONDS_MAX: Final = 10.0  # each table says as of when it is
COSTLY_REST: Final = 20  # so a costly question takes at most a twentieth of the time
ANSWER_COUNT_MAX: Final = 512

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True, slots=True)
class Answered(Generic[T_co]):
    """An answer, and when it was got."""

    value: T_co
    at: datetime


@dataclass(slots=True)
class _Entry:
    task: asyncio.Task[Answered[Any]]
    begun_at: float
    took_seconds: float = 0.0


class AnswerCache:
    """A bounded cache; failures are not kept.

    Args:
        now: Returns monotonic seconds.
        count_max: Answers that are remembered.
        busy: Counts the time in which the cluster is asked.
    """

    def __init__(
        self,
        now: Callable[[], float] = monotonic,
        *,
        count_max: int = ANSWER_COUNT_MAX,
        busy: BusyTime | None = None,
    ) -> None:
        self._now = now
        self._count_max = count_max
        self._busy = BusyTime(now) if busy is None else busy
        self._entries: dict[Hashable, _Entry] = {}  # the oldest first

    async def get(
        self,
        key: Hashable,
        ask: Callable[[], Awaitable[T]],
        *,
        life_seconds: float = LIFE_SECONDS,
        is_costly: bool = False,
    ) -> Answered[T]:
        """Return the answer to the question *key*: a recent one, or that of *ask*.

        Args:
            key: Equal for equal questions.
            ask: Asks the cluster.
            life_seconds: The age from which an answer is not recent.
            is_costly: Whether an answer that took long is recent for longer, in proportion.
        """
        entry = self._entries.get(key)
        if entry is None or self._is_old(entry, life_seconds, is_costly=is_costly):
            self._entries.pop(key, None)
            entry = self._begun(ask)
            self._entries[key] = entry
            while len(self._entries) > self._count_max:
                del self._entries[next(iter(self._entries))]
        # A caller that goes away must not end the request of another one.
        return cast("Answered[T]", await asyncio.shield(entry.task))

    def clear(self) -> None:
        """Forget everything, after an act."""
        self._entries.clear()

    def _begun(self, ask: Callable[[], Awaitable[T]]) -> _Entry:
        self._busy.begin()
        entry = _Entry(asyncio.ensure_future(_answer(ask)), self._now())

        def note_end(_: object) -> None:
            entry.took_seconds = self._now() - entry.begun_at
            self._busy.end()

        entry.task.add_done_callback(note_end)
        return entry

    def _is_old(self, entry: _Entry, life_seconds: float, *, is_costly: bool) -> bool:
        if not entry.task.done():
            return False
        has_failed = entry.task.cancelled() or entry.task.exception() is not None
        if is_costly:
            in_proportion = min(COSTLY_REST * entry.took_seconds, COSTLY_LIFE_SECONDS_MAX)
            life_seconds = max(life_seconds, in_proportion)
        return has_failed or self._now() - entry.begun_at >= life_seconds


async def _answer(ask: Callable[[], Awaitable[T]]) -> Answered[T]:
    return Answered(await ask(), datetime.now(UTC))
