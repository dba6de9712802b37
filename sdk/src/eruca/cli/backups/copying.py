"""Make a backup: copy what no earlier one has, write the manifest, delete what is not needed.

Steps, in order; a kill between two of them leaves what the next run can use::

    1. list    the latest manifest, and all objects
    2. plan    which pieces the log still has; the copy begins where they end
    3. copy    piece after piece; each is an object that never changes
    4. commit  the manifest, under the next number, which only one run can take
    5. drop    manifests beyond --keep, then the objects that no manifest needs

The manifest names what step 5 deletes: backups (*drops*) and objects (*condemned*). No later run
uses a condemned object, and each later manifest names it again, and deletes it, until it is gone.
So a run that begins meanwhile never builds on what is about to go, however long the deleting run is
suspended. A run that began before cannot commit any more, for its number is taken.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, NamedTuple

from eruca.cli.backups.log_source import Extent, LogSource
from eruca.cli.backups.manifests import (
    BACKUPS_FOLDER,
    FORMAT,
    LOG_FOLDER,
    InvalidManifestError,
    Manifest,
    condemned,
    decoded,
    dropped,
    encoded,
    name_of,
    number_of,
    path_of,
)
from eruca.cli.backups.pieces import UPLOAD_SIZE, Piece, Prove, usable
from eruca.cli.backups.records_walk import walk
from eruca.contract.errors import (
    ConflictError,
    RecordNotFoundError,
    StaleEpochError,
    TransportError,
)
from eruca.contract.records import DamagedRecordError
from eruca.objects.repositories import PathTakenError, Repository

PIECE_SIZE: Final = 64 * 1024 * 1024  # bytes; what a killed run may have to copy again
PLANS_MAX: Final = 5  # retention may overtake a backup, which begins again then


class Plan(NamedTuple):
    """The part of the log that a run copies; for progress."""

    from_offset: int
    end_offset: int
    reused_bytes: int


@dataclass(frozen=True, slots=True)
class Told:
    """Callbacks for progress."""

    planned: Callable[[Plan], None] = lambda plan: None
    copied: Callable[[int], None] = lambda log_offset: None


class Made(NamedTuple):
    """A backup that has been made, and what was deleted after it."""

    manifest: Manifest
    not_durable_bytes: int  # acknowledged meanwhile, and not in it
    deleted_backups: list[int]


async def back_up(
    repository: Repository,
    log: LogSource,
    *,
    keep: int | None = None,
    piece_size: int = PIECE_SIZE,
    told: Told | None = None,
) -> Made:
    """Make a backup of a broker's log.

    Args:
        repository: The broker's.
        log: The broker's.
        keep: The number of backups that stay; None: all.
        piece_size: Bytes after which a piece ends.
        told: Callbacks.

    Raises:
        ConflictError: Another run has made a backup meanwhile, or the repository has another
            broker's backups.
        MessageDamagedError: A record is damaged.
        ErucaError: The log cannot be read, or the repository not be used.
        OSError: The repository cannot be used.
    """
    begun_at = _now()
    told = told or Told()
    manifests = await numbers(repository)
    live = live_numbers(manifests)
    latest = await _its_manifest(repository, live[-1]) if live else None
    number = max(manifests, default=0) + 1
    _check_owner(latest, log.broker_name)
    listed = await repository.sizes(LOG_FOLDER)
    going = set(latest.condemned if latest else ())
    present = {path: size for path, size in listed.items() if path not in going}
    run = _Run(repository, log, present, piece_size=piece_size, told=told)
    extent, pieces = await run.copied()
    copied = [piece for piece in pieces if piece.upload == run.upload]
    drops = dropped([*live, number], keep) if keep is not None else []
    if latest:  # a run that was killed has not dropped them yet
        drops = sorted({*drops, *latest.drops} & set(live))
    if keep is not None:
        kept = [await _its_manifest(repository, one) for one in live if one not in drops]
        going |= condemned(listed, kept, (path_of(extent.log_id, piece) for piece in pieces))
    manifest = Manifest(
        format=FORMAT,
        number=number,
        run=run.upload + secrets.token_hex(UPLOAD_SIZE),
        broker_name=log.broker_name,
        cluster=extent.cluster,
        log_id=extent.log_id,
        broker_version=extent.broker_version,
        begun_at=begun_at,
        ended_at=_now(),
        min_offset=extent.min_offset,
        end_offset=pieces[-1].end if pieces else extent.min_offset,
        epoch=pieces[-1].epoch if pieces else 0,
        segment_bytes=extent.segment_bytes,
        copied_bytes=sum(piece.size for piece in copied),
        copied_from=copied[0].begin if copied else extent.end_offset,
        pieces=pieces,
        drops=drops,
        condemned=sorted(going & set(listed)),
    )
    try:
        await repository.create(name_of(number), encoded(manifest))
    except PathTakenError:
        raise _overtaken(log.broker_name) from None
    for one in drops:
        await repository.put(name_of(one), b"")  # empty, and not gone: nobody takes its number
    await repository.delete(manifest.condemned)
    return Made(manifest, extent.not_durable_bytes, drops)


class _TruncatedError(Exception):
    """The log has lost its end since the run has planned, and other records are there."""


class _Run:
    """One run's copy of the log."""

    def __init__(
        self,
        repository: Repository,
        log: LogSource,
        present: dict[str, int],
        *,
        piece_size: int,
        told: Told,
    ) -> None:
        self.upload = secrets.token_hex(UPLOAD_SIZE)
        self._repository = repository
        self._log = log
        self._present = present  # objects that it may use, by path, with their sizes
        self._piece_size = piece_size
        self._told = told

    async def copied(self) -> tuple[Extent, list[Piece]]:
        """Return the log's extent, and the pieces that have it, once all of them are stored.

        If retention overtakes the copy, or another master truncates the log, it begins again.
        """
        for left in reversed(range(PLANS_MAX)):
            extent = await self._log.extent()
            chain = await usable(self._pieces_of(extent), extent.min_offset, self._prove_in(extent))
            place = chain[-1].end if chain else extent.min_offset
            reused = sum(piece.size for piece in chain)
            self._told.planned(Plan(place, max(place, extent.end_offset), reused))
            try:
                await self._copy(extent, chain)
            except (RecordNotFoundError, StaleEpochError):
                if not left:
                    raise
            except _TruncatedError as error:
                if not left:
                    raise TransportError(str(error)) from error
            else:
                return extent, chain
        raise AssertionError("the last plan has returned or raised")

    def _pieces_of(self, extent: Extent) -> list[Piece]:
        """Return all pieces of the log that this run may use."""
        folder = f"{LOG_FOLDER}/{extent.log_id}/"
        found = (
            Piece.of_name(path.removeprefix(folder), size)
            for path, size in self._present.items()
            if path.startswith(folder)
        )
        return [piece for piece in found if piece is not None]

    def _prove_in(self, extent: Extent) -> Prove:
        async def prove(piece: Piece) -> bool:
            begin, end = piece.last - piece.begin, piece.size
            path = path_of(extent.log_id, piece)
            if piece.end > extent.end_offset:
                return False  # it is not durable there any more
            record = await self._log.record(piece.last)
            if record is None or len(record) != end - begin:
                return False
            try:
                return await self._repository.get_range(path, begin, end) == record
            except FileNotFoundError:
                raise _overtaken(self._log.broker_name) from None

        return prove

    async def _copy(self, extent: Extent, chain: list[Piece]) -> None:
        """Copy the log from the end of *chain* on, and add its pieces."""
        begin = chain[-1].end if chain else extent.min_offset
        epoch = chain[-1].epoch if chain else 0
        place, buffer, last, stored_ms = begin, bytearray(), begin, 0
        if chain:
            stored_ms = chain[-1].stored_ms
        while place < extent.end_offset:
            stretch = await self._log.read(place, epoch)
            try:
                found = walk(stretch.data, place, end_offset=extent.end_offset)
            except DamagedRecordError as error:
                raise TransportError(
                    f"broker {self._log.broker_name} sent an invalid part of its log: {error}"
                ) from error
            is_cut = found.size < len(stretch.data)
            if is_cut and not found.size:
                raise _TruncatedError(
                    f"expected a record of {self._log.broker_name} to end at log offset "
                    f"{extent.end_offset}, where its log ended before"
                )
            buffer += stretch.data[: found.size]
            if found.size:
                last, stored_ms = place + found.last, found.stored_ms
            epoch = stretch.epoch
            place += found.size
            if not is_cut and stretch.next_offset <= extent.end_offset:
                place = stretch.next_offset  # else the blank record may not be durable
            fills = place > begin + len(buffer)
            if fills or len(buffer) >= self._piece_size or place >= extent.end_offset:
                digest = hashlib.sha256(buffer).hexdigest()
                size, upload = len(buffer), self.upload
                piece = Piece(begin, place, size, last, epoch, stored_ms, digest, upload)
                await self._store(path_of(extent.log_id, piece), bytes(buffer))
                chain.append(piece)
                buffer.clear()
                begin = last = place
            self._told.copied(place)

    async def _store(self, path: str, data: bytes) -> None:
        await self._repository.put(path, data)
        self._present[path] = len(data)  # another plan of this run may use it


