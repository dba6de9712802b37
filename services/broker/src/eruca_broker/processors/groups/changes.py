"""Change groups: one change of a group at a time, each in the log before the next is decided.

A write to the log lies between a decision and its effect. A request that examines a group and then
changes it does both in the group's **turn**, so nothing changes in between. Different groups do not
wait for each other.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

from eruca_broker.core.state.events import Event
from eruca_broker.core.state.group_events import MembershipBegan
from eruca_broker.store.message_store import MessageStore
from eruca_chassis.finishing import finished


class GroupChanges:
    """The turns of all groups, and the events recorded in them."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store
        self._has_begun = False  # whether this run is in the log
        self._turns: dict[str, tuple[asyncio.Lock, int]] = {}  # … and its users

    @property
    def turn_count(self) -> int:
        """Return the number of groups that are being changed."""
        return len(self._turns)

    @asynccontextmanager
    async def turn(self, group: str) -> AsyncIterator[None]:
        """Wait for the group's turn, and hold it."""
        lock, wanted = self._turns.get(group) or (asyncio.Lock(), 0)
        self._turns[group] = (lock, wanted + 1)
        try:
            async with lock:
                yield
        finally:
            wanted = self._turns[group][1] - 1
            if wanted:
                self._turns[group] = (lock, wanted)
            else:
                del self._turns[group]

    async def record(self, *events: Event) -> None:
        """Record events that belong together: all of them or none; they are in effect on return.

        The first call since the start also records that a run with changes of groups has begun,
        even if there are no other events. Generations count from there. If the caller is cancelled,
        it still waits for the events: its turn must not end before.

        Raises:
            ErucaError: Writes are refused now, or the events are too large; nothing has changed.
        """
        together = events if self._has_begun else (MembershipBegan(), *events)
        if together:
            await finished(self._store.change_all(together))
            self._has_begun = True

    async def record_each(self, events: Iterable[Event]) -> None:
        """Record events that do not depend on each other, and may be large together.

        Raises:
            ErucaError: One of them was refused; others are in effect.
        """
        if not self._has_begun:
            await self.record()
        changes = asyncio.gather(*map(self._store.change, events), return_exceptions=True)
        for outcome in await finished(changes):
            if isinstance(outcome, BaseException):
                raise outcome
