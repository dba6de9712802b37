"""The messages of a queue that are in one segment of the tier.

They look like those of a consume queue. If bytes are needed that are not here, a read ends as a
:mod:`.reader` says.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from eruca_broker.core.consume_queue_entry import ENTRY_SIZE, Entries, view_entries
from eruca_broker.core.tier.manifests import TierSegment
from eruca_broker.core.tier.queue_tables import TIME_DTYPE, TIME_SIZE, QueueTable, Run

CHUNKS_PER_READ_MAX: Final = 8  # of the log, that one answer needs
_STRETCHES_MAX: Final = 4_096  # whose greatest store times are remembered


class SideReader(Protocol):
    """Reads objects of the tier."""

    def bytes_of(
        self, segment: TierSegment, table: QueueTable, begin: int, end: int, *, is_side: bool
    ) -> bytes:
        """Return bytes of a segment, or of a side object behind its head."""
        ...


class GreatestTimes:
    """The greatest store times of stretches of messages, those that were read last."""

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[str, int], int] = OrderedDict()

    def known(self, stretch: tuple[str, int]) -> int | None:
        """Return that of a stretch, by its side object and its first entry; None: unknown."""
        return self._known.get(stretch)

    def note(self, stretch: tuple[str, int], ms: int) -> None:
        """Remember that of a stretch."""
        self._known[stretch] = ms
        if len(self._known) > _STRETCHES_MAX:
            self._known.popitem(last=False)


class TierQueue:
    """The messages of a queue that are in one segment.

    Args:
        reader: Reads them.
        segment: The segment.
        table: Its table.
        run: The messages.
        generation: The queue's, for what is remembered of its messages.
        greatest: Remembers store times.
    """

    def __init__(
        self,
        reader: SideReader,
        segment: TierSegment,
        table: QueueTable,
        run: Run,
        *,
        generation: int,
        greatest: GreatestTimes,
    ) -> None:
        self.generation = generation
        self.begin = run.begin
        self.end = run.end
        self._reader = reader
        self._segment = segment
        self._table = table
        self._run = run
        self._greatest = greatest

    def entries(self, offset: int, count: int) -> Entries:
        """Return entries from *offset* on, fewer if their records are in too many chunks.

        Raises:
            NotInMemoryError: They are not here, in an attempt.
            UnavailableError: The same, outside an attempt.
        """
        entries = self.all_entries(offset, count)
        chunks = (entries["log_offset"] - self._segment.base) // self._table.head.chunk_size
        distinct = np.cumsum(np.diff(chunks, prepend=chunks[0]) != 0)
        return entries[distinct < CHUNKS_PER_READ_MAX]

    def all_entries(self, offset: int, count: int) -> Entries:
        """Return entries from *offset* on, wherever their records are; raises as `entries`."""
        first = self._run.place + offset - self._run.begin
        last = first + min(count, self._run.end - offset)
        return view_entries(self._body(first * ENTRY_SIZE, last * ENTRY_SIZE))

    def entry_at(self, offset: int) -> int:
        """Return the log offset of the message at *offset*; raises as :meth:`entries`."""
        return int(self.entries(offset, 1)["log_offset"][0])

    def time(self, offset: int) -> int:
        """Return when the message at *offset* was stored, in ms; raises as :meth:`entries`."""
        at = self._table.times_at + (self._run.place + offset - self._run.begin) * TIME_SIZE
        return int.from_bytes(self._body(at, at + TIME_SIZE))

    def first_at(self, ms: int) -> int | None:
        """Return the first offset that was stored at *ms* or later; None: none was.

        In a log that RocketMQ wrote, times may decrease. So they are read in their order, and the
        greatest one of each stretch is remembered: an attempt goes on where the last one stopped.
        Raises as :meth:`entries`.
        """
        size = max(self._table.head.chunk_size // TIME_SIZE, 1)
        for begin in range(self.begin, self.end, size):
            end = min(begin + size, self.end)
            stretch = self._segment.side_path, self._run.place + begin - self._run.begin
            greatest = self._greatest.known(stretch)
            if greatest is not None and greatest < ms:
                continue
            times = self._times(begin, end)
            self._greatest.note(stretch, int(times.max()))
            late = times >= ms
            if late.any():
                return begin + int(np.argmax(late))
        return None

    def _times(self, begin: int, end: int) -> NDArray[np.int64]:
        """Return the store times of messages, in ms."""
        first = self._run.place - self._run.begin
        at = self._table.times_at
        data = self._body(at + (first + begin) * TIME_SIZE, at + (first + end) * TIME_SIZE)
        return np.frombuffer(data, TIME_DTYPE).astype(np.int64)

    def _body(self, begin: int, end: int) -> bytes:
        return self._reader.bytes_of(self._segment, self._table, begin, end, is_side=True)
