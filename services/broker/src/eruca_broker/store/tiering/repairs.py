"""Store an object of the tier again, from the segment on this broker's disk.

It gets the bytes that the manifest names, and no others: each chunk is compared with its digest
while it leaves. So a repair that comes too late, of a former master, changes nothing. The store
takes an object as a whole, so the damaged one stays until the sound one is there.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from eruca.contract.errors import ErucaError
from eruca.objects.repositories import Repository
from eruca_broker.core.tier.faults import Faults
from eruca_broker.core.tier.manifests import Manifest, TierSegment
from eruca_broker.core.tier.queue_tables import InvalidHeadError, Key, QueueTable, Run, decoded
from eruca_broker.store.message_store import MessageStore
from eruca_broker.store.reading.readable_log import LogFile
from eruca_broker.store.tier.sides import DamagedSegmentError, Side, remove, side_of
from eruca_broker.store.tiering.facts import StoreFacts
from eruca_broker.store.tiering.place import TierPlace
from eruca_broker.store.tiering.uploads import equals, in_idle_time, put_object


class UnrepairableError(Exception):
    """There is no sound copy of an object here; the text says why."""


class Repairs:
    """Repairs the objects of one tier, as long as this broker writes it.

    Args:
        store: Has the segments.
        facts: About it.
        place: The tier.
        room: A file that may be written meanwhile.
        faults: Objects that are known to be missing or damaged.
        written: Returns the latest manifest, if this broker writes it; else None.
        table_of: Returns a segment's table.
        rate_max: Bytes a second; 0: as fast as possible.
    """

    def __init__(
        self,
        store: MessageStore,
        facts: StoreFacts,
        place: TierPlace,
        *,
        room: Path,
        faults: Faults,
        written: Callable[[], Manifest | None],
        table_of: Callable[[TierSegment], Awaitable[QueueTable]],
        rate_max: int,
    ) -> None:
        self._store = store
        self._facts = facts
        self._place = place
        self._room = room
        self._faults = faults
        self._written = written
        self._table_of = table_of
        self._rate_max = rate_max

    async def repair(self, segment: TierSegment, path: str, head: bytes | None) -> None:
        """Store one of a segment's objects again; the manifest must not change meanwhile.

        Args:
            segment: The segment.
            path: The object's.
            head: The sound head of its side object; None: that is lost.

        Raises:
            UnrepairableError: There is no sound copy of it here.
            ErucaError: The tier cannot be written now.
            OSError: The same, or the disk refuses.
        """
        manifest = self._written()
        if manifest is None or segment not in manifest.segments:
            raise UnrepairableError("this broker does not write the tier any more")
        if segment.base < self._store.log_min_offset:
            raise UnrepairableError("its segment is not on this broker's disk any more")
        file, target = self._store.log.file(segment.base), self._place.path(path)
        repository, rate_max = self._place.repository, self._rate_max
        if path == segment.path:
            if head is None:
                raise UnrepairableError("its side object, which has the digests, is lost")
            await store_segment(repository, target, file, segment, head, rate_max=rate_max)
            return
        before = {} if head is not None else await self._runs_before(segment, manifest)
        try:
            await store_side(
                repository,
                target,
                file,
                segment,
                head=head,
                before=before,
                is_current=self._facts.is_current,
                room=self._room,
                rate_max=rate_max,
            )
        finally:
            await asyncio.to_thread(remove, self._room)

    async def _runs_before(self, segment: TierSegment, manifest: Manifest) -> Mapping[Key, Run]:
        """Return the last run of each queue in the segment before, to build a head again."""
        place = manifest.segments.index(segment)
        if not place:
            return self._facts.beginnings(segment.base)
        neighbour = manifest.segments[place - 1]
        try:
            return (await self._table_of(neighbour)).last_runs()
        except InvalidHeadError as error:
            raise UnrepairableError(
                f"its head is lost, and that of the segment before cannot be read: {error}"
            ) from error
        except ErucaError as error:
            if neighbour.side_path not in self._faults.known:
                raise
            raise UnrepairableError(
                "its head is lost, and so is that of the segment before, from which it is built"
            ) from error


async def store_segment(
    repository: Repository,
    path: str,
    file: LogFile,
    segment: TierSegment,
    head: bytes,
    *,
    rate_max: int,
) -> None:
    """Store a segment's object again.

    Args:
        repository: The tier.
        path: The object's, in it.
        file: The segment here.
        segment: The segment, as the manifest names it.
        head: The sound head of its side object, which has the digests.
        rate_max: Bytes a second; 0: as fast as possible.

    Raises:
        UnrepairableError: The segment here has other bytes, or cannot be read.
        ErucaError: The tier cannot be written now.
        OSError: The same, or the disk refuses.
    """
    await _check_equal(file, segment)
    digests = decoded(head).head.segment_digests
    with _sound_here():
        await put_object(
            repository, path, file.path, digests, chunk_size=segment.chunk_size, rate_max=rate_max
        )


async def store_side(
    repository: Repository,
    path: str,
    file: LogFile,
    segment: TierSegment,
    *,
    head: bytes | None,
    before: Mapping[Key, Run],
    is_current: Callable[[Key, Run], bool],
    room: Path,
    rate_max: int,
) -> None:
    """Store a side object again; build it from the segment's records.

    Args:
        repository: The tier.
        path: The object's, in it.
        file: The segment here.
        segment: The segment, as the manifest names it.
        head: The head, if the tier still has a sound one; else it is built, too.
        before: The last run of each queue in the segment before.
        is_current: Tells whether a queue is still that of an existing topic.
        room: A file that may be written meanwhile; the caller removes it.
        rate_max: Bytes a second; 0: as fast as possible.

    Raises:
        UnrepairableError: The segment here has other bytes, or cannot be read; or a topic was
            deleted meanwhile, or this version builds other side objects, so that it would not be
            the same.
        ErucaError: The tier cannot be written now.
        OSError: The same, or the disk refuses.
    """
    await _check_equal(file, segment)
    made: list[Side] = []
    steps = side_of(
        file.path,
        file.base_offset,
        room,
        before=before,
        is_current=is_current,
        chunk_size=segment.chunk_size,
        done=made.append,
        has_keys=head is None or decoded(head).head.key_count is not None,
    )
    with _sound_here():
        await in_idle_time(steps)
    head = made[0].head if head is None else head
    if hashlib.sha256(head).hexdigest() != segment.head_sha256:
        raise UnrepairableError(
            "its head is lost, and cannot be built again: topics have been deleted since it was, "
            "or an earlier version of the broker has built it in another way"
        )
    digests = decoded(head).head.side_digests
    if decoded(made[0].head).head.side_digests != digests:
        raise UnrepairableError("an earlier version of the broker has built it in another way")
    with _sound_here():
        await put_object(
            repository,
            path,
            room,
            digests,
            first=head,
            chunk_size=segment.chunk_size,
            rate_max=rate_max,
        )


async def _check_equal(file: LogFile, segment: TierSegment) -> None:
    try:
        is_equal = await equals(file, segment)
    except OSError as error:
        raise UnrepairableError(
            f"the segment on this broker's disk cannot be read: {error}"
        ) from error
    if not is_equal:
        raise UnrepairableError("the segment on this broker's disk differs from what was uploaded")


@contextmanager
def _sound_here() -> Iterator[None]:
    try:
        yield
    except DamagedSegmentError as error:
        raise UnrepairableError(f"the segment on this broker's disk is damaged: {error}") from error
