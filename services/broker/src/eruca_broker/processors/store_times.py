"""Store times in lists: those of messages that only the tier has are fetched together, or unknown.

A list has a time for each queue, and most lists are about messages that are here. So no list waits
long for the tier, and none fails because of a time: after some seconds, or once the tier does not
answer, a time that is not here is unknown (null). What was being fetched is there for the next
list.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final, TypeVar

from eruca.contract.errors import UnavailableError
from eruca_broker.core.state.group_state import Queue
from eruca_broker.store.files.residency import NotInMemoryError, Stretch
from eruca_broker.store.message_store import MessageStore

FETCH_SECONDS: Final = 3.0  # for the times of one list

_T = TypeVar("_T")


class StoreTimes:
    """The times of one request.

    Args:
        store: Has the messages.
        reader: Pays for what is not in memory.

    Attributes:
        is_complete: Whether the list that is being made has all times that the tier has.
    """

    def __init__(self, store: MessageStore, reader: str) -> None:
        self.is_complete = True
        self._store = store
        self._reader = reader
        self._ends_at = asyncio.get_running_loop().time() + FETCH_SECONDS
        self._is_away = False  # the tier does not answer, or too slowly
        self._lacking: dict[tuple[Stretch, ...], NotInMemoryError] = {}
        self._known: dict[tuple[Queue, int], int | None] = {}

    async def listed(self, build: Callable[[StoreTimes], _T]) -> _T:
        """Return the list that *build* makes of the state and of times.

        Args:
            build: Changes nothing, since it runs again once more times are known.

        Raises:
            UnavailableError: A queue cannot be read, whatever its times.
        """
        while True:
            result = await self._store.cold.read(self._reader, partial(self._built, build))
            if not self._lacking or self._is_away:
                return result
            await self._fetch()

    def stored_at_ms(self, queue: Queue, offset: int) -> int | None:
        """Return when a queue's message at *offset* was stored; None: it is unknown."""
        queues, places = self._store.queues, self._store.places
        if offset >= queues.local_range(*queue)[0]:
            return places.stored_at_ms(*queue, offset)
        if (queue, offset) not in self._known:
            try:
                self._known[queue, offset] = places.stored_at_ms(*queue, offset)
            except NotInMemoryError as cold:
                self._lacking[tuple(cold.stretches)] = cold
                self.is_complete = False
                return None
            except UnavailableError:  # the tier lacks it
                self.is_complete = False
                return None
        return self._known[queue, offset]

    def _built(self, build: Callable[[StoreTimes], _T]) -> _T:
        self._lacking.clear()
        self.is_complete = True
        return build(self)

    async def _fetch(self) -> None:
        """Wait for what was lacking, for as long as there is time."""
        loop = asyncio.get_running_loop()
        bring = partial(self._store.cold.bring, self._reader)
        fetches = [loop.create_task(bring(cold)) for cold in self._lacking.values()]
        try:
            _, pending = await asyncio.wait(fetches, timeout=max(self._ends_at - loop.time(), 0.0))
        finally:
            for fetch in fetches:
                fetch.cancel()
            outcomes = await asyncio.gather(*fetches, return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, UnavailableError):
                self._is_away = True
            elif isinstance(outcome, Exception):
                raise outcome
        self._is_away = self._is_away or bool(pending)
