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
        count, left = 0, room
        for segment in reversed(segments):
            left -= size_of(segment)
            if left < 0:
                break
            count += 1
        if not count:
            raise _no_room(segments[-1:], room)
        return segments[-count:]
    if not segments[0].base <= begin < segments[-1].end:
        raise UnrestorableError(
            f"--from {begin}: the tier has log offsets {segments[0].base} to {segments[-1].end}; "
            "use one in between"
        )
    wanted = [one for one in segments if one.end > begin]
    check_room(wanted, room)
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
    """Go on if there is room for *segments*.

    Raises:
        UnrestorableError: There is not.
    """
    assert all(before.end == after.base for before, after in pairwise(segments))
    if sum(map(size_of, segments)) > room:
        raise _no_room(segments, room)


def _no_room(segments: list[TierSegment], room: int) -> UnrestorableError:
    needed = sum(map(size_of, segments))
    return UnrestorableError(
        f"log offsets {segments[0].base} to {segments[-1].end} need about {needed} bytes, and the "
        f"disk has room for {max(room, 0)} below ERUCA_BROKER_DISK_HIGH_RATIO: make room, or "
        "restore less with --from"
    )
