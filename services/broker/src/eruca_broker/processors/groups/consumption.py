"""Messages and bytes that groups take over, by group and topic.

A pull does not name its group. So a group's consumption is what it **takes over**: the messages
that its commits move its positions past, and the deliveries that it acknowledges.

The messages are counted at once. Their bytes are the sizes in the entries of their queue, which are
summed later: a second later, or before somebody reads the counters, unless the sums have been late
for half a second. So a pull costs nothing, and a commit notes one range::

    commit, release, acknowledgement ──► range of a queue ──settle──► sum of its entries' sizes

Ranges of one group and queue that follow one another are one range. An entry that retention deleted
before, a queue that cannot be read, and ranges beyond the limits have no sizes: their messages are
counted as unsized, and never estimated.

Invariant: every message counted in ``flows`` is in a noted range, or in the bytes, or unsized.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from functools import partial
from typing import Final, TypeAlias

from eruca.contract.errors import UnavailableError
from eruca_broker.core.state.group_state import Queue
from eruca_broker.processors.pacing import Pace
from eruca_broker.processors.traffic import Flow, by_group
from eruca_broker.store.message_store import MessageStore

SETTLE_SECONDS: Final = 1.0  # between two sums: the entries are still in memory
WAIT_SECONDS: Final = 0.5  # of readers of the counters, since the sums are late
SUMMED_COUNT_MAX: Final = 10_000_000  # messages of one range, noted at once: 200 MB of entries
NOTED_MAX: Final = 10_000  # ranges that wait for their sum; a second's worth of commits
_PIECE_COUNT: Final = 65_536  # entries that are summed without a pause: some 0.1 ms

_Key: TypeAlias = tuple[str, Queue]  # group, queue


class _Range:
    """Offsets of a queue whose sizes are not summed yet."""

    __slots__ = ("begin", "end")

    def __init__(self, begin: int, end: int) -> None:
        self.begin = begin
        self.end = end


class Consumption:
    """Counts what the groups of one store take over.

    Attributes:
        flows: Messages and bytes by group and topic, since the broker began.
        unsized_count: Messages in ``flows`` whose bytes are not.
        began_at_ms: Time of that beginning, in ms since the epoch.
        noted_count: Ranges that wait for their sum; at most ``NOTED_MAX``.
    """

    def __init__(self, store: MessageStore, began_at_ms: int) -> None:
        self.flows = by_group()
        self.began_at_ms = began_at_ms
        self.unsized_count = 0
        self._store = store
        self._noted: dict[_Key, list[_Range]] = {}
        self.noted_count = 0
        self._settling = asyncio.Lock()
        self._late_since: float | None = None  # loop time of the first sum that is not finished

    def of(self, group: str, topic: str) -> Flow | None:
        """Return what *group* took over of *topic*; None if others are counted together with it."""
        return self.flows.get((group, topic))

    def committed(self, group: str, queue: Queue, before: int | None, offset: int) -> None:
        """Count a commit at *offset* of a group whose position was *before*.

        Only a move forwards counts. With an unknown position it is not known how far it moved.
        """
        if before is not None and offset > before:
            self._take(group, queue, before, offset)

    def acknowledged(self, group: str, queue: Queue, offsets: Iterable[int]) -> None:
        """Count acknowledged messages of one queue."""
        begin = end = -1
        for offset in sorted(offsets):
            if offset == end:
                end += 1
                continue
            if begin < end:
                self._take(group, queue, begin, end)
            begin, end = offset, offset + 1
        if begin < end:
            self._take(group, queue, begin, end)

    async def settle(self) -> None:
        """Add the bytes of everything counted so far, in turns with other work."""
        async with self._settling:
            if self._late_since is None:
                self._late_since = asyncio.get_running_loop().time()
            pace = Pace()
            while self._noted:
                key = next(iter(self._noted))
                while key in self._noted:
                    await self._sum_piece(key)
                    await pace.step()
            self._late_since = None  # not if this was cancelled or failed

    async def refresh(self) -> None:
        """Settle for a reader of the counters, unless that takes long.

        The time limit is for all readers together, so a slow disk does not delay each of them.
        """
        now = asyncio.get_running_loop().time()
        end = WAIT_SECONDS + (now if self._late_since is None else self._late_since)
        if end <= now:
            return  # some bytes are still to be added
        with suppress(TimeoutError):  # then, too
            async with asyncio.timeout_at(end):
                await self.settle()

    # --- Inside -----------------------------------------------------------------------------------

    def _take(self, group: str, queue: Queue, begin: int, end: int) -> None:
        count = end - begin
        self.flows.add((group, queue[0]), count)
        if count > SUMMED_COUNT_MAX:
            self.unsized_count += count
            return
        ranges = self._noted.get((group, queue))
        if ranges and ranges[-1].end == begin:
            ranges[-1].end = end
        elif self.noted_count >= NOTED_MAX:
            self.unsized_count += count
        else:
            self._noted.setdefault((group, queue), []).append(_Range(begin, end))
            self.noted_count += 1

    async def _sum_piece(self, key: _Key) -> None:
        """Sum the next entries of a queue; if this is cancelled, they are still to be summed."""
        group, queue = key
        ranges = self._noted[key]
        first = ranges[0]
        end = min(first.begin + _PIECE_COUNT, first.end)
        find = partial(self._store.places.bytes_between, *queue, first.begin, end)
        try:
            size, found = await self._store.cold.read("consumption", find)
        except UnavailableError:  # requests that read the queue get the error
            size, found = 0, 0
        self.unsized_count += end - first.begin - found
        self.flows.add((group, queue[0]), 0, size)
        first.begin = end
        if first.begin == first.end:  # nothing was added to it meanwhile
            del ranges[0]
            self.noted_count -= 1
            if not ranges:
                del self._noted[key]
