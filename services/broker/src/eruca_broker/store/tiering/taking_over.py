"""Take over a tier: compare its latest manifest with the log here, before anything is written."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final, NamedTuple

import structlog

from eruca_broker.core.tier.faults import Fault, found_by_size
from eruca_broker.core.tier.manifests import SEGMENTS, Manifest, TierSegment
from eruca_broker.core.tier.steps import (
    check_abandonment,
    orphans,
    reconciled,
    to_compare,
    without_missing,
)
from eruca_broker.store.message_store import MessageStore
from eruca_broker.store.tier.sides import proved
from eruca_broker.store.tiering.facts import StoreFacts
from eruca_broker.store.tiering.place import TierPlace
from eruca_broker.store.tiering.uploads import equals, in_idle_time

_PERMISSION: Final = "abandon"  # a file by which an operator lets segments be abandoned, once

_log = structlog.get_logger(__name__)


class TakenOver(NamedTuple):
    """A manifest that agrees with the log here."""

    manifest: Manifest
    faults: dict[str, Fault]  # of objects whose segments are not here any more, by path
    unnamed: list[str]  # paths of objects that nobody needs
    permission: Path | None  # an operator's, to delete once the manifest is written


async def taken_over(
    manifest: Manifest, store: MessageStore, facts: StoreFacts, place: TierPlace, directory: Path
) -> TakenOver:
    """Reconcile a manifest with the log of *store*, and with the objects that are there.

    Args:
        manifest: The latest one.
        store: The store.
        facts: About it.
        place: The tier.
        directory: The store's ``tier/``.

    Raises:
        TierMismatchError: The log lacks segments, and no election explains it.
        DamagedSegmentError: A segment differs because a record of it is damaged here.
        ErucaError: The tier cannot be read now.
        OSError: The same, or the disk fails.
    """
    extent = facts.extent
    equal: TierSegment | None = None
    for segment in to_compare(manifest, extent):
        if await equals(store.log.file(segment.base), segment):
            equal = segment
            break
        # A damaged segment is not another history: only a sound one disowns the tier's.
        await in_idle_time(proved(store.log.file(segment.base).path, segment.base))
    ours = reconciled(manifest, extent, equal)
    permission = directory / _PERMISSION
    is_permitted = await asyncio.to_thread(permission.exists)
    check_abandonment(manifest, ours, facts.writer.epoch, is_permitted=is_permitted)
    if left := len(manifest.segments) - len(ours.segments):
        _log.error(
            "the tier has segments of another history of this log; they are kept, unread",
            count=left,
            log_offset=ours.end_offset or extent.min_offset,
        )
    sizes = await place.sizes(SEGMENTS)
    whole = without_missing(ours, extent, sizes)
    if len(whole.segments) < len(ours.segments):
        _log.error(
            "objects of the tier are missing; their segments are here, and are uploaded again",
            log_offset=ours.segments[len(whole.segments)].base,
        )
    unsound = found_by_size(whole, sizes)
    if unsound:
        _log.error(
            "objects of the tier are missing, and their segments are not here any more",
            count=len(unsound),
            object=min(unsound),
            fix="restore the objects from a copy; a version of the bucket may have them",
        )
    return TakenOver(whole, unsound, orphans(whole, sizes), permission if is_permitted else None)
