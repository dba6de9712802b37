"""Choose the segments of a tier from which a lost store is restored. Pure.

A restored log is a suffix of what the tier has: it ends where the tier ends, and begins with a
segment. Its beginning must not be later than the oldest message that still waits for its time or
for a decision. Retention carries such messages forward before it deletes their segments, but the
copy may have been in the part of the log that is lost. So the *latest* segments are looked at
first: their state names the waiting messages, and the choice is extended to those that the tier has
(:func:`extended`). Segments that have expired, and are still kept, count for that, too. No segment
brings back a message from before them.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

from eruca_broker.core.tier.manifests import Manifest, TierSegment
from eruca_broker.core.tier.steps import with_expired


class UnrestorableError(Exception):
    """Nothing can be restored in this way; the text says why, and what to do."""


def size_of(segment: TierSegment) -> int:
    """Return an estimate of the bytes that a segment takes on the disk, with its projections.

    A consume queue has 20 of the 28 bytes of a message in a side object, and the key index 20 for
    each key. So twice the side object is enough for messages with one or two keys.
    """
    return segment.end - segment.base + 2 * segment.side_size


def chosen(manifest: Manifest, *, begin: int | None, room: int) -> list[TierSegment]:
    """Return the segments to restore, oldest first.

    Args:
        manifest: The latest one.
        begin: A log offset from which on everything is restored; None: as much as there is room
            for, the latest first.
        room: Bytes of the disk.

    Raises:
        UnrestorableError: There is none, or no room for them.
    """
    segments = manifest.segments
    if not segments:
        raise UnrestorableError(
            f"the tier of log {manifest.log_id} has no segment: there is nothing to restore"
        )
    sizes = {one.end - one.base for one in segments}
    if len(sizes) > 1:
        raise UnrestorableError(
            f"expected segments of one size, found {sorted(sizes)}: no broker opens such a log"
        )
    if begin is None:
        fitting = _latest_that_fit(segments, room)
        if not fitting:
            raise _no_room(segments[-1:], room)
        return fitting
    if not segments[0].base <= begin < segments[-1].end:
        raise UnrestorableError(
            f"--from {begin}: the tier has log offsets {segments[0].base} to {segments[-1].end}; "
            "use one in between"
        )
    wanted = [one for one in segments if one.end > begin]
    if _size_of_all(wanted) > room:
        fitting = _latest_that_fit(segments, room)
        less = f", or restore less: --from {fitting[0].base} or later" if fitting else ""
        raise _no_room(wanted, room, less)
    return wanted


def extended(
    manifest: Manifest, segments: list[TierSegment], waiting: Iterable[int]
) -> list[TierSegment]:
    """Return *segments* and those before them that have messages that still wait.

    What is not in the tier any more is lost, however many segments are restored.

    Args:
        manifest: The latest one.
        segments: The choice, oldest first.
        waiting: Log offsets of the messages that wait.
    """
    kept = with_expired(manifest)
    begin = min([segments[0].base, *(one for one in waiting if one >= kept[0].base)])
    return [one for one in kept if one.end > begin]


def lost_of(segments: list[TierSegment], waiting: Iterable[int]) -> int:
    """Return how many messages that wait, by their log offsets, are not in *segments*."""
    return sum(offset < segments[0].base for offset in waiting)


def check_room(segments: list[TierSegment], room: int) -> None:
    """Go on if there is room for *segments*, of which messages that wait need the first one.

    Raises:
        UnrestorableError: There is not.
    """
    assert all(before.end == after.base for before, after in pairwise(segments))
    if _size_of_all(segments) > room:
        waiting = "; messages that wait for their time or for a decision need all of these offsets"
        raise _no_room(segments, room, waiting)


def _latest_that_fit(segments: list[TierSegment], room: int) -> list[TierSegment]:
    """Return as many of the latest segments as there is room for."""
    fitting: list[TierSegment] = []
    for segment in reversed(segments):
        room -= size_of(segment)
        if room < 0:
            break
        fitting.insert(0, segment)
    return fitting


def _size_of_all(segments: list[TierSegment]) -> int:
    return sum(map(size_of, segments))


def _no_room(segments: list[TierSegment], room: int, more: str = "") -> UnrestorableError:
    needed, free = _size_of_all(segments), max(room, 0)
    return UnrestorableError(
        f"log offsets {segments[0].base} to {segments[-1].end} need about {needed} bytes on the "
        f"store's disk, and it may take {free} more: the setting ERUCA_BROKER_DISK_HIGH_RATIO says "
        "how full the disk may be, and a broker deletes segments of a fuller one. To fix it: free "
        f"{needed - free} bytes, or raise the setting{more}"
    )
