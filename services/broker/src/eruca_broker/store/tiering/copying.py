"""Runs of the log from the tier, for a replica that lacks much of it.

A replica copies closed segments from here, so that its master need not read them again. Each chunk
is compared with its digest. A replica verifies the runs as those of its master, record by record.

The tier may be that of another history: a master that lost records in an unclean election has not
looked at it yet. In one epoch one master wrote. So the tier's segments are the master's if the last
one of them ends in the epoch that the master's log has at that place.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator
from functools import partial
from typing import Final

from eruca.contract.errors import ErucaError
from eruca_broker.core.log.whole_run import run_size
from eruca_broker.core.replication.epochs import EpochTable
from eruca_broker.core.tier.manifests import TierSegment
from eruca_broker.core.tier.queue_tables import InvalidHeadError
from eruca_broker.store.message_store import MessageStore
from eruca_broker.store.tier.blobs import blobs_of
from eruca_broker.store.tier.cache import Blob
from eruca_broker.store.tiering.fetching import verified
from eruca_broker.store.tiering.tiering import Tiering
from eruca_chassis.finishing import finished_in_thread

CHUNKS_AHEAD: Final = 4  # that are fetched while a run is appended
_UNDIVIDED_MAX: Final = 256 * 1024**2  # bytes of the log without an end of a run
_TAIL_SIZE: Final = 64 * 1024  # bytes by which a log is known

FAILURES: Final = (ErucaError, OSError, InvalidHeadError)
"""The tier cannot be read now, or an object of it is missing or damaged."""


class TierCopies:
    """Copies of the log's closed segments in the tier of one replica.

    Args:
        store: The replica's store.
        tiering: Its tier, which it reads.
    """

    def __init__(self, store: MessageStore, tiering: Tiering) -> None:
        self._store = store
        self._tiering = tiering

    async def look(self) -> bool:
        """Read the latest manifest; tell whether the tier answers, and belongs to this log."""
        if not self._store.state.log_id:
            return False
        await self._tiering.step()
        return self._tiering.failure is None and self._tiering.manifest is not None

    def end_for(self, master: EpochTable, confirmed: int) -> int:
        """Return the log offset up to which the tier has a master's log; 0: nothing.

        Args:
            master: The epochs of the master's log.
            confirmed: Log offset before which everything is confirmed.
        """
        for segment in reversed(self._segments()):
            if segment.end <= confirmed and master.at(segment.end - 1) == segment.epoch:
                return segment.end
        return 0

    async def continues(self) -> int | None:
        """Return the tier's end if the replica's log is a beginning of the tier's; else None.

        A log changes only at its end. So the same bytes before the replica's end, in the same
        epoch, prove all before them.

        Raises:
            ErucaError: The tier cannot be read now.
            OSError: The same.
            InvalidHeadError: The same.
        """
        store, segments = self._store, self._segments()
        begin, end = store.log_min_offset, store.log_max_offset
        segment = next((one for one in segments if one.base < end <= one.end), None)
        if segment is None or begin == end or segments[-1].end <= end:
            return None
        index = segments.index(segment)
        earliest = segments[index - 1].epoch if index else 0
        if not earliest <= store.role.epochs().at(end - 1) <= segment.epoch:
            return None
        tail = max(begin, segment.base, end - _TAIL_SIZE)
        here = b"".join(store.log.pieces(tail, end))
        there = bytearray()
        for blob in await self._blobs(segment, tail, end):
            there += await self._read(blob)
        skipped = (tail - segment.base) % segment.chunk_size
        return segments[-1].end if there[skipped : skipped + end - tail] == here else None

    async def runs(self, begin: int, end: int) -> AsyncGenerator[bytearray, None]:
        """Yield runs from *begin* on, one after another, whole records up to *end* at most.

        Args:
            begin: The end of the replica's log.
            end: The end of a segment of the tier.

        Raises:
            RefusedRunError: No record is where one should be.
            ErucaError: The tier cannot be read now.
            OSError: The same, or an object is missing or damaged.
            InvalidHeadError: A head cannot be read.
        """
        segment_bytes = self._store.segment_bytes
        segments = [one for one in self._segments() if begin < one.end <= end]
        buffer, at = bytearray(), begin
        fetches: deque[asyncio.Task[bytes]] = deque()
        try:
            for segment in segments:
                first = max(begin, segment.base)
                blobs = deque(await self._blobs(segment, first, segment.end))
                skipped = (first - segment.base) % segment.chunk_size
                while blobs or fetches:
                    while blobs and len(fetches) < CHUNKS_AHEAD:
                        fetches.append(asyncio.create_task(self._read(blobs.popleft())))
                    buffer += (await fetches[0])[skipped:]
                    fetches.popleft()
                    skipped = 0
                    room = next(one.end - at for one in segments if at < one.end)
                    measured = partial(run_size, buffer, room=room, segment_bytes=segment_bytes)
                    size = await finished_in_thread(measured)
                    if size:
                        run = buffer[:size]
                        del buffer[:size]
                        at += size
                        yield run
                    elif len(buffer) > _UNDIVIDED_MAX:
                        raise OSError(f"the tier has no end of a run after log offset {at}")
        finally:
            for fetch in fetches:
                fetch.cancel()
            await asyncio.gather(*fetches, return_exceptions=True)

    def _segments(self) -> list[TierSegment]:
        manifest = self._tiering.manifest
        return [] if manifest is None else manifest.segments

    async def _blobs(self, segment: TierSegment, begin: int, end: int) -> list[Blob]:
        """Return the chunks with the log's bytes from *begin* to *end*, which are in a segment."""
        table = await self._tiering.view.table_of(segment)
        return blobs_of(segment, table, begin - segment.base, end - segment.base, is_side=False)

    async def _read(self, blob: Blob) -> bytes:
        return await verified(self._tiering.place, blob.path, blob.begin, blob.end, blob.digest)
