"""Read a backup: verify its pieces, and restore a store from them.

Every byte that is restored has been compared with its piece's SHA-256, and walked as records of the
log. A store is complete or has no log at all.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from eruca.cli.backups.manifests import LOG_FOLDER, Manifest, path_of
from eruca.cli.backups.pieces import Piece
from eruca.cli.backups.records_walk import walk
from eruca.cli.backups.store_files import RestoredStore
from eruca.contract.errors import ConflictError, ValidationError
from eruca.contract.records import BLANK_SIZE_MIN, DamagedRecordError
from eruca.objects.repositories import Repository

Count = Callable[[int], None]
"""Called with the number of further bytes."""


class DamagedPieceError(Exception):
    """A piece is missing, or not what the manifest says."""


class Restored(NamedTuple):
    """A store that has been restored."""

    min_offset: int
    end_offset: int
    stored_ms: int  # store time of the last record


async def faults_of(
    repository: Repository, manifest: Manifest, *, reads: bool, told: Count
) -> list[str]:
    """Return what is wrong with the pieces of a backup; empty: nothing.

    Args:
        repository: The broker's.
        manifest: Of the backup.
        reads: Whether their bytes are read, and not only their sizes.
        told: Called with the sizes of the pieces that are done.
    """
    present = await repository.sizes(LOG_FOLDER)
    faults: list[str] = []
    for piece in manifest.pieces:
        path = path_of(manifest.log_id, piece)
        if (size := present.get(path)) is None:
            faults.append(f"{path} is missing")
        elif size != piece.size:
            faults.append(f"{path}: expected {piece.size} bytes, found {size}")
        elif reads:
            try:
                await _read(repository, manifest, piece)
            except DamagedPieceError as error:
                faults.append(str(error))
        told(piece.size)
    return faults


async def restore(
    repository: Repository,
    manifest: Manifest,
    directory: Path,
    *,
    until: int | datetime | None,
    told: Count,
) -> Restored:
    """Restore a store into an empty directory.

    Args:
        repository: The broker's.
        manifest: Of the backup.
        directory: The store's, missing or empty.
        until: Only records that end at this log offset or before it, or that were stored at this
            time or before; None: all.
        told: Called with the number of bytes that are restored.

    Raises:
        ConflictError: The directory is not empty, or a piece is damaged; there is no store.
        ValidationError: The backup has nothing until then.
        ErucaError: The repository cannot be read.
        OSError: The store cannot be written.
    """
    _check_until(manifest, until)
    end = manifest.min_offset
    stored_ms: int | None = None
    with RestoredStore(directory) as store:
        for piece in manifest.pieces:
            try:
                data = await _read(repository, manifest, piece)
            except DamagedPieceError as error:
                raise ConflictError(
                    f"the backup is damaged: {error}",
                    fix="restore from another backup (eruca backup verify names those that are "
                    "whole), or use --until to end before this piece",
                ) from error
            size, its_ms = _wanted(piece, data, until)
            stored_ms = its_ms if size else stored_ms
            await asyncio.to_thread(store.write, piece.begin, data[:size])
            end = piece.begin + size
            told(size)
            if size < piece.size:
                break
            if piece.fills_segment:
                assert piece.end - end >= BLANK_SIZE_MIN
                await asyncio.to_thread(store.fill, end, piece.end)
                end = piece.end
        if stored_ms is None:
            raise ValidationError(
                f"backup {manifest.number} has no record until then",
                fix="use a later time, or an earlier backup (eruca backup list)",
            )
        await asyncio.to_thread(store.complete, end, stored_ms, manifest.segment_bytes)
    return Restored(manifest.min_offset, end, stored_ms)


def _check_until(manifest: Manifest, until: int | datetime | None) -> None:
    if isinstance(until, int) and not manifest.min_offset < until <= manifest.end_offset:
        raise ValidationError(
            f"--until {until}: backup {manifest.number} has the log offsets {manifest.min_offset} "
            f"to {manifest.end_offset}",
            fix="use an offset in between, or another backup (eruca backup list)",
        )


def _wanted(piece: Piece, data: bytes, until: int | datetime | None) -> tuple[int, int]:
    """Return how many bytes of a piece are wanted, and the last one's store time in ms."""
    if until is None or (isinstance(until, int) and piece.begin + piece.size <= until):
        return piece.size, piece.stored_ms
    if isinstance(until, int):
        found = walk(data, piece.begin, end_offset=until)
    else:
        until_ms = int(until.timestamp() * 1000)
        if piece.stored_ms <= until_ms:
            return piece.size, piece.stored_ms
        found = walk(data, piece.begin, until_ms=until_ms)
    return found.size, found.stored_ms


async def _read(repository: Repository, manifest: Manifest, piece: Piece) -> bytes:
    """Return a piece's bytes, verified.

    Raises:
        DamagedPieceError: They are missing, or others than were copied.
    """
    path = path_of(manifest.log_id, piece)
    try:
        data = await repository.get(path)
    except FileNotFoundError:
        raise DamagedPieceError(f"{path} is missing") from None
    if len(data) != piece.size:
        raise DamagedPieceError(f"{path}: expected {piece.size} bytes, found {len(data)}")
    if hashlib.sha256(data).hexdigest() != piece.sha256:
        raise DamagedPieceError(f"{path}: its bytes do not match their SHA-256")
    try:
        walk(data, piece.begin)
    except DamagedRecordError as error:
        raise DamagedPieceError(f"{path}: {error}") from error
    return data
