"""Restore a lost store from the tier, into an empty directory.

The latest segment is fetched first, because its state tells which earlier messages still wait
(:mod:`eruca_broker.core.tier.restoring`). Each chunk is compared with its digest before it is
written, and each record of a segment is verified.

Crash rule: the log gets its name last. Until then the directory has ``commitlog.unfinished``, with
which no broker starts. A killed restore is run again: a chunk that is there is not fetched twice.
"""

from __future__ import annotations

import asyncio
import hashlib
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from eruca.contract.errors import ErucaError
from eruca.objects.repositories import Repository
from eruca_broker.core.tier.manifests import (
    MANIFESTS,
    InvalidManifestError,
    Manifest,
    TierSegment,
    decoded,
    name_of,
    number_of,
)
from eruca_broker.core.tier.queue_tables import InvalidHeadError, QueueTable
from eruca_broker.core.tier.queue_tables import decoded as decoded_head
from eruca_broker.core.tier.restoring import (
    UnrestorableError,
    check_room,
    chosen,
    extended,
    lost_of,
)
from eruca_broker.store.files.checkpoint import CHECKPOINT_NAME, Checkpoint, write_checkpoint
from eruca_broker.store.files.directory_lock import LOCK_NAME, lock_directory
from eruca_broker.store.log.segment import NAME_DIGITS
from eruca_broker.store.state.waiting import Waiting, waiting_before
from eruca_broker.store.tier.sides import DamagedSegmentError, proved
from eruca_broker.store.tiering.fetching import fetch_segment, verified
from eruca_broker.store.tiering.known_manifest import TIER, remember
from eruca_broker.store.tiering.place import TierPlace
from eruca_broker.store.tiering.uploads import answered
from eruca_chassis.files.directories import make_directory, sync_directory
from eruca_chassis.finishing import finished_in_thread

LOG_NAME: Final = "commitlog"
UNFINISHED_NAME: Final = "commitlog.unfinished"
_ATTEMPTS: Final = 5  # to read a chunk, with growing pauses
_PAUSE_SECONDS: Final = 0.5
_SHOWN_MAX: Final = 10  # logs that an error names
_LEFT: Final = frozenset((UNFINISHED_NAME, LOCK_NAME, CHECKPOINT_NAME, TIER))  # by a killed restore
_FIX: Final = (
    "restore the object from a copy (a version of the bucket may have it), and run this again; or "
    "use --from with a later log offset"
)


class Request(NamedTuple):
    """The operator's choice."""

    log_id: str | None = None  # None: the only one that the place has
    begin: int | None = None  # log offset; None: as much as there is room for
    high_ratio: float = 1.0  # used part of the disk, at most


class Told(NamedTuple):
    """Functions that learn about the progress."""

    planned: Callable[[int], None] = lambda _: None  # bytes, all together; perhaps again
    done: Callable[[int], None] = lambda _: None  # further bytes


UNTOLD: Final = Told()


class Restored(NamedTuple):
    """A store that has been restored."""

    log_id: str
    manifest_number: int
    min_offset: int
    end_offset: int
    stored_at: datetime  # of the last record
    tier_min_offset: int  # what is before min_offset is read from the tier
    lost_waiting_count: int  # delayed messages and open transactions that the tier lacks


async def restore(
    repository: Repository, directory: Path, request: Request, told: Told = UNTOLD
) -> Restored:
    """Restore a store from the latest manifest of a tier.

    Args:
        repository: The tier's place, for brokers of this name.
        directory: The store's, missing or empty.
        request: What to restore.
        told: Learns about the progress.

    Raises:
        UnrestorableError: The directory is not empty, or the tier has nothing that can be restored.
        StoreLockedError: Another process uses the directory.
        DamagedSegmentError: An object is missing or damaged; nothing is lost by running it again.
        ErucaError: The tier cannot be read now; the same.
        OSError: The disk refuses; the same.
    """
    manifest = await _latest(repository, request.log_id)
    await asyncio.to_thread(make_directory, directory)
    with _locked(directory):
        return await _Restore(repository, manifest, directory, told).run(request)


