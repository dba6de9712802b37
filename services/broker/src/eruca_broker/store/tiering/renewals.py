"""Renew side objects of earlier formats, so that all of the tier can be searched.

An earlier version of the broker has uploaded them without the messages' keys, or has taken the
times of a segment's first and last record for the least and the greatest one. A new side object is
built from the segment's records: from the file on this broker's disk, or from the tier. It gets a
name of its own, and the next manifest names it in place of the earlier one.

The queues of the new one are those of the earlier one, also of topics that have been deleted since.
Anything else is left as it is: readers name the segments that they cannot search.

Earlier versions read no manifest that names a renewed object. So nothing is renewed unless the
setting says so, or a manifest names one already: an upgrade replaces one broker after the other,
and may be taken back.

Nothing is remembered but the manifest. A killed renewal is begun again; what it has stored has no
name in a manifest, and is deleted by the next writer. Segments are renewed one by one. An upload
comes first, and one that becomes due meanwhile waits for the renewal in progress.

A failure of one segment leaves that segment as it is. A failure of the tier or the disk ends all
renewals for a time: each of them fetches a segment, and would throw it away.
"""

from __future__ import annotations

import hashlib
import secrets
import shutil
from collections.abc import Callable
from math import inf
from pathlib import Path
from typing import Final, NamedTuple

import structlog
from msgspec.structs import replace

from eruca.contract.errors import ErucaError, UnavailableError
from eruca_broker.core.tier import queue_tables
from eruca_broker.core.tier.manifests import FORMAT as RENEWED_FORMAT
from eruca_broker.core.tier.manifests import UPLOAD_SIZE, Manifest, TierSegment
from eruca_broker.core.tier.queue_tables import InvalidHeadError, QueueTable, decoded
from eruca_broker.store.reading.readable_log import LogFile
from eruca_broker.store.tier.blobs import head_of
from eruca_broker.store.tier.sides import DamagedSegmentError, Side, remove, side_of
from eruca_broker.store.tiering.fetching import fetch_segment, verified
from eruca_broker.store.tiering.place import TierPlace
from eruca_broker.store.tiering.uploads import answered, in_idle_time, put_object
from eruca_chassis.finishing import finished_in_thread

HEADS_PER_STEP: Final = 16  # that one step looks at
PAUSE_SECONDS: Final = 60.0  # after a failure of the tier; doubles with each consecutive one
RETRY_SECONDS: Final = 3_600.0  # at most; and until a segment is looked at again that failed
_ROOM_NAME: Final = "segment.unfinished"
_PROBE: Final = b"a side object is stored here soon"

_log = structlog.get_logger(__name__)


class UnrenewableError(Exception):
    """A side object stays as it is; the text says why."""


class Due(NamedTuple):
    """A segment whose side object has an earlier format."""

    segment: TierSegment
    table: QueueTable


