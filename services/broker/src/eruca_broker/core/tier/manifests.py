"""Manifests: each names the segments that the tier holds. Pure.

A manifest is an object that is created under the next number, on the condition that nobody has this
number. So writers take turns, and a writer that was suspended notices that it was overtaken. The
object of an earlier manifest stays for ever, empty: its number is never free again.

Invariants (:func:`faults` checks those of one manifest):

1. Segments follow each other without a gap.
2. An object that a manifest names is whole: the manifest is created after it.
3. An object that is deleted was named as condemned by a manifest before. So a writer that was
   suspended and still uses the object cannot create the next manifest.
4. The epoch of manifests never decreases. A former master does not write after a later one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import pairwise
from typing import Final

import msgspec

FORMAT: Final = 2  # of a manifest with renewed side objects; others are written as format 1
_READABLE: Final = (1, 2)
MANIFESTS: Final = "manifests"
SEGMENTS: Final = "segments"
UPLOAD_SIZE: Final = 4  # random bytes that end an object's name
DIGEST_SIZE: Final = 32  # bytes of a SHA-256
_NAME: Final = re.compile(rf"{MANIFESTS}/([0-9]{{12}})\.json")


class InvalidManifestError(ValueError):
    """A manifest cannot be read, or contradicts itself."""


class TierSegment(msgspec.Struct, frozen=True, kw_only=True):
    """A closed segment of the log, and its side object, as they are in the tier."""

    base: int  # log offset of the first byte
    end: int  # … after the last byte
    epoch: int  # of the last record; 0: without replicas
    records: int
    first_ms: int  # least store time of a record, in ms since 1970
    last_ms: int  # greatest one
    chunk_size: int  # bytes
    sha256: str  # of the SHA-256s of the segment's chunks, in hex
    head_size: int  # bytes of the side object's head
    head_sha256: str
    side_size: int  # bytes of the whole side object
    upload: str  # random: two uploads never have the same name
    side_upload: str = ""  # that of the side object, if it was renewed

    @property
    def path(self) -> str:
        """The path of the segment's object."""
        return f"{SEGMENTS}/{self.base:020d}-{self.epoch}-{self.upload}.log"

    @property
    def side_path(self) -> str:
        """The path of its side object: the entries of its consume queues."""
        return f"{SEGMENTS}/{self.base:020d}-{self.epoch}-{self.side_upload or self.upload}.queues"

    @property
    def paths(self) -> tuple[str, str]:
        """The paths of both objects."""
        return self.path, self.side_path


class ExpiredSegment(msgspec.Struct, frozen=True, kw_only=True):
    """A segment that the tier's own retention took from the readers; its objects are kept."""

    segment: TierSegment
    since_ms: int  # in ms since 1970
    is_abandoned: bool  # it is of another history: it never comes back


class OvertakenObject(msgspec.Struct, frozen=True, kw_only=True):
    """A side object that was renewed; it is kept for those who read an earlier manifest."""

    path: str
    since_ms: int  # in ms since 1970


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a log's tier."""

    format: int
    number: int  # from 1 on
    cluster: str
    broker_name: str
    log_id: str
    epoch: int  # of the master that wrote it
    written_at_ms: int
    segments: list[TierSegment]
    condemned: list[str]  # paths of objects that are deleted, or about to be
    abandoned: list[TierSegment]  # of other histories of this log; no reader gets them
    expired: list[ExpiredSegment] = []  # no reader gets them; condemned after a time
    overtaken: list[OvertakenObject] = []  # the same

    @property
    def named(self) -> list[TierSegment]:
        """All segments whose objects are kept."""
        kept = [one.segment for one in self.expired]
        return [*self.segments, *self.abandoned, *kept]

    @property
    def paths(self) -> set[str]:
        """The paths of all objects that readers may need."""
        return {path for one in self.segments for path in one.paths}

    @property
    def min_offset(self) -> int | None:
        """Log offset of the first byte in the tier; None: it is empty."""
        return self.segments[0].base if self.segments else None

    @property
    def end_offset(self) -> int | None:
        """Log offset after the last byte in the tier; None: it is empty."""
        return self.segments[-1].end if self.segments else None


def log_begin(manifest: Manifest | None, *, reached: int, local: int) -> int | None:
    """Return the log offset with which a log begins, in the tier or here; None: it is unknown.

    Args:
        manifest: The one by which readers read; None: none is known.
        reached: Log offset before which it has all that was ever in the tier.
        local: Log offset with which the log here begins.
    """
    if not local:
        return 0
    if manifest is None or local > reached:
        return None
    return local if manifest.min_offset is None else min(local, manifest.min_offset)


def name_of(number: int) -> str:
    """Return the path of a manifest."""
    return f"{MANIFESTS}/{number:012d}.json"


def number_of(path: str) -> int | None:
    """Return the number in a manifest's path; None if it is not one."""
    match = _NAME.fullmatch(path)
    return None if match is None else int(match[1])


def encoded(manifest: Manifest) -> bytes:
    """Return the bytes of a manifest."""
    assert (found := faults(manifest)) is None, found
    return msgspec.json.encode(manifest)


def format_of(segments: Iterable[TierSegment]) -> int:
    """Return the format of a manifest that names *segments*.

    An earlier version of the broker would take a renewed side object for one that nobody needs. So
    it must not read a manifest that names one.
    """
    return FORMAT if any(one.side_upload for one in segments) else 1


def decoded(data: bytes, *, number: int | None, log_id: str) -> Manifest:
    """Return the manifest with these bytes.

    Args:
        data: The object's.
        number: The one in its path; None: any.
        log_id: The log's, in whose folder it lies.

    Raises:
        InvalidManifestError: It is damaged, of a later version, or of another log.
    """
    try:
        version = msgspec.json.decode(data, type=dict).get("format")
        if version not in _READABLE:
            raise InvalidManifestError(
                f"expected format {FORMAT} or earlier, found {version}: another version of the "
                "broker wrote it"
            )
        manifest = msgspec.json.decode(data, type=Manifest)
    except msgspec.DecodeError as error:
        raise InvalidManifestError(f"it cannot be read: {error}") from error
    if manifest.log_id != log_id or number not in (None, manifest.number):
        raise InvalidManifestError(
            f"expected number {number} of log {log_id}, found number {manifest.number} of log "
            f"{manifest.log_id}"
        )
    if (found := faults(manifest)) is not None:
        raise InvalidManifestError(found)
    return manifest


def faults(manifest: Manifest) -> str | None:
    """Return why a manifest contradicts itself; None: it does not."""
    if manifest.format < format_of(manifest.named):
        return f"it has format {manifest.format}, and renewed side objects"
    for segment in manifest.named:
        if not 0 <= segment.base < segment.end or segment.chunk_size <= 0:
            return f"the segment at log offset {segment.base} has an invalid value"
    for before, after in pairwise(manifest.segments):
        if before.end != after.base:
            return f"expected a segment at log offset {before.end}, found {after.base}"
        if before.epoch > after.epoch:
            return (
                f"the segment at log offset {after.base} has an earlier epoch than the one before"
            )
    named = [path for one in manifest.named for path in one.paths]
    named += [one.path for one in manifest.overtaken]
    if len(set(named)) < len(named):
        return "it names an object twice"
    if doomed := set(named) & set(manifest.condemned):
        return f"it condemns {min(doomed)}, which it needs"
    return None
