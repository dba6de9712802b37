"""The tier's scrub: read all objects of the tier again and again, and compare their digests.

A round takes ``ERUCA_BROKER_TIER_SCRUB_HOURS``, so it reads at a steady rate. Only the writer
scrubs; replicas compare what their readers need. An object that is missing or damaged is repaired
from the segment on this broker's disk, if that is still there (:mod:`.repairs`). Else it is
reported, and stays as it is: nothing is ever deleted because of damage. The position is kept in
``tier/scrub.json``, so that a round goes on after a restart.
"""

from __future__ import annotations

import asyncio
import hashlib
from contextlib import suppress
from typing import Final

import msgspec
import structlog

from eruca.contract.errors import ErucaError
from eruca_broker.core.tier.faults import Fault
from eruca_broker.core.tier.manifests import Manifest, TierSegment
from eruca_broker.core.tier.queue_tables import InvalidHeadError, decoded
from eruca_broker.store.files.small_files import read_file, replace_files
from eruca_broker.store.tier.blobs import blobs_of, head_of
from eruca_broker.store.tier.cache import Blob
from eruca_broker.store.tiering.repairs import UnrepairableError
from eruca_broker.store.tiering.tiering import Tiering
from eruca_broker.store.tiering.uploads import answered

SCRUB_SECONDS: Final = 1.0  # between two steps
SAVE_SECONDS: Final = 60.0  # the part of a round that may be repeated
RETRY_SECONDS: Final = 60.0  # after a failure to read the tier, which says nothing of its objects
TRIES_MAX: Final = 5  # of one object, while the tier answers: the objects behind it wait, too
_NAME: Final = "scrub.json"
_SIZE_MAX: Final = 64 * 1024**2

_log = structlog.get_logger(__name__)


class _Progress(msgspec.Struct, frozen=True):
    """The state of a round."""

    log_offset: int  # of the segment with which it continues
    rounds: int
    faults: dict[str, Fault]


