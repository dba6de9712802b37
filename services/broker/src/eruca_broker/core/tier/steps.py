"""The steps of the tier's writer, which is the broker group's master. Pure.

The life of a segment:

    open ──full──► closed ──confirmed, flushed──► uploading ──objects whole──► uploaded
      uploaded ──manifest created──► in the tier ──retention──► only in the tier
      only in the tier ──too old──► expired ──24 h──► condemned ──deleted──► gone

A writer loads the latest manifest, and *reconciles* it with its log before anything else. What the
manifest has and the log does not have is of another history: the log was truncated by an unclean
election, or restored from an older backup. Such segments are abandoned: they stay in the store,
and no reader gets them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import takewhile
from math import ceil
from typing import Final, NamedTuple

from msgspec.structs import replace

from eruca_broker.core.tier.manifests import (
    ExpiredSegment,
    Manifest,
    OvertakenObject,
    TierSegment,
    format_of,
)

EXPIRED_PER_HOUR_MIN: Final = 10  # however few segments the tier has
_MS_PER_HOUR: Final = 3_600_000
GRACE_MS: Final = 24 * _MS_PER_HOUR  # in which a wrong clock is noticed, and set right


class FencedError(Exception):
    """A later master has written the manifest: this broker is not the writer any more."""


class TierMismatchError(Exception):
    """The tier and this store do not belong together: an operator must look at both."""


class LogExtent(NamedTuple):
    """The part of the log that is here."""

    min_offset: int  # where the first segment begins
    end_offset: int  # after the last record that is written
    safe_offset: int  # everything before it is confirmed, and flushed to the disk
    segment_bytes: int


class Writer(NamedTuple):
    """The master that writes manifests."""

    cluster: str
    broker_name: str
    log_id: str
    epoch: int  # 0: without replicas


def first_manifest(writer: Writer) -> Manifest:
    """Return the state before the first manifest; it has number 0, and is never written."""
    return Manifest(
        format=format_of([]),
        number=0,
        cluster=writer.cluster,
        broker_name=writer.broker_name,
        log_id=writer.log_id,
        epoch=writer.epoch,
        written_at_ms=0,
        segments=[],
        condemned=[],
        abandoned=[],
    )


def check_fence(manifest: Manifest, epoch: int) -> None:
    """Go on if the master of *epoch* may write after *manifest*.

    Raises:
        FencedError: It may not.
    """
    if manifest.epoch > epoch:
        raise FencedError(
            f"the manifest is of epoch {manifest.epoch}, and this broker's epoch is {epoch}"
        )


def check_place(latest: int, known: int) -> None:
    """Go on if the latest manifest's number may follow what this store has seen.

    Args:
        latest: The number of the latest manifest that is found from *known* on; 0: none.
        known: The highest number that this store has seen.

    Raises:
        TierMismatchError: Manifests never disappear, so this is not the place of before.
    """
    if latest < known:
        raise TierMismatchError(
            f"expected the tier's manifest {known}, which was known here, or a later one, found "
            "none: mount the tier's place, or correct ERUCA_BROKER_TIER_URL; if the place was "
            "replaced on purpose, stop the broker, delete tier/manifest.json of its store, and "
            "start it again"
        )


def check_abandonment(
    manifest: Manifest, ours: Manifest, epoch: int, *, is_permitted: bool
) -> None:
    """Go on if what *ours* abandons of *manifest* has a known reason.

    Args:
        manifest: The latest one.
        ours: The same, reconciled with the log.
        epoch: Of this master. An election that lost messages has raised it.
        is_permitted: Whether an operator has permitted it.

    Raises:
        TierMismatchError: No election explains that the log lacks these segments.
    """
    count = len(ours.abandoned) - len(manifest.abandoned)
    if count and manifest.epoch == epoch and not is_permitted:
        raise TierMismatchError(
            f"the tier has {count} segments that this log lacks, and no election explains it: stop "
            "the other broker if one uses this place, too; if this store is an older copy, or its "
            "retention has deleted segments without the tier, create the file tier/abandon in the "
            "store, and the tier goes on without these segments"
        )


def to_compare(manifest: Manifest, log: LogExtent) -> list[TierSegment]:
    """Return the segments to compare with the log, latest first, until one is equal.

    A log changes only at its end: if one is equal, all before it are. Those that are not here any
    more are older than everything here, so they cannot have been truncated.
    """
    here = [one for one in manifest.segments if log.min_offset <= one.base]
    # A new master does not know yet what its predecessor confirmed, so the log's end counts here.
    return [one for one in reversed(here) if one.end <= log.end_offset]


def reconciled(manifest: Manifest, log: LogExtent, equal: TierSegment | None) -> Manifest:
    """Return *manifest* without what is of another history than the log's.

    Args:
        manifest: The latest one.
        log: The log.
        equal: The first of :func:`to_compare` that equals the log; None: none does.
    """
    end = log.min_offset if equal is None else equal.end
    kept = [one for one in manifest.segments if one.end <= end]
    if kept and kept[-1].end < log.min_offset:
        kept = []  # retention has deleted what should follow, while there was no tier
    others = [one for one in manifest.segments if one not in kept]
    return replace(manifest, segments=kept, abandoned=[*manifest.abandoned, *others])


def is_whole(segment: TierSegment, sizes: Mapping[str, int]) -> bool:
    """Tell whether both objects of a segment have their sizes.

    Args:
        segment: The segment.
        sizes: Of the objects in the store, by path.
    """
    whole = segment.end - segment.base, segment.side_size
    return tuple(sizes.get(path) for path in segment.paths) == whole


def without_missing(manifest: Manifest, log: LogExtent, sizes: Mapping[str, int]) -> Manifest:
    """Return *manifest* without the segments to upload again, because an object is missing.

    These are the first one that lacks an object and is still here, and all behind it.

    Args:
        manifest: The latest one, reconciled.
        log: The log.
        sizes: Of the objects in the store, by path.
    """
    for place, segment in enumerate(manifest.segments):
        if segment.base >= log.min_offset and not is_whole(segment, sizes):
            return replace(manifest, segments=manifest.segments[:place])
    return manifest


def next_base(manifest: Manifest, log: LogExtent) -> int | None:
    """Return the log offset of the next segment to upload; None: it is not closed yet."""
    base = manifest.end_offset
    if base is None:
        base = log.min_offset
    assert base >= log.min_offset, "reconciled: the tier reaches up to the log here"
    return base if base + log.segment_bytes <= log.safe_offset else None


def added(manifest: Manifest, segment: TierSegment) -> Manifest:
    """Return *manifest* with a segment whose objects are whole."""
    assert manifest.end_offset in (None, segment.base), "a gap in the tier"
    return replace(manifest, segments=[*manifest.segments, segment])


def renewed(
    manifest: Manifest, segment: TierSegment, found: TierSegment, *, now_ms: int
) -> Manifest:
    """Return *manifest* with another side object of a segment; the earlier one is overtaken.

    A replica that copies the log, and a restore, read one manifest for hours.

    Args:
        manifest: The latest one.
        segment: The segment, as it names it.
        found: The same, with the side object that is stored.
        now_ms: In ms since 1970.
    """
    assert segment in manifest.segments, "it is named"
    assert found.path == segment.path, "only the side object is another one"
    assert found.side_path != segment.side_path, "readers may still need the earlier one"
    return replace(
        manifest,
        segments=[found if one == segment else one for one in manifest.segments],
        overtaken=[
            *manifest.overtaken,
            OvertakenObject(path=segment.side_path, since_ms=now_ms),
        ],
    )


def orphans(manifest: Manifest, listed: Collection[str]) -> list[str]:
    """Return the paths among *listed* that no manifest needs: of killed uploads, or condemned."""
    overtaken = {one.path for one in manifest.overtaken}
    needed = {path for one in manifest.named for path in one.paths} | overtaken
    return sorted(set(listed) - needed)


def retained(
    manifest: Manifest,
    *,
    keep_hours: float,
    now_ms: int,
    local_min_offset: int,
    grace_ms: int = GRACE_MS,
) -> Manifest:
    """Return *manifest* after the tier's own retention; the same object if nothing is due.

    Segments that are too old are *expired*: no reader gets them, and their objects are kept for a
    time. Within it they come back if they are not too old any more: the clock was wrong, or
    *keep_hours* was raised. After it they are condemned, and overtaken side objects as well.

    Args:
        manifest: The latest one.
        keep_hours: Since a segment's last record was stored; 0: for ever.
        now_ms: In ms since 1970.
        local_min_offset: Only what the broker no longer has expires.
        grace_ms: The time for which expired objects are kept.
    """
    before = now_ms - int(keep_hours * _MS_PER_HOUR) if keep_hours else None
    segments, waiting = _returned(manifest, before)
    doomed = [one for one in waiting if one.since_ms + grace_ms <= now_ms]
    overtaken = [one for one in manifest.overtaken if one.since_ms + grace_ms > now_ms]
    paths = [path for one in doomed for path in one.segment.paths]
    paths += [one.path for one in manifest.overtaken if one not in overtaken]
    waiting = [one for one in waiting if one not in doomed]
    count, old = 0, list[TierSegment]()
    if before is not None:
        count = min(len(segments) - 1, _allowance(waiting, len(segments), keep_hours, now_ms))
        count = sum(
            1
            for _ in takewhile(
                lambda one: one.last_ms < before and one.end <= local_min_offset,
                segments[: max(count, 0)],
            )
        )
        old = [one for one in manifest.abandoned if one.last_ms < before]
    if not count and not old and not paths and len(segments) == len(manifest.segments):
        return manifest
    gone = [
        ExpiredSegment(segment=one, since_ms=now_ms, is_abandoned=is_abandoned)
        for some, is_abandoned in ((old, True), (segments[:count], False))
        for one in some
    ]
    return replace(
        manifest,
        segments=segments[count:],
        abandoned=[one for one in manifest.abandoned if one not in old],
        expired=[*waiting, *gone],
        overtaken=overtaken,
        condemned=[*manifest.condemned, *paths],
    )


def with_expired(manifest: Manifest) -> list[TierSegment]:
    """Return the readers' segments, and before them the expired ones that they continue."""
    return _returned(manifest, None)[0]


