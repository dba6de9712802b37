"""Faults of the tier's objects, as far as they are known. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Set
from typing import Literal, TypeAlias

from eruca_broker.core.tier.manifests import Manifest

Fault: TypeAlias = Literal["missing", "damaged"]


class Faults:
    """The objects that are known to be missing or damaged, by path."""

    def __init__(self) -> None:
        self.known: dict[str, Fault] = {}

    @property
    def missing_count(self) -> int:
        """The number of objects that are missing."""
        return sum(fault == "missing" for fault in self.known.values())

    @property
    def damaged_count(self) -> int:
        """The number of objects that have other bytes than were uploaded."""
        return len(self.known) - self.missing_count

    def note(self, path: str, fault: Fault) -> None:
        """Note the fault of an object."""
        self.known[path] = fault

    def clear(self, path: str) -> None:
        """Note that an object is sound."""
        self.known.pop(path, None)

    def keep(self, paths: Collection[str]) -> None:
        """Forget all objects but those of *paths*: no manifest names them any more."""
        self.known = {path: fault for path, fault in self.known.items() if path in paths}


def found_by_size(manifest: Manifest, sizes: Mapping[str, int]) -> dict[str, Fault]:
    """Return the objects of *manifest* that are missing, or have another size, by path.

    Args:
        manifest: The latest one.
        sizes: Of the objects in the store, by path.
    """
    found: dict[str, Fault] = {}
    for segment in manifest.segments:
        expected = (segment.end - segment.base, segment.side_size)
        for path, size in zip(segment.paths, expected, strict=True):
            if path not in sizes:
                found[path] = "missing"
            elif sizes[path] != size:
                found[path] = "damaged"
    return found


def sound_end(manifest: Manifest, faults: Set[str], local_min_offset: int) -> int:
    """Return the log offset before which retention may delete segments here; 0: it may not.

    A segment of which the tier lacks a sound object is kept, and all behind it: perhaps it is the
    last copy. Those that are not here any more hold up nothing.

    Args:
        manifest: The one that this broker has written, or reconciled with its log.
        faults: Paths of objects that are missing or damaged.
        local_min_offset: Where the log here begins.
    """
    for segment in manifest.segments:
        if segment.base >= local_min_offset and not faults.isdisjoint(segment.paths):
            return segment.base
    return manifest.end_offset or 0