class TierScrub:
    """Scrubs the tier of one store.

    Args:
        tiering: The tier.
        hours: The duration of one round.

    Attributes:
        offset: Log offset of the segment whose objects are being read.
        rounds: The number of times that all objects have been read.
        repaired_count: Objects that were stored again, since the start.
    """

    def __init__(self, tiering: Tiering, *, hours: float) -> None:
        self.offset = 0
        self.rounds = 0
        self.repaired_count = 0
        self._tiering = tiering
        self._steps = hours * 3600 / SCRUB_SECONDS  # of one round
        self._credit = 0.0  # bytes that may be read
        self._pause = 0  # steps to skip
        self._segment: TierSegment | None = None  # the one that is being read
        self._head: bytes | None = None  # of its side object
        self._todo: list[Blob] = []  # of that segment; the first one is being examined
        self._unread = 0  # failed tries to read that one
        self._unrepaired = 0  # … to repair its object
        self._tried: set[str] = set()  # paths, in this segment: a second fault is not repaired
        self._steps_to_save: float | None = None  # None: the saved position is not read yet
        tiering.taking_over = self._resume

    async def step(self) -> None:
        """Read as much as fits between two steps."""
        if self._pause:
            self._pause -= 1
            return
        manifest = self._tiering.written
        if manifest is None or not manifest.segments:
            self._credit = 0.0
            return
        if self._steps_to_save is None:
            await self._resume()
            self._tiering.faults.keep(manifest.paths)
        size = sum(one.end - one.base + one.side_size for one in manifest.segments)
        self._credit += size / self._steps
        try:
            while self._credit > 0:
                self._credit -= await self._go_on(manifest)
        except (ErucaError, OSError) as error:
            _log.warning(
                "the tier's scrub waits: an object cannot be read or repaired now",
                reason=_text_of(error),
            )
            self._pause, self._credit = int(RETRY_SECONDS / SCRUB_SECONDS), 0.0
        await self._save_in_time()

    async def _go_on(self, manifest: Manifest) -> int:
        """Examine the next blob; return the bytes that were read."""
        segments = manifest.segments
        if self._segment not in segments:
            self._segment = None  # it has expired meanwhile, or was uploaded again
        if self._segment is None:
            segment = next((one for one in segments if one.end > self.offset), None)
            if segment is None:
                self.rounds, self.offset = self.rounds + 1, segments[0].base
                return max(int(self._credit), 1)  # the next round begins with the next step
            self._segment, self._head = segment, None
            self.offset, self._todo, self._tried = segment.base, [head_of(segment)], set()
            self._unread = self._unrepaired = 0
        segment, blob = self._segment, self._todo[0]
        # If this fails, all that is left stays in _todo, and this blob is read again.
        fault, data = await self._examined(blob)
        if fault is not None:
            await self._found(segment, blob.path, fault)
        elif self._head is None:
            self._todo = self._rest_of(segment, data)
        else:
            del self._todo[0]
            if blob.path not in {one.path for one in self._todo}:
                self._tiering.faults.clear(blob.path)
        self._unread = self._unrepaired = 0
        if not self._todo:
            self._segment, self.offset = None, segment.end
        return max(len(data), 1)

    def _rest_of(self, segment: TierSegment, head: bytes) -> list[Blob]:
        """Return a segment's blobs but its sound head."""
        try:
            table = decoded(head)
        except InvalidHeadError as error:
            _log.error(
                "the objects of a segment are not scrubbed: their digests cannot be read",
                object=segment.side_path,
                reason=str(error),
                fix="run the later version of the broker that has uploaded them",
            )
            return []
        self._head = head
        body = blobs_of(segment, table, 0, table.body_size, is_side=True)
        if not body:
            self._tiering.faults.clear(segment.side_path)
        return [*body, *blobs_of(segment, table, 0, segment.end - segment.base, is_side=False)]

    async def _examined(self, blob: Blob) -> tuple[Fault | None, bytes]:
        """Return what is wrong with a blob, and its bytes; read damaged ones twice.

        One that cannot be read again and again is damaged, if the tier answers otherwise.

        Raises:
            ErucaError: It cannot be read now.
            OSError: The same.
        """
        data = b""
        for _ in range(2):
            try:
                async with answered():
                    data = await self._tiering.place.read(blob.path, blob.begin, blob.end)
            except FileNotFoundError:
                return "missing", b""
            except (ErucaError, OSError):
                self._unread += 1
                if self._unread < TRIES_MAX:
                    raise
                return "damaged", b""
            if await asyncio.to_thread(_digest_of, data) == blob.digest:
                return None, data
        return "damaged", data

    async def _found(self, segment: TierSegment, path: str, fault: Fault) -> None:
        """Repair an object, or note its fault, and read no more of it in this round.

        Raises:
            ErucaError: The tier cannot be read or written now; nothing has changed.
            OSError: The same, or the disk refuses.
        """
        try:
            await self._tiering.place.check()  # an unmounted folder lacks everything
        except BaseException:
            self._unread = 0
            raise
        written = self._tiering.written
        if written is None or segment not in written.segments:
            self._todo = []  # it has expired meanwhile: its objects may be gone on purpose
            return
        self._tiering.faults.note(path, fault)
        if path not in self._tried and await self._repaired(segment, path, fault):
            self._head, self._todo = None, [head_of(segment)]  # look at it again, from there on
        else:
            self._todo = [one for one in self._todo if one.path != path]
        self._tried.add(path)

    async def _repaired(self, segment: TierSegment, path: str, fault: Fault) -> bool:
        """Repair an object; tell whether it could be.

        Raises:
            ErucaError: Not now; it should be tried again.
            OSError: The same.
        """
        try:
            await self._tiering.repair(segment, path, self._head)
        except UnrepairableError as error:
            reason = str(error)
        except (ErucaError, OSError) as error:
            self._unrepaired += 1
            if self._unrepaired < TRIES_MAX:
                raise
            reason = _text_of(error)
        else:
            self.repaired_count += 1
            _log.warning("an object of the tier is repaired", object=path, fault=fault)
            return True
        _log.error(
            "an object of the tier is missing or damaged, and cannot be repaired",
            object=path,
            fault=fault,
            reason=reason,
            fix="restore the object from a copy; a version of the bucket may have it",
        )
        return False

    # --- Progress ---------------------------------------------------------------------------------

    async def _resume(self) -> None:
        """Go on where the last process was; what it found is still reported.

        Only a writer does, and before it lets retention delete what the tier has: others do not
        learn of repairs.
        """
        if self._steps_to_save is not None:
            return
        try:
            data = await asyncio.to_thread(read_file, self._tiering.directory / _NAME, _SIZE_MAX)
            saved = msgspec.json.decode(data, type=_Progress)
        except (OSError, ValueError):
            saved = _Progress(0, 0, {})  # the first round, or one that begins again
        self._steps_to_save = SAVE_SECONDS / SCRUB_SECONDS
        self.offset, self.rounds = saved.log_offset, saved.rounds
        for path, fault in saved.faults.items():
            self._tiering.faults.note(path, fault)

    async def _save_in_time(self) -> None:
        assert self._steps_to_save is not None
        self._steps_to_save -= 1
        if self._steps_to_save <= 0:
            self._steps_to_save = SAVE_SECONDS / SCRUB_SECONDS
            progress = _Progress(self.offset, self.rounds, self._tiering.faults.known)
            data = msgspec.json.encode(progress)
            with suppress(OSError):  # a full disk is reported elsewhere
                await asyncio.to_thread(
                    replace_files, self._tiering.directory, {_NAME: data}, durably=False
                )


def _text_of(error: Exception) -> str:
    return error.detail if isinstance(error, ErucaError) else str(error)


def _digest_of(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()