def _returned(
    manifest: Manifest, before: int | None
) -> tuple[list[TierSegment], list[ExpiredSegment]]:
    """Return the segments with those that expired too early, and the other expired ones."""
    segments, waiting = [*manifest.segments], [*manifest.expired]
    for one in sorted(manifest.expired, key=lambda one: one.segment.base, reverse=True):
        segment = one.segment
        if (
            segments
            and not one.is_abandoned
            and segment.end == segments[0].base
            and segment.epoch <= segments[0].epoch
            and (before is None or segment.last_ms >= before)
        ):
            segments.insert(0, segment)
            waiting.remove(one)
    return segments, waiting


def _allowance(
    waiting: Sequence[ExpiredSegment], count: int, keep_hours: float, now_ms: int
) -> int:
    """Return how many segments may expire now: a clock that jumps shall not take everything.

    Once an hour some expire: 10, or twice as many as are written in an hour on average.
    """
    if any(0 <= now_ms - one.since_ms < _MS_PER_HOUR for one in waiting):
        return 0
    return max(EXPIRED_PER_HOUR_MIN, ceil(2 * count / keep_hours))


def following(
    manifest: Manifest, writer: Writer, *, now_ms: int, condemned: Sequence[str] = ()
) -> Manifest:
    """Return the manifest to create next.

    Args:
        manifest: The latest one, with its changes.
        writer: Writes it.
        now_ms: In ms since 1970.
        condemned: Paths of further objects that nobody needs.
    """
    check_fence(manifest, writer.epoch)
    return replace(
        manifest,
        format=format_of(manifest.named),
        number=manifest.number + 1,
        epoch=writer.epoch,
        written_at_ms=now_ms,
        condemned=sorted({*manifest.condemned, *condemned}),
    )


def purged(manifest: Manifest, deleted: Collection[str]) -> Manifest:
    """Return *manifest* without the condemned objects that are deleted; for the next one."""
    return replace(manifest, condemned=[path for path in manifest.condemned if path not in deleted])
