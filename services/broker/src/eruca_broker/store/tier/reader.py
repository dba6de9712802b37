"""Read queues behind the beginning of the broker's own log, from the tier.

The tier's queues and bytes look like those of the log: a pull takes entries from a
:class:`TierQueue` as from a consume queue, and records from a :class:`TierReader` as from the
commit log. The difference is where the bytes are: in the cache, or not on this machine. In the
second case an attempt ends with :class:`NotInMemoryError`, whose ``fetch`` brings the chunk.

Outside an attempt nothing can wait, so such a read is refused (503), and the chunk is fetched for
its repetition.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import partial
from itertools import accumulate, count
from math import inf
from typing import Final, NamedTuple, NoReturn

from eruca.contract.errors import UnavailableError
from eruca.core.messages.record_columns import Int64Array
from eruca_broker.core.tier.manifests import Manifest, TierSegment, log_begin
from eruca_broker.core.tier.queue_tables import (
    InvalidHeadError,
    Key,
    QueueTable,
    Run,
    begin_of,
    decoded,
    run_with,
    segment_with,
)
from eruca_broker.store.files.residency import (
    NotInMemoryError,
    Stretch,
    is_attempting,
    read_at,
)
from eruca_broker.store.log.commit_log import OutsideLogError
from eruca_broker.store.log.segment import Segment
from eruca_broker.store.tier.blobs import blobs_of, head_of
from eruca_broker.store.tier.cache import Blob, TierCache
from eruca_broker.store.tier.tier_queue import GreatestTimes, TierQueue

TABLES_MAX: Final = 32  # decoded tables in memory: 40 bytes for each queue of a segment
_GUESSES_MAX: Final = 10_000  # queues whose last segment is remembered
_READER: Final = "tier"  # pays for what is fetched for a repetition

Begin = Callable[[str, NotInMemoryError], None]
"""Begins to bring bytes for a later attempt."""


class _Known(NamedTuple):
    """Facts about a queue that are remembered."""

    since: int
    begin: int  # queue offset of its first message in the tier
    generation: int


class Place(NamedTuple):
    """A segment of the tier."""

    segment: TierSegment
    table: QueueTable
    epoch_before: int | None  # of the last record before it; None: the tier has none


class TierReader:
    """Reads what one manifest names.

    Args:
        cache: Has the bytes that were fetched.
        begin: Fetches bytes for a later attempt.
        log_min_offset: Tells where the log here begins.
        doubt: Called when the manifest is too old to answer by.
    """

    def __init__(
        self,
        cache: TierCache,
        begin: Begin,
        log_min_offset: Callable[[], int],
        doubt: Callable[[], None],
    ) -> None:
        self.manifest: Manifest | None = None  # None: unknown, so nobody knows what is in the tier
        self.read_count = 0  # messages
        self.reached = 0  # log offset: the manifest has all before it that was ever in the tier
        self._cache = cache
        self._begin = begin
        self._log_min_offset = log_min_offset
        self._doubt = doubt
        self._first: QueueTable | None = None
        self._tables: OrderedDict[str, QueueTable] = OrderedDict()  # by side path
        self._known: dict[Key, _Known] = {}
        self._guesses: dict[Key, int] = {}  # log offset of the segment that was read last
        self._generations = count(-1, -1)  # never those of a consume queue
        self._greatest = GreatestTimes()
        # In a log that RocketMQ wrote, times may decrease: for each segment …
        self._until_ms: list[int] = []  # the greatest time up to its end, ascending
        self._after_ms: list[float] = []  # … and the least one behind it

    def show(self, manifest: Manifest, first: QueueTable | None, reached: int) -> None:
        """Read by *manifest* from now on.

        Args:
            manifest: A manifest of this log.
            first: The table of its first segment; None: it has none.
            reached: Log offset with which the log here began before the manifest was looked for.
        """
        assert (first is None) == (not manifest.segments)
        self.reached = max(reached, manifest.end_offset or 0)
        self.manifest, self._first = manifest, first
        self._known.clear()
        segments = manifest.segments
        self._until_ms = [*accumulate((one.last_ms for one in segments), max)]
        later = [inf, *(one.first_ms for one in reversed(segments))]
        self._after_ms = [*accumulate(later, min)][-2::-1]

    @property
    def first(self) -> QueueTable | None:
        """The table of the first segment."""
        return self._first

    def begin_of(self, queue: Key, since: int, local: int) -> int:
        """Return the queue offset with which a queue begins, in the tier or here.

        Args:
            queue: The queue.
            since: The log offset at which its topic was created.
            local: The queue offset of its first message here.

        Raises:
            UnavailableError: The manifest is not known yet, or older than the log's beginning.
        """
        if local == 0:
            return 0
        self.known_begin()
        return local if self._first is None else min(local, self._known_of(queue, since).begin)

    @property
    def log_begin(self) -> int | None:
        """Log offset with which the log begins, in the tier or here; None: it is unknown."""
        local = self._log_min_offset()
        return log_begin(self.manifest, reached=self.reached, local=local)

    def known_begin(self) -> int:
        """Return the log offset with which the log begins, in the tier or here.

        Raises:
            UnavailableError: The manifest is not known yet, or older than the log's beginning.
        """
        if (begin := self.log_begin) is not None:
            return begin
        fix = "repeat the request; check the object store if it stays so"
        if self.manifest is None:
            raise UnavailableError(
                "the tier's manifest is not known yet, so it is unknown what the tier has", fix=fix
            )
        self._doubt()
        raise UnavailableError(
            f"the log here begins at {self._log_min_offset()}, and the tier's manifest that is "
            f"known here only tells what the tier has up to {self.reached}",
            fix=fix,
        )

    def queue(self, queue: Key, since: int, offset: int) -> TierQueue:
        """Return the part of a queue that has *offset*, which is in the tier.

        Raises:
            NotInMemoryError: It must be looked for in tables that are not here, in an attempt.
            UnavailableError: The same, outside an attempt; or it is not where it should be.
        """
        segments = self._segments()
        table_of = partial(self._table_of, segments)
        guess = self._guess(queue, segments)
        index = segment_with(table_of, queue, since, offset, count=len(segments), guess=guess)
        if index is None:
            raise UnavailableError(
                f"the tier lacks {queue[0]}/{queue[1]} at offset {offset}",
                fix="check the objects of the tier; the broker's log names what is missing",
            )
        if len(self._guesses) >= _GUESSES_MAX:
            self._guesses.clear()
        self._guesses[queue] = segments[index].base
        table = table_of(index)
        run = run_with(table.runs_of(queue, since), offset)
        assert run is not None, "segment_with has found it there"
        return self._part(segments[index], table, run, self._known_of(queue, since).generation)

    def offset_by_time(self, queue: Key, since: int, ms: int) -> int | None:
        """Return a queue's first offset that was stored at *ms* or later; None: the tier has none.

        Raises:
            NotInMemoryError: Something needed is not here, in an attempt.
            UnavailableError: The same, outside an attempt.
        """
        segments = self._segments()
        for index in range(bisect_left(self._until_ms, ms), len(segments)):
            segment = segments[index]
            if segment.last_ms < ms:
                continue
            table = self._table_of(segments, index)
            runs = table.runs_of(queue, since)
            for run in runs:
                found = self._part(segment, table, run, 0).first_at(ms)
                if found is not None:
                    return found
            if self._after_ms[index] >= ms:
                return runs[-1].end if runs else 0  # all later messages are later than that
        return None

    def place_of(self, log_offset: int) -> Place:
        """Return the segment with the byte at *log_offset*, which the tier should have.

        Raises:
            NotInMemoryError: Its table is not here, in an attempt.
            UnavailableError: The same, outside an attempt; or it is not where it should be.
        """
        segments = self._segments()
        index = _index_at(segments, log_offset)
        if index is None:
            raise UnavailableError(
                f"the tier lacks log offset {log_offset}, which is not here either",
                fix="tier.failure of the broker's status says why",
            )
        before = segments[index - 1].epoch if index else None
        return Place(segments[index], self._table_of(segments, index), before)

    def parts_of(self, place: Place, queue: Key, since: int = 0) -> list[TierQueue]:
        """Return the messages of a queue that are in one segment, in log order.

        Args:
            place: The segment.
            queue: The queue.
            since: Log offset at which its topic was created; 0: of all topics of that name.
        """
        return [
            self._part(place.segment, place.table, run, 0)
            for run in place.table.runs_of(queue, since)
        ]

    def segments_before(self, log_offset: int) -> list[TierSegment]:
        """Return the segments that begin before *log_offset*, the last one first."""
        return [one for one in reversed(self._segments()) if one.base < log_offset]

    def bytes_of(
        self, segment: TierSegment, table: QueueTable, begin: int, end: int, *, is_side: bool
    ) -> bytes:
        """Return bytes of a segment, or of a side object behind its head.

        Raises:
            NotInMemoryError: Some are not here, in an attempt.
            UnavailableError: The same, outside an attempt.
        """
        blobs = blobs_of(segment, table, begin, end, is_side=is_side)
        files = self._files(blobs)
        start = segment.head_size if is_side else 0
        parts = []
        for blob, path in zip(blobs, files, strict=True):
            first = max(begin + start - blob.begin, 0)
            last = min(end + start, blob.end) - blob.begin
            parts.append(self._read(blob, path, first, last))
        return parts[0] if len(parts) == 1 else b"".join(parts)

    # --- As the commit log ------------------------------------------------------------------------

    def segment_at(self, offset: int) -> Segment | None:
        """Return None: nothing of the tier is mapped."""
        return None

    def view(self, offset: int, size: int, *, is_needed: bool = False) -> memoryview:
        """Return *size* bytes of the log from *offset* on, as a copy.

        Raises:
            OutsideLogError: They are not in one segment of the tier.
            NotInMemoryError: They are not here, in an attempt.
            UnavailableError: The same, outside an attempt.
        """
        return self.views([offset], [offset + size])[0]

    def views(self, starts: Sequence[int], ends: Sequence[int]) -> list[memoryview]:
        """Return stretches of the log, as copies; see :meth:`view`."""
        segments = self._segments()
        stretches: list[tuple[TierSegment, QueueTable, int, int]] = []
        blobs: list[Blob] = []
        for start, end in zip(starts, ends, strict=True):
            index = _index_at(segments, start)
            segment = None if index is None else segments[index]
            if index is None or segment is None or not start <= end <= segment.end:
                raise OutsideLogError(f"nothing lies at log offset {start} to {end} of the tier")
            table = self._table_of(segments, index)
            first, last = start - segment.base, end - segment.base
            stretches.append((segment, table, first, last))
            blobs += blobs_of(segment, table, first, last, is_side=False)
        self._files(list(dict.fromkeys(blobs)))  # all that is missing is fetched together
        return [
            memoryview(self.bytes_of(segment, table, first, last, is_side=False))
            for segment, table, first, last in stretches
        ]

    def gathered(self, starts: Int64Array, sizes: Int64Array) -> memoryview | None:
        """Return copies of records, one after another; see :meth:`view`."""
        return memoryview(b"".join(self.views(starts.tolist(), (starts + sizes).tolist())))

    # --- Inside -----------------------------------------------------------------------------------

    def _part(
        self, segment: TierSegment, table: QueueTable, run: Run, generation: int
    ) -> TierQueue:
        return TierQueue(self, segment, table, run, generation=generation, greatest=self._greatest)

    def _segments(self) -> list[TierSegment]:
        return [] if self.manifest is None else self.manifest.segments

    def _known_of(self, queue: Key, since: int) -> _Known:
        known = self._known.get(queue)
        if known is None or known.since != since:
            assert self._first is not None
            begin = begin_of(self._first, queue, since)
            known = self._known[queue] = _Known(since, begin, next(self._generations))
        return known

    def _guess(self, queue: Key, segments: list[TierSegment]) -> int | None:
        base = self._guesses.get(queue)
        return None if base is None else _index_at(segments, base)

    def _table_of(self, segments: list[TierSegment], index: int) -> QueueTable:
        segment = segments[index]
        if index == 0 and self._first is not None:
            return self._first
        table = self._tables.get(segment.side_path)
        if table is None:
            blob = head_of(segment)
            [path] = self._files([blob])
            try:
                table = decoded(self._read(blob, path, 0, blob.size))
            except InvalidHeadError as error:
                raise UnavailableError(f"{blob.path} of the tier: {error}") from error
            self._tables[segment.side_path] = table
            if len(self._tables) > TABLES_MAX:
                self._tables.popitem(last=False)
        self._tables.move_to_end(segment.side_path)
        return table

    def _files(self, blobs: Sequence[Blob]) -> list[str]:
        """Return the files of *blobs*, if all of them are here."""
        files = [self._cache.find(blob) for blob in blobs]
        missing = [blob for blob, path in zip(blobs, files, strict=True) if path is None]
        if missing:
            self._lack(missing)
        return [str(path) for path in files]

    def _lack(self, blobs: list[Blob]) -> NoReturn:
        stretches = [Stretch(blob.path, blob.begin, blob.end) for blob in blobs]
        cold = NotInMemoryError(stretches, partial(self._cache.fetch, blobs))
        if is_attempting():
            raise cold
        self._begin(_READER, cold)
        raise UnavailableError(
            "the messages are in the tier, and are being fetched", retry_after_seconds=1.0
        )

    def _read(self, blob: Blob, path: str, begin: int, end: int) -> bytes:
        try:
            return read_at(path, end - begin, begin)
        except FileNotFoundError:
            self._cache.forget(blob)
            self._lack([blob])
        except OSError as error:
            raise UnavailableError(f"the tier's cache cannot be read: {error}") from error


def _index_at(segments: Sequence[TierSegment], log_offset: int) -> int | None:
    low, high = 0, len(segments)
    while low < high:
        middle = (low + high) // 2
        if segments[middle].end > log_offset:
            high = middle
        else:
            low = middle + 1
    return low if low < len(segments) and segments[low].base <= log_offset else None
