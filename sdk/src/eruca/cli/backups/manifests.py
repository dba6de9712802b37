"""Manifests: each is one backup, and names the pieces of which it consists. Pure.

A manifest is written last, under a number that nobody else can take. So a backup exists as a whole
or not at all. Its object stays for ever, empty once the backup is deleted: or a run that was
suspended for long could take the number again.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from eruca.cli.backups.pieces import Piece, is_chain

FORMAT: Final = 1  # of manifests, and of the names of pieces
LOG_FOLDER: Final = "log"
BACKUPS_FOLDER: Final = "backups"
STORED_MS_MAX: Final = 253_402_300_799_999  # the end of the year 9999
_NAME: Final = re.compile(rf"{BACKUPS_FOLDER}/([0-9]{{8}})\.json")


class InvalidManifestError(ValueError):
    """A manifest cannot be read, or does not describe a log."""


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """One backup of a broker's log."""

    format: int
    number: int  # of this backup among those of the broker, from 1 on
    run: str  # random: the run that made it
    broker_name: str
    cluster: str
    log_id: str
    broker_version: str
    begun_at: str  # RFC 3339, UTC: everything acknowledged before is in it
    ended_at: str
    min_offset: int  # log offset of the first record, with which a segment begins
    end_offset: int  # log offset after the last record
    epoch: int  # of the last record; 0: without replicas
    segment_bytes: int
    copied_bytes: int  # that earlier backups did not have
    copied_from: int  # log offset of the first of them
    pieces: list[Piece]
    drops: list[int]  # numbers of the backups that this run deletes
    condemned: list[str]  # paths of the objects that it deletes; no later run uses them

    @property
    def size(self) -> int:
        """Bytes of all its records."""
        return sum(piece.size for piece in self.pieces)

    @property
    def stored_ms(self) -> int | None:
        """Store time of the last record, in ms since 1970; None if there is no record."""
        return next((piece.stored_ms for piece in reversed(self.pieces) if piece.size), None)


def name_of(number: int) -> str:
    """Return the path of a backup's manifest below its broker's folder."""
    return f"{BACKUPS_FOLDER}/{number:08d}.json"


def number_of(path: str) -> int | None:
    """Return the number in a manifest's path; None if it is not one."""
    match = _NAME.fullmatch(path)
    return None if match is None else int(match[1])


def encoded(manifest: Manifest) -> bytes:
    """Return the bytes of a manifest."""
    assert not faults(manifest), faults(manifest)
    return msgspec.json.encode(manifest)


def decoded(data: bytes) -> Manifest:
    """Return the manifest with these bytes.

    Raises:
        InvalidManifestError: It is damaged, or of a later version.
    """
    try:
        version = msgspec.json.decode(data, type=dict).get("format")
        if version != FORMAT:
            raise InvalidManifestError(
                f"expected format {FORMAT}, found {version}: another version of eruca wrote it"
            )
        manifest = msgspec.json.decode(data, type=Manifest)
    except (msgspec.DecodeError, AssertionError) as error:
        raise InvalidManifestError(f"it cannot be read: {error}") from error
    if found := faults(manifest):
        raise InvalidManifestError(found)
    return manifest


def faults(manifest: Manifest) -> str | None:
    """Return why the pieces are not the log that a manifest describes; None: they are."""
    begin = manifest.pieces[0].begin if manifest.pieces else manifest.end_offset
    end = manifest.pieces[-1].end if manifest.pieces else manifest.end_offset
    for piece in manifest.pieces:
        if Piece.of_name(piece.name, piece.size) != piece or piece.stored_ms > STORED_MS_MAX:
            return f"the piece at log offset {piece.begin} has an invalid value"
    if not is_chain(manifest.pieces):
        return "its pieces do not follow each other"
    if (begin, end) != (manifest.min_offset, manifest.end_offset):
        return (
            f"expected log offsets {manifest.min_offset} to {manifest.end_offset}, found pieces "
            f"from {begin} to {end}"
        )
    filled = [piece.end for piece in manifest.pieces if piece.fills_segment]
    last = manifest.end_offset - (filled[-1] if filled else manifest.min_offset)
    if manifest.segment_bytes < max(last, 1):
        return f"expected segments of at least {last} bytes, found {manifest.segment_bytes}"
    return None


def dropped(numbers: Iterable[int], keep: int) -> list[int]:
    """Return the backups to delete so that the *keep* latest stay."""
    assert keep >= 1, "the backup that has just been made stays"
    return sorted(numbers)[:-keep]


def path_of(log_id: str, piece: Piece) -> str:
    """Return the path of a piece below its broker's folder."""
    return f"{LOG_FOLDER}/{log_id}/{piece.name}"


def condemned(listed: Iterable[str], kept: Sequence[Manifest], its_own: Iterable[str]) -> set[str]:
    """Return the paths among *listed* that no backup needs.

    Args:
        listed: The paths below LOG_FOLDER, listed before this run made its backup.
        kept: The backups that stay, without the one that is being made.
        its_own: The paths of its pieces.
    """
    needed = {path_of(m.log_id, piece) for m in kept for piece in m.pieces}
    return set(listed) - needed - set(its_own)
