"""The tier of one store: its writer, while the broker is the master, and its readers' manifest.

:mod:`eruca_broker.core.tier.steps` decides. States, invariants and failures are in
``store/tier/DESIGN.md``. All methods run on the loop's thread; files are read in threads.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import structlog

from eruca.contract.errors import ErucaError, UnavailableError
from eruca.contract.names import is_system_topic
from eruca.objects.repositories import PathTakenError, Repository
from eruca_broker.core.tier.faults import Faults, found_by_size, sound_end
from eruca_broker.core.tier.manifests import (
    MANIFESTS,
    SEGMENTS,
    InvalidManifestError,
    Manifest,
    TierSegment,
    decoded,
    encoded,
    name_of,
    number_of,
)
from eruca_broker.core.tier.queue_tables import InvalidHeadError, Key, QueueTable, Run
from eruca_broker.core.tier.queue_tables import decoded as decoded_head
from eruca_broker.core.tier.steps import (
    FencedError,
    LogExtent,
    TierMismatchError,
    Writer,
    added,
    check_abandonment,
    check_place,
    first_manifest,
    following,
    is_whole,
    next_base,
    orphans,
    purged,
    reconciled,
    retained,
    to_compare,
    without_missing,
)
from eruca_broker.store.message_store import MessageStore
from eruca_broker.store.tier.cache import TierCache
from eruca_broker.store.tier.reader import TierReader, head_of
from eruca_broker.store.tier.sides import CHUNK_SIZE, proved, remove
from eruca_broker.store.tiering.known_manifest import TIER, known, remember
from eruca_broker.store.tiering.repairs import UnrepairableError, store_segment, store_side
from eruca_broker.store.tiering.uploads import answered, equals, in_idle_time, upload
from eruca_chassis.clock import Clock

STEP_SECONDS: Final = 5.0  # between two looks at the log
REFRESH_SECONDS: Final = 30.0  # between two looks for another broker's manifest
RETRY_SECONDS: Final = 10.0  # after a failure
_KEPT_NUMBERS: Final = 2  # manifests that stay whole, for those who are reading them
_PERMISSION: Final = "abandon"  # a file by which an operator lets segments be abandoned, once

_FAILURES: Final = (
    ErucaError,
    OSError,
    FencedError,
    TierMismatchError,
    InvalidManifestError,
    InvalidHeadError,
)

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class TierSettings:
    """The settings of a tier."""

    cluster: str
    broker_name: str
    cache_bytes_max: int
    upload_rate_max: int = 0  # bytes a second; 0: no limit
    keep_hours: float = 0.0  # of the tier's own retention; 0: for ever
    chunk_size: int = CHUNK_SIZE  # bytes


class Tiering:
    """The tier of an open store.

    Args:
        store: The store.
        repository: The tier's place, for brokers of this name.
        settings: The tier's.
        clock: Tells how old messages are.
        is_master: Whether this broker writes the tier.

    Attributes:
        failure: Why the last step failed; None: it did not.
        failure_count: Steps that failed.
        uploaded_count: Segments.
        uploaded_size: Their bytes.
        faults: Objects that are known to be missing or damaged.
    """

    def __init__(
        self,
        store: MessageStore,
        repository: Repository,
        settings: TierSettings,
        clock: Clock,
        *,
        is_master: bool,
    ) -> None:
        self.failure: str | None = None
        self.failure_count = 0
        self.uploaded_count = 0
        self.uploaded_size = 0
        self.faults = Faults()
        self._store = store
        self._repository = repository
        self._settings = settings
        self._clock = clock
        self._is_master = is_master
        self.directory = store.directory / TIER
        self.cache = TierCache(
            self.directory / "cache", self.read, settings.cache_bytes_max, self._doubt
        )
        self.reader = TierReader(
            self.cache, store.cold.begin, lambda: store.log_min_offset, self._doubt
        )
        self.wake: Callable[[], None] = lambda: None  # ends the pause between two steps
        self.taking_over: Callable[[], Awaitable[None]] = _nothing  # before it becomes the writer
        self._refreshed_at = float("-inf")  # monotonic
        self._manifest: Manifest | None = None  # the latest one, for the next one
        self._seen = 0  # the highest number of a manifest that this store has seen
        self._last: QueueTable | None = None  # of its last segment
        self._is_writer = False  # it has been reconciled with the log
        self._stepping = asyncio.Lock()

    async def open(self) -> None:
        """Begin to read by the manifest that was known last.

        Raises:
            OSError: The cache cannot be made.
        """
        await self.cache.open()
        await asyncio.to_thread(remove, self._room)
        await self._remember()
        self._store.queues.tier = self._store.whole_log.tier = self.reader

    async def close(self) -> None:
        """Stop reading: what must be fetched is refused until the next role reads the tier."""
        await self.cache.close()

    # --- For retention and status -----------------------------------------------------------------

    @property
    def tiered_to(self) -> int:
        """The log offset before which the tier has all of this log's history; 0: unknown."""
        written = self.written
        if written is None:
            return 0
        return sound_end(written, self.faults.known.keys(), self._store.log_min_offset)

    @property
    def written(self) -> Manifest | None:
        """The latest manifest, which this broker has reconciled or written; None: it has not."""
        return self._manifest if self._is_writer else None

    @property
    def manifest(self) -> Manifest | None:
        """The manifest by which readers read; None: none is known."""
        return self.reader.manifest

    @property
    def behind_bytes(self) -> int:
        """Bytes of closed segments that the tier does not have yet."""
        extent = self._extent()
        end = None if self.manifest is None else self.manifest.end_offset
        left = extent.safe_offset - (extent.min_offset if end is None else end)
        return max(left - left % extent.segment_bytes, 0)

    # --- The loop ---------------------------------------------------------------------------------

    async def step(self) -> float:
        """Do what is due; return the seconds until the next step.

        A failure is logged once, counted, and kept in :attr:`failure`; the step is repeated.
        """
        try:
            async with self._stepping:
                pause = await self._step()
        except _FAILURES as error:
            self.failure_count += 1
            text = error.detail if isinstance(error, ErucaError) else str(error)
            if text != self.failure:
                _log.error("the tier cannot be brought up to date", reason=text)
            self.failure = text
            return RETRY_SECONDS
        if self.failure is not None:
            _log.info("the tier is brought up to date again")
        self.failure = None
        return pause

    async def _step(self) -> float:
        if not self._store.state.log_id:
            return STEP_SECONDS  # a log that has not begun
        if not self._is_writer:
            await self._refresh()
            if not self._is_master or self._store.is_replica:
                return REFRESH_SECONDS
            await self._take_over()
        manifest = self._known()
        kept = retained(
            manifest,
            keep_hours=self._settings.keep_hours,
            now_ms=min(self._clock.now_ms(), self._store.last_store_timestamp),
            local_min_offset=self._store.log_min_offset,
        )
        if kept is not manifest:
            await self._commit(kept)
            _tell_expired(manifest, kept)
        base = next_base(self._known(), self._extent())
        if base is None:
            return STEP_SECONDS
        await self._upload(base)
        return 0.0

    async def _refresh(self) -> None:
        """Read the latest manifest, if it is not the one that is known.

        Raises:
            ErucaError: The tier cannot be read now.
            OSError: The same.
            InvalidManifestError: The manifest is damaged, or of a later version.
            TierMismatchError: The place lacks manifests that it had.
        """
        known, log_begin = self._manifest, self._store.log_min_offset  # before the listing
        self._refreshed_at = self._clock.monotonic()
        latest = await self._latest()
        if known is not None and known.number == latest:
            self.reader.reached = max(self.reader.reached, log_begin)
            return
        if latest:
            path = name_of(latest)
            async with answered():
                data = await self._repository.get(self._path(path))
            if not data:
                raise UnavailableError(f"the tier's manifest {path} was replaced meanwhile")
            try:
                manifest = decoded(data, number=latest, log_id=self._store.state.log_id)
            except InvalidManifestError as error:
                raise InvalidManifestError(f"{path} of the tier: {error}") from error
            await self._show(manifest, log_begin)
        else:
            await self._show(first_manifest(self._writer()), log_begin)

    async def _take_over(self) -> None:
        """Reconcile the manifest with the log; from then on this broker writes.

        Raises:
            FencedError: A later master has written it.
            TierMismatchError: The log lacks segments, and no election explains it.
            DamagedSegmentError: A segment differs because a record of it is damaged here.
        """
        manifest, extent = self._known(), self._extent()
        equal: TierSegment | None = None
        for segment in to_compare(manifest, extent):
            if await equals(self._store.log.file(segment.base), segment):
                equal = segment
                break
            # A damaged segment is not another history: only a sound one disowns the tier's.
            await in_idle_time(proved(self._store.log.file(segment.base).path, segment.base))
        ours = reconciled(manifest, extent, equal)
        permission = self.directory / _PERMISSION
        is_permitted = await asyncio.to_thread(permission.exists)
        check_abandonment(manifest, ours, self._writer().epoch, is_permitted=is_permitted)
        if left := len(manifest.segments) - len(ours.segments):
            _log.error(
                "the tier has segments of another history of this log; they are kept, unread",
                count=left,
                log_offset=ours.end_offset or extent.min_offset,
            )
        sizes = await self._sizes(SEGMENTS)
        whole = without_missing(ours, extent, sizes)
        if len(whole.segments) < len(ours.segments):
            _log.error(
                "objects of the tier are missing; their segments are here, and are uploaded again",
                log_offset=ours.segments[len(whole.segments)].base,
            )
        await self.taking_over()  # retention believes this broker's faults from now on
        self.faults.keep(whole.paths)
        unsound = found_by_size(whole, sizes)
        for path, fault in unsound.items():
            self.faults.note(path, fault)
        if unsound:
            _log.error(
                "objects of the tier are missing, and their segments are not here any more",
                count=len(unsound),
                object=min(unsound),
                fix="restore the objects from a copy; a version of the bucket may have them",
            )
        unnamed = orphans(whole, sizes)
        if whole != manifest or unnamed:
            await self._commit(whole, unnamed)
        if is_permitted:
            await asyncio.to_thread(remove, permission)
        self._last = None
        if whole.segments:
            self._last = await self._table_of(whole.segments[-1])
        self._is_writer = True

    async def _upload(self, base: int) -> None:
        before = self._beginnings(base) if self._last is None else self._last.last_runs()
        file = self._store.log.file(base)
        uploaded = await upload(
            file,
            self._repository,
            self._store.state.log_id,
            epoch=self._store.epochs().at(file.end_offset - 1),
            before=before,
            is_current=self._is_current,
            room=self._room,
            chunk_size=self._settings.chunk_size,
            rate_max=self._settings.upload_rate_max,
        )
        manifest = added(self._known(), uploaded.segment)
        await self._check_stored(manifest.segments[-2:])
        await self._commit(manifest)
        self._last = uploaded.table
        self.uploaded_count += 1
        self.uploaded_size += file.end_offset - base
        _log.info("segment is in the tier", log_offset=base)

    async def _check_stored(self, segments: list[TierSegment]) -> None:
        """Return if the objects of *segments* are where they have just been stored.

        Raises:
            UnavailableError: They are not: the place may have been replaced by another one.
        """
        sizes = await self._sizes(SEGMENTS, self._path(f"{SEGMENTS}/{segments[0].base:020d}"))
        for segment in segments:
            if not is_whole(segment, sizes):
                self._is_writer = False
                raise UnavailableError(
                    f"the tier lacks {segment.path}, or what belongs to it, or has it in another "
                    f"size than {segment.end - segment.base} bytes: look whether its place is "
                    "mounted, and whether something else deletes objects there"
                )

    async def _latest(self) -> int:
        """Return the number of the latest manifest; 0: there is none.

        Raises:
            ErucaError: The tier cannot be read now.
            OSError: The same.
            TierMismatchError: The place lacks manifests that it had.
        """
        # The one that was seen last must be listed, else this is another place.
        after = self._path(name_of(self._seen - 1)) if self._seen > 1 else None
        listed = await self._sizes(MANIFESTS, after)
        latest = max((number_of(path) or 0 for path in listed), default=0)
        check_place(latest, self._seen)
        return latest

    async def _sizes(self, folder: str, after: str | None = None) -> dict[str, int]:
        """Return the sizes of the log's objects in *folder*, by their paths in manifests."""
        strip = len(self._path(""))
        async with answered():
            listed = await self._repository.sizes(self._path(folder), after=after)
        return {path[strip:]: size for path, size in listed.items()}

    async def _commit(self, manifest: Manifest, condemned: list[str] | None = None) -> None:
        """Create the manifest that follows the known one, and delete what it condemns.

        Raises:
            FencedError: A later master has written the known one.
            UnavailableError: Another broker was faster: everything must be looked at again.
        """
        created = following(
            manifest, self._writer(), now_ms=self._clock.now_ms(), condemned=condemned or ()
        )
        try:
            async with answered():
                await self._repository.create(self._path(name_of(created.number)), encoded(created))
        except PathTakenError as error:
            self._is_writer, self._manifest = False, None
            raise UnavailableError(
                f"another broker has written the tier's manifest {created.number}"
            ) from error
        except BaseException:
            self._is_writer = False  # nobody knows whether it was created: read it again
            raise
        try:
            await self._show(created, self._store.log_min_offset)
        except BaseException:
            self._is_writer, self._manifest = False, None
            raise
        self.faults.keep(created.paths)
        overtaken = created.number - _KEPT_NUMBERS
        if overtaken > 0:
            async with answered():
                await self._repository.put(self._path(name_of(overtaken)), b"")
        if created.condemned:
            async with answered():
                await self._repository.delete([self._path(path) for path in created.condemned])
            self._manifest = purged(created, created.condemned)

    async def _show(self, manifest: Manifest, log_begin: int) -> None:
        """Let readers read by *manifest*, and remember it for the next start.

        Args:
            manifest: The latest one.
            log_begin: Log offset of the log's beginning here, before it was looked for.
        """
        first = self.reader.first
        shown = self.reader.manifest
        head: bytes | None = None
        if not manifest.segments:
            first = None
        elif shown is None or not shown.segments or shown.segments[0] != manifest.segments[0]:
            head = await self._head_of(manifest.segments[0])
            first = decoded_head(head)
        self._manifest, self._seen = manifest, manifest.number
        self.reader.show(manifest, first, log_begin)
        kept = partial(remember, self.directory, manifest, reached=self.reader.reached, head=head)
        await asyncio.to_thread(kept)

    async def _remember(self) -> None:
        """Read by the manifest that the last process knew, if it is this log's."""
        try:
            found = await asyncio.to_thread(known, self.directory, self._store.state.log_id)
        except FileNotFoundError:
            return
        except (OSError, ValueError) as error:
            _log.warning("the last manifest of the tier cannot be read here", reason=str(error))
            return
        self._seen = found.manifest.number
        if found.is_whole:
            self.reader.show(found.manifest, found.first, found.reached)

    async def _table_of(self, segment: TierSegment) -> QueueTable:
        return decoded_head(await self._head_of(segment))

    async def _head_of(self, segment: TierSegment) -> bytes:
        blob = head_of(segment)
        await self.cache.fetch([blob])
        path = self.cache.find(blob)
        if path is None:
            raise UnavailableError("the tier's cache is too small for a head")
        return await asyncio.to_thread(path.read_bytes)

    # --- For the scrub ----------------------------------------------------------------------------

    async def read(self, path: str, begin: int, end: int) -> bytes:
        """Return bytes of an object; see :meth:`.Repository.get_range`."""
        return await self._repository.get_range(self._path(path), begin, end)

    async def check_place(self) -> None:
        """Return if the tier answers, and its place is that of before.

        Raises:
            UnavailableError: It is not; or the tier cannot be read now.
        """
        try:
            await self._latest()
        except (ErucaError, OSError, TierMismatchError) as error:
            text = error.detail if isinstance(error, ErucaError) else str(error)
            raise UnavailableError(f"the tier cannot be read: {text}") from error

    async def repair(self, segment: TierSegment, path: str, head: bytes | None) -> None:
        """Store one of a segment's objects again, from the segment here.

        Args:
            segment: The segment.
            path: The object's.
            head: The sound head of its side object; None: that is lost.

        Raises:
            UnrepairableError: There is no sound copy of it here.
            ErucaError: The tier cannot be written now.
            OSError: The same, or the disk refuses.
        """
        async with self._stepping:
            manifest = self.written
            if manifest is None or segment not in manifest.segments:
                raise UnrepairableError("this broker does not write the tier any more")
            if segment.base < self._store.log_min_offset:
                raise UnrepairableError("its segment is not on this broker's disk any more")
            file, target = self._store.log.file(segment.base), self._path(path)
            rate_max = self._settings.upload_rate_max
            if path == segment.path:
                if head is None:
                    raise UnrepairableError("its side object, which has the digests, is lost")
                await store_segment(
                    self._repository, target, file, segment, head, rate_max=rate_max
                )
                return
            before = {} if head is not None else await self._runs_before(segment, manifest)
            try:
                await store_side(
                    self._repository,
                    target,
                    file,
                    segment,
                    head=head,
                    before=before,
                    is_current=self._is_current,
                    room=self._room,
                    rate_max=rate_max,
                )
            finally:
                await asyncio.to_thread(remove, self._room)

    async def _runs_before(self, segment: TierSegment, manifest: Manifest) -> Mapping[Key, Run]:
        """Return the last run of each queue in the segment before, to build a head again."""
        place = manifest.segments.index(segment)
        if not place:
            return self._beginnings(segment.base)
        neighbour = manifest.segments[place - 1]
        try:
            return (await self._table_of(neighbour)).last_runs()
        except InvalidHeadError as error:
            raise UnrepairableError(
                f"its head is lost, and that of the segment before cannot be read: {error}"
            ) from error
        except ErucaError as error:
            if neighbour.side_path not in self.faults.known:
                raise
            raise UnrepairableError(
                "its head is lost, and so is that of the segment before, from which it is built"
            ) from error

    # --- Facts ------------------------------------------------------------------------------------

    def _known(self) -> Manifest:
        if self._manifest is None:
            raise UnavailableError("the tier's manifest is not known yet")
        return self._manifest

    def _extent(self) -> LogExtent:
        store = self._store
        return LogExtent(
            min_offset=store.log_min_offset,
            end_offset=store.log_max_offset,
            safe_offset=min(store.visible_offset, store.flushed_offset),
            segment_bytes=store.segment_bytes,
        )

    def _writer(self) -> Writer:
        settings, store = self._settings, self._store
        return Writer(
            settings.cluster, settings.broker_name, store.state.log_id, store.epochs().last
        )

    def _beginnings(self, base: int) -> dict[Key, Run]:
        """Return where each queue stands before the first segment of a tier."""
        if not base:
            return {}  # each queue begins with its first record
        return {
            key: Run(begin, 0, max(self._created_at(key[0]), base), 0)
            for key, begin in self._store.queues.beginnings()
        }

    def _is_current(self, key: Key, run: Run) -> bool:
        if key[0] not in self._store.state.topics:
            return is_system_topic(key[0])
        return run.log_offset >= self._created_at(key[0])

    def _created_at(self, topic: str) -> int:
        known = self._store.state.topics.get(topic)
        return 0 if known is None else known.created_at

    def _doubt(self) -> None:
        """Look for a later manifest soon; a writer knows what it has written itself."""
        if not self._is_writer and self._clock.monotonic() - self._refreshed_at >= STEP_SECONDS:
            self.wake()

    def _path(self, path: str) -> str:
        return f"{self._store.state.log_id}/{path}"

    @property
    def _room(self) -> Path:
        return self.directory / "side.unfinished"


async def _nothing() -> None:
    """Do nothing."""


def _tell_expired(before: Manifest, after: Manifest) -> None:
    if before.min_offset != after.min_offset:
        _log.info(
            "the tier's own retention has moved its beginning",
            before=before.min_offset,
            log_offset=after.min_offset,
            kept=len(after.expired),
            fix="if it is too early, correct the clock, or raise ERUCA_BROKER_TIER_RETENTION_HOURS "
            "within 24 h: then they come back",
        )