async def numbers(repository: Repository) -> dict[int, int]:
    """Return the size of each manifest by its number; 0: the backup was deleted."""
    listed = await repository.sizes(BACKUPS_FOLDER)
    found = {number_of(path): size for path, size in listed.items()}
    return {number: size for number, size in found.items() if number is not None}


async def read_manifest(repository: Repository, number: int) -> Manifest:
    """Return a backup's manifest.

    Raises:
        ConflictError: It is damaged, or of another version.
        FileNotFoundError: There is no such backup, or it was deleted.
    """
    data = await repository.get(name_of(number))
    if not data:
        raise FileNotFoundError(f"backup {number} was deleted")
    try:
        manifest = decoded(data)
        if manifest.number != number:
            raise InvalidManifestError(f"expected backup {number}, found {manifest.number}")
        return manifest
    except InvalidManifestError as error:
        raise ConflictError(
            f"the manifest {repository}/{name_of(number)} is invalid: {error}",
            fix="use the version of eruca that wrote it; or restore the object, or move it away",
        ) from error


async def _its_manifest(repository: Repository, number: int) -> Manifest:
    """Return a manifest that was listed a moment ago."""
    try:
        return await read_manifest(repository, number)
    except FileNotFoundError:
        raise _overtaken(str(repository)) from None


def _overtaken(name: str) -> ConflictError:
    return ConflictError(
        f"another run has made a backup of {name} meanwhile",
        fix="run one backup of a broker at a time; the next one uses what this one has copied",
    )


def live_numbers(manifests: dict[int, int]) -> list[int]:
    """Return the numbers of the backups that were not deleted, ascending."""
    return sorted(number for number, size in manifests.items() if size)


def _check_owner(latest: Manifest | None, broker_name: str) -> None:
    if latest is not None and latest.broker_name != broker_name:
        raise ConflictError(
            f"the repository has backups of {latest.broker_name}, not of {broker_name}",
            fix="use another repository",
        )


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
