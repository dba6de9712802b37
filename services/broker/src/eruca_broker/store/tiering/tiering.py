"""The tier of one store: its writer, while the broker is the master, and its readers' manifest.

:mod:`eruca_broker.core.tier.steps` decides. States, invariants and failures are in
``store/tier/DESIGN.md``. All methods run on the loop's thread; files are read in threads.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import structlog

from eruca.contract.errors import ErucaError, UnavailableError
from eruca.objects.repositories import PathTakenError, Repository
from eruca_broker.core.tier.faults import Faults, sound_end
from eruca_broker.core.tier.manifests import InvalidManifestError, Manifest, TierSegment
from eruca_broker.core.tier.queue_tables import InvalidHeadError, QueueTable
from eruca_broker.core.tier.steps import (
    FencedError,
    TierMismatchError,
    added,
    first_manifest,
    following,
    next_base,
    purged,
    renewed,
    retained,
)
from eruca_broker.store.message_store import MessageStore
from eruca_broker.store.reading.readable_log import LogFile
from eruca_broker.store.tier.sides import CHUNK_SIZE, remove
from eruca_broker.store.tiering.facts import StoreFacts
from eruca_broker.store.tiering.known_manifest import TIER
from eruca_broker.store.tiering.place import TierPlace
from eruca_broker.store.tiering.renewals import Due, Renewals, UnrenewableError
from eruca_broker.store.tiering.repairs import Repairs
from eruca_broker.store.tiering.taking_over import taken_over
from eruca_broker.store.tiering.uploads import upload
from eruca_broker.store.tiering.view import TierView
from eruca_chassis.clock import Clock

STEP_SECONDS: Final = 5.0  # between two looks at the log
REFRESH_SECONDS: Final = 30.0  # between two looks for another broker's manifest
RETRY_SECONDS: Final = 10.0  # after a failure
_KEPT_NUMBERS: Final = 2  # manifests that stay whole, for those who are reading them

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
    disk_high_ratio: float = 1.0  # used part of the disk, at most, with what is fetched here
    renews: bool = False  # side objects of earlier formats, which earlier versions need


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
        place: The tier's objects.
        view: What the store's readers see of the tier.
        renewals: Of side objects of earlier formats.
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
        self._facts = StoreFacts(store, settings.cluster, settings.broker_name)
        self.place = TierPlace(repository, lambda: store.state.log_id)
        self._settings = settings
        self._clock = clock
        self._is_master = is_master
        self.directory = store.directory / TIER
        self.view = TierView(
            store,
            self.place,
            self.directory,
            cache_bytes_max=settings.cache_bytes_max,
            doubt=self._doubt,
        )
        self.cache, self.reader = self.view.cache, self.view.reader
        self.renewals = Renewals(
            self.place,
            self.directory,
            local=self._local,
            now=clock.monotonic,
            high_ratio=settings.disk_high_ratio,
            rate_max=settings.upload_rate_max,
            is_wanted=settings.renews,
        )
        self._repairs = Repairs(
            store,
            self._facts,
            self.place,
            room=self._room,
            faults=self.faults,
            written=lambda: self.written,
            table_of=self.view.table_of,
            rate_max=settings.upload_rate_max,
        )
        self.wake: Callable[[], None] = lambda: None  # ends the pause between two steps
        self.taking_over: Callable[[], Awaitable[None]] = _nothing  # before it becomes the writer
        self._refreshed_at = float("-inf")  # monotonic
        self._last: QueueTable | None = None  # of its last segment
        self._is_writer = False  # it has been reconciled with the log
        self._stepping = asyncio.Lock()

    async def open(self) -> None:
        """Begin to read by the manifest that was known last.

        Raises:
            OSError: The cache cannot be made.
        """
        await self.view.open()
        await asyncio.to_thread(remove, self._room)
        await asyncio.to_thread(self.renewals.clear)

    async def close(self) -> None:
        """Stop reading: what must be fetched is refused until the next role reads the tier."""
        await self.view.close()

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
        return self.view.latest if self._is_writer else None

    @property
    def manifest(self) -> Manifest | None:
        """The manifest by which readers read; None: none is known."""
        return self.reader.manifest

    @property
    def behind_bytes(self) -> int:
        """Bytes of closed segments that the tier does not have yet."""
        extent = self._facts.extent
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
            if not self._is_master or self._store.role.is_replica:
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
        base = next_base(self._known(), self._facts.extent)
        if base is not None:
            await self._upload(base)
            return 0.0
        due = await self.renewals.due(self._known())
        if due is None:
            return STEP_SECONDS
        await self._renew(due)
        return 0.0

    async def _refresh(self) -> None:
        """Read the latest manifest, if it is not the one that is known.

        Raises:
            ErucaError: The tier cannot be read now.
            OSError: The same.
            InvalidManifestError: The manifest is damaged, or of a later version.
            TierMismatchError: The place lacks manifests that it had.
        """
        known, log_begin = self.view.latest, self._store.log_min_offset  # before the listing
        self._refreshed_at = self._clock.monotonic()
        latest = await self.place.latest()
        if known is not None and known.number == latest:
            self.reader.reached = max(self.reader.reached, log_begin)
            return
        if latest:
            await self.view.show(await self.place.manifest(latest), log_begin)
        else:
            await self.view.show(first_manifest(self._facts.writer), log_begin)

    async def _take_over(self) -> None:
        """Reconcile the manifest with the log; from then on this broker writes.

        Raises:
            FencedError: A later master has written it.
            TierMismatchError: The log lacks segments, and no election explains it.
            DamagedSegmentError: A segment differs because a record of it is damaged here.
        """
        manifest = self._known()
        taken = await taken_over(manifest, self._store, self._facts, self.place, self.directory)
        whole = taken.manifest
        await self.taking_over()  # retention believes this broker's faults from now on
        self.faults.keep(whole.paths)
        for path, fault in taken.faults.items():
            self.faults.note(path, fault)
        if whole != manifest or taken.unnamed:
            await self._commit(whole, taken.unnamed)
        if taken.permission is not None:
            await asyncio.to_thread(remove, taken.permission)
        self._last = None
        if whole.segments:
            self._last = await self.view.table_of(whole.segments[-1])
        self._is_writer = True

    async def _upload(self, base: int) -> None:
        before = self._facts.beginnings(base) if self._last is None else self._last.last_runs()
        file = self._store.log.file(base)
        uploaded = await upload(
            file,
            self.place.repository,
            self._store.state.log_id,
            epoch=self._store.role.epochs().at(file.end_offset - 1),
            before=before,
            is_current=self._facts.is_current,
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

    async def _renew(self, due: Due) -> None:
        """Store a new side object, and name it; or leave the segment as it is, for a time.

        Raises:
            UnavailableError: The tier or the disk fails. Uploads go on; renewals pause.
        """
        try:
            found = await self.renewals.renewed(due)
        except UnrenewableError as error:
            self.renewals.leave(due, error)
            return
        now_ms = self._clock.now_ms()
        manifest = renewed(self._known(), due.segment, found, now_ms=now_ms)
        await self._check_stored([found])
        await self._commit(manifest)
        self.renewals.count += 1
        _log.info("a side object of the tier is renewed", log_offset=found.base)

    async def _check_stored(self, segments: list[TierSegment]) -> None:
        try:
            await self.place.check_stored(segments)
        except UnavailableError:
            self._is_writer = False
            raise

    async def _commit(self, manifest: Manifest, condemned: list[str] | None = None) -> None:
        """Create the manifest that follows the known one, and delete what it condemns.

        Raises:
            FencedError: A later master has written the known one.
            UnavailableError: Another broker was faster: everything must be looked at again.
        """
        created = following(
            manifest, self._facts.writer, now_ms=self._clock.now_ms(), condemned=condemned or ()
        )
        try:
            await self.place.create(created)
        except PathTakenError as error:
            self._is_writer, self.view.latest = False, None
            raise UnavailableError(
                f"another broker has written the tier's manifest {created.number}"
            ) from error
        except BaseException:
            self._is_writer = False  # nobody knows whether it was created: read it again
            raise
        try:
            await self.view.show(created, self._store.log_min_offset)
        except BaseException:
            self._is_writer, self.view.latest = False, None
            raise
        self.faults.keep(created.paths)
        overtaken = created.number - _KEPT_NUMBERS
        if overtaken > 0:
            await self.place.empty(overtaken)
        if created.condemned:
            await self.place.delete(created.condemned)
            self.view.latest = purged(created, created.condemned)

    # --- For the scrub ----------------------------------------------------------------------------

    async def repair(self, segment: TierSegment, path: str, head: bytes | None) -> None:
        """Store one of a segment's objects again, from the segment here; see :class:`.Repairs`."""
        async with self._stepping:
            await self._repairs.repair(segment, path, head)

    # --- Facts ------------------------------------------------------------------------------------

    def _known(self) -> Manifest:
        if self.view.latest is None:
            raise UnavailableError("the tier's manifest is not known yet")
        return self.view.latest

    def _local(self, segment: TierSegment) -> LogFile | None:
        """Return a segment's file here; None: it is not here any more."""
        is_here = segment.base >= self._store.log_min_offset
        return self._store.log.file(segment.base) if is_here else None

    def _doubt(self) -> None:
        """Look for a later manifest soon; a writer knows what it has written itself."""
        if not self._is_writer and self._clock.monotonic() - self._refreshed_at >= STEP_SECONDS:
            self.wake()

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