class _Restore:
    """One restore, while it holds the store's lock."""

    def __init__(
        self, repository: Repository, manifest: Manifest, directory: Path, told: Told
    ) -> None:
        self._place = TierPlace(repository, lambda: manifest.log_id)
        self._manifest = manifest
        self._directory = directory
        self._unfinished = directory / UNFINISHED_NAME
        self._told = told

    async def run(self, request: Request) -> Restored:
        """Fetch what is wanted, and what that needs; see :func:`restore`."""
        room = await asyncio.to_thread(_room, self._directory, request.high_ratio)
        segments = chosen(self._manifest, begin=request.begin, room=room)
        # Not earlier: with it no broker starts, and a refused request leaves nothing to go on with.
        await asyncio.to_thread(make_directory, self._unfinished)
        self._plan(segments)
        waiting: Waiting | None = None
        fetched: list[TierSegment] = []
        while len(fetched) < len(segments):
            fetched.insert(0, segments[-1 - len(fetched)])
            await self._fetch(fetched[0])
            if waiting is None:
                files = [(self._path(one.base), one.base) for one in fetched]
                waiting = await finished_in_thread(partial(waiting_before, files))
                if waiting is not None:
                    segments = extended(self._manifest, segments, waiting.offsets)
                    check_room(segments, room)
                    self._plan(segments)
        if waiting is None:
            raise UnrestorableError(
                f"no segment from log offset {segments[0].base} on begins with a snapshot of the "
                "state; use --from with an earlier log offset"
            )
        await self._complete(segments)
        return Restored(
            self._manifest.log_id,
            self._manifest.number,
            segments[0].base,
            segments[-1].end,
            datetime.fromtimestamp(segments[-1].last_ms / 1000, UTC),
            self._manifest.segments[0].base,
            lost_of(segments, waiting.offsets),
        )

    def _plan(self, segments: list[TierSegment]) -> None:
        self._told.planned(sum(one.end - one.base for one in segments))

    async def _fetch(self, segment: TierSegment) -> None:
        """Write a segment's file, and verify its records."""
        digests = (await self._head_of(segment))[0].head.segment_digests
        path = self._path(segment.base)
        await fetch_segment(self._read, segment, digests, path, done=self._told.done)
        await finished_in_thread(partial(_exhaust, proved(path, segment.base)))

    async def _head_of(self, segment: TierSegment) -> tuple[QueueTable, bytes]:
        digest = bytes.fromhex(segment.head_sha256)
        head = await self._read(segment.side_path, 0, segment.head_size, digest)
        try:
            table = decoded_head(head)
        except InvalidHeadError as error:
            raise DamagedSegmentError(f"{segment.side_path} of the tier: {error}") from error
        if hashlib.sha256(table.head.segment_digests).hexdigest() != segment.sha256:
            raise DamagedSegmentError(
                f"{segment.side_path} of the tier is not the side object of {segment.path}"
            )
        return table, head

    async def _read(self, path: str, begin: int, end: int, digest: bytes) -> bytes:
        """Return verified bytes of an object; try again if the tier does not answer."""
        for attempt in range(_ATTEMPTS):
            try:
                return await verified(self._place, path, begin, end, digest)
            except DamagedSegmentError as error:
                raise DamagedSegmentError(f"{error}; {_FIX}") from error
            except (ErucaError, OSError):
                if attempt == _ATTEMPTS - 1:
                    raise
                await asyncio.sleep(_PAUSE_SECONDS * 2**attempt)
        raise AssertionError("the last attempt returns, or raises")

    async def _complete(self, segments: list[TierSegment]) -> None:
        """Make everything durable, and give the log its name."""
        manifest = self._manifest
        _, head = await self._head_of(manifest.segments[0])
        names = {self._path(one.base) for one in segments}

        def complete() -> None:
            for path in self._unfinished.iterdir():
                if path not in names:  # of a killed restore that wanted more
                    path.unlink()
            sync_directory(self._unfinished)
            end = segments[-1].end
            write_checkpoint(self._directory, Checkpoint(segments[-1].last_ms, 0, 0, 0, end))
            remember(self._directory / TIER, manifest, reached=end, head=head)
            sync_directory(self._directory)
            self._unfinished.rename(self._directory / LOG_NAME)
            sync_directory(self._directory)

        await finished_in_thread(complete)

    def _path(self, base: int) -> Path:
        return self._unfinished / f"{base:0{NAME_DIGITS}d}"


async def _latest(repository: Repository, log_id: str | None) -> Manifest:
    """Return the latest manifest of the wanted log.

    Raises:
        UnrestorableError: There is none, or nobody knows which log is wanted.
    """
    folder = "" if log_id is None else f"{log_id}/{MANIFESTS}"
    async with answered():
        listed = await repository.sizes(folder)
    latest: dict[str, int] = {}
    for path in listed:
        found, _, name = path.partition("/")
        if number := number_of(name):
            latest[found] = max(number, latest.get(found, 0))
    if not latest:
        wanted = "" if log_id is None else f" of log {log_id}"
        raise UnrestorableError(
            f"{repository} has no manifest{wanted}: check ERUCA_BROKER_TIER_URL, "
            "ERUCA_BROKER_CLUSTER and ERUCA_BROKER_NAME"
        )
    if len(latest) > 1:
        raise UnrestorableError(
            f"{repository} has {len(latest)} logs: name one of them with --log: "
            + ", ".join(sorted(latest)[:_SHOWN_MAX])
        )
    [(found, number)] = latest.items()
    path = name_of(number)
    async with answered():
        data = await repository.get(f"{found}/{path}")
    try:
        return decoded(data, number=number, log_id=found)
    except InvalidManifestError as error:
        raise UnrestorableError(f"{path} of the tier: {error}") from error


@contextmanager
def _locked(directory: Path) -> Iterator[None]:
    """Hold the lock of an empty store, which may have what a killed restore has left."""
    _check_empty(directory)
    lock = lock_directory(directory)
    try:
        _check_empty(directory)  # another restore may have completed meanwhile
        yield
    finally:
        lock.release()


def _check_empty(directory: Path) -> None:
    found = sorted(path.name for path in directory.iterdir() if path.name not in _LEFT)
    if found:
        raise UnrestorableError(
            f"{directory} is not empty: it has {found[0]}; restore into an empty directory"
        )


def _room(directory: Path, high_ratio: float) -> int:
    """Return the bytes that may be used, with those of a killed restore."""
    usage = shutil.disk_usage(directory)
    here = sum(path.stat().st_size for path in (directory / UNFINISHED_NAME).glob("*"))
    return int(usage.total * high_ratio) - usage.used + here


def _exhaust(steps: Iterator[None]) -> None:
    for _ in steps:
        pass