class Renewals:
    """Renews the side objects of one tier.

    Args:
        place: The tier.
        directory: The store's ``tier/``.
        local: Returns a segment's file on this broker's disk; None: it is not here.
        now: The time, monotonic.
        high_ratio: The used part of the disk, at most, with the segment that is fetched.
        rate_max: Bytes a second, of what is fetched and of what is stored; 0: no limit.
        is_wanted: Whether no earlier version needs to read the tier any more.

    Attributes:
        count: Side objects that were renewed, since the start.
    """

    def __init__(
        self,
        place: TierPlace,
        directory: Path,
        *,
        local: Callable[[TierSegment], LogFile | None],
        now: Callable[[], float],
        high_ratio: float,
        rate_max: int,
        is_wanted: bool,
    ) -> None:
        self.count = 0
        self._is_wanted = is_wanted
        self._is_held_off = False  # something is due, and not wanted
        self._place = place
        self._local = local
        self._now = now
        self._high_ratio = high_ratio
        self._rate_max = rate_max
        self._file = directory / _ROOM_NAME
        self._side = directory / "side.unfinished"
        self._failure: UnavailableError | None = None  # of the tier, or the disk, at the last try
        self._failures_in_a_row = 0
        self._pause_until = -inf
        self._seen: dict[str, float] = {}  # times until which side objects need no look, by path

    def clear(self) -> None:
        """Delete what a killed renewal has left."""
        remove(self._file)
        remove(self._side)

    async def due(self, manifest: Manifest) -> Due | None:
        """Return the first segment that is found to be due; look at some heads at most.

        Return None for all if renewals are not wanted, and earlier versions can read the manifest.

        Raises:
            UnavailableError: The tier or the disk failed a short time ago, or fails now.
        """
        is_wanted = self._is_wanted or manifest.format == RENEWED_FORMAT
        if self._is_held_off and not is_wanted:
            return None
        known = {one.side_path for one in manifest.segments}
        self._seen = {path: until for path, until in self._seen.items() if path in known}
        looks, now = 0, self._now()
        if self._failure is not None and now < self._pause_until:
            raise UnavailableError(self._failure.detail)
        for segment in manifest.segments:
            if self._seen.get(segment.side_path, -inf) > now:
                continue
            if looks == HEADS_PER_STEP:
                break
            looks += 1
            try:
                blob = head_of(segment)
                table = decoded(
                    await verified(self._place, blob.path, blob.begin, blob.end, blob.digest)
                )
            except (DamagedSegmentError, InvalidHeadError) as error:
                self._leave(segment, error)  # the scrub reports and repairs it
                continue
            except (ErucaError, OSError) as error:
                raise self._failed(error) from error
            if table.head.format < queue_tables.FORMAT:
                if is_wanted:
                    return Due(segment, table)
                self._is_held_off = True
                _log.info(
                    "an earlier version has uploaded segments that look-ups by key may skip; once "
                    "none runs in this group, set ERUCA_BROKER_TIER_RENEWAL=true",
                    object=segment.side_path,
                )
                return None
            self._seen[segment.side_path] = inf
        return None

    async def renewed(self, due: Due) -> TierSegment:
        """Store a new side object; return the segment with it, for the next manifest.

        Raises:
            UnrenewableError: It cannot be built now; nothing is stored.
            UnavailableError: The tier cannot be read or written now, or the disk refuses. An object
                may be left, which nobody names.
        """
        try:
            found = await self._renewed(due)
        except DamagedSegmentError as error:
            raise UnrenewableError(str(error)) from error
        except (ErucaError, OSError) as error:
            raise self._failed(error) from error
        self._failure, self._failures_in_a_row = None, 0
        return found

    async def _renewed(self, due: Due) -> TierSegment:
        segment, name = due.segment, secrets.token_hex(UPLOAD_SIZE)
        if self._failures_in_a_row:
            # A small object, which is replaced, tells whether it is worth fetching a segment.
            path = self._place.path(replace(segment, side_upload=name).side_path)
            async with answered():
                await self._place.repository.put(path, _PROBE)
        try:
            side = await self._built(due)
            found = replace(
                segment,
                first_ms=side.first_ms,
                last_ms=side.last_ms,
                head_size=len(side.head),
                head_sha256=hashlib.sha256(side.head).hexdigest(),
                side_size=len(side.head) + side.body_size,
                side_upload=name,
            )
            await put_object(
                self._place.repository,
                self._place.path(found.side_path),
                side.body_path,
                decoded(side.head).head.side_digests,
                first=side.head,
                chunk_size=segment.chunk_size,
                rate_max=self._rate_max,
            )
        finally:
            await finished_in_thread(self.clear)
        return found

    def _failed(self, error: ErucaError | OSError) -> UnavailableError:
        """Pause all renewals after a failure of the tier, or of the disk; return it."""
        pause = min(PAUSE_SECONDS * 2**self._failures_in_a_row, RETRY_SECONDS)
        self._pause_until = self._now() + pause
        self._failures_in_a_row = min(self._failures_in_a_row + 1, 16)
        self._failure = UnavailableError(
            f"side objects of an earlier format cannot be renewed: {_text_of(error)}"
        )
        return self._failure

    def leave(self, due: Due, error: UnrenewableError) -> None:
        """Leave a segment as it is, for a time."""
        self._leave(due.segment, error)

    def _leave(self, segment: TierSegment, error: Exception) -> None:
        self._seen[segment.side_path] = self._now() + RETRY_SECONDS
        _log.warning(
            "a side object of an earlier format is not renewed now: look-ups by key may skip it",
            object=segment.side_path,
            reason=_text_of(error),
            retry_seconds=RETRY_SECONDS,
        )

    async def _built(self, due: Due) -> Side:
        file = self._local(due.segment)
        if file is not None:
            try:
                return await self._built_from(file.path, due)
            except (OSError, UnrenewableError) as error:
                _log.info("a segment here is not that of the tier", reason=str(error))
        segment, digests = due.segment, due.table.head.segment_digests
        size = segment.end - segment.base + segment.side_size
        usage = await finished_in_thread(lambda: shutil.disk_usage(self._file.parent))
        if usage.used + size > usage.total * self._high_ratio:
            raise UnrenewableError(
                f"the disk has no room for {size} bytes below {self._high_ratio:.0%}: the segment "
                "must be fetched"
            )

        async def read(path: str, begin: int, end: int, digest: bytes) -> bytes:
            return await verified(self._place, path, begin, end, digest)

        try:
            await fetch_segment(
                read, segment, digests, self._file, fetches=1, rate_max=self._rate_max
            )
            return await self._built_from(self._file, due)
        except DamagedSegmentError as error:
            raise UnrenewableError(str(error)) from error

    async def _built_from(self, path: Path, due: Due) -> Side:
        """Return a side object with the queues of the earlier one, built from a segment's file."""
        segment, head = due.segment, due.table.head
        carried = {key: run for key, run in due.table.last_runs().items() if not run.messages}
        made: list[Side] = []
        await in_idle_time(
            side_of(
                path,
                segment.base,
                self._side,
                before=carried,
                is_current=lambda *_: True,
                chunk_size=segment.chunk_size,
                done=made.append,
            )
        )
        [side] = made
        found = decoded(side.head).head
        if side.sha256 != segment.sha256:
            raise UnrenewableError("its bytes are not those that were uploaded")
        if (found.topics, found.runs) != (head.topics, head.runs):
            raise UnrenewableError("an earlier version of the broker has seen other queues in it")
        return side


def _text_of(error: Exception) -> str:
    return error.detail if isinstance(error, ErucaError) else str(error)
