"""The log in a broker's tier: the segments that the latest manifest names.

The broker writes manifests (``eruca_broker.core.tier.manifests``). Here only those fields are read
that say which object has which part of the log. Side objects are not needed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import pairwise
from typing import Final

import msgspec

from eruca.exporting.errors import OptionError, SourceError
from eruca.objects.places import folder_of
from pyspark_eruca_segments.copies import LogCopy, Stretch
from pyspark_eruca_segments.objects import Objects, Source

_READABLE: Final = (1, 2)  # in format 2 a side object may have a name of its own
_MANIFEST: Final = re.compile(r"([^/]+)/manifests/([0-9]{12})\.json")


class _Segment(msgspec.Struct, frozen=True):
    base: int
    end: int
    epoch: int
    first_ms: int
    last_ms: int
    upload: str

    @property
    def path(self) -> str:
        return f"segments/{self.base:020d}-{self.epoch}-{self.upload}.log"


class _Manifest(msgspec.Struct, frozen=True):
    format: int
    number: int
    broker_name: str
    log_id: str
    segments: list[_Segment]


def tier_copy(place: str, cluster: str, broker_name: str, log_id: str | None) -> LogCopy:
    """Return a broker's log in a tier.

    Args:
        place: The tier's folder or URL.
        cluster: The broker's cluster.
        broker_name: The broker.
        log_id: Of the log; None: the only one.

    Raises:
        OptionError: There is no such tier, or more than one.
        SourceError: Its manifest is damaged, or of a later version.
    """
    folder = f"{folder_of(cluster)}/{folder_of(broker_name)}"
    with Objects.at(place, folder) as objects:
        latest = _latest(objects.sizes("").items())
        if not latest:
            raise OptionError(
                f"the path {place} has no tier of broker {broker_name} in cluster {cluster}; check"
                " the options cluster and broker, or remove cluster to read a backup"
            )
        if log_id is None and len(latest) > 1:
            raise OptionError(
                f"broker {broker_name} has had several logs in {place}: name one in the option"
                f" logId, of {', '.join(sorted(latest))}"
            )
        chosen = next(iter(latest)) if log_id is None else log_id
        if chosen not in latest:
            raise OptionError(
                f"option logId: {place} has no log {chosen} of broker {broker_name}, only"
                f" {', '.join(sorted(latest))}"
            )
        path = f"{chosen}/manifests/{latest[chosen]:012d}.json"
        manifest = _decoded(objects.get(path), f"{place}/{folder}/{path}", chosen)
    return LogCopy(
        manifest.broker_name,
        tuple(
            Stretch(
                Source(place, f"{folder}/{chosen}", one.path),
                *(one.base, one.end, one.first_ms, one.last_ms),
            )
            for one in manifest.segments
        ),
    )


def _latest(sizes: Iterable[tuple[str, int]]) -> dict[str, int]:
    """Return the highest number of a manifest that is not empty, by log."""
    latest: dict[str, int] = {}
    for path, size in sizes:
        match = _MANIFEST.fullmatch(path)
        if match is not None and size:
            latest[match[1]] = max(latest.get(match[1], 0), int(match[2]))
    return latest


def _decoded(data: bytes, name: str, log_id: str) -> _Manifest:
    try:
        version = msgspec.json.decode(data, type=dict).get("format")
        if version not in _READABLE:
            raise SourceError(
                f"{name}: expected format {_READABLE[-1]} or earlier, found {version}: another"
                " version of the broker wrote it; install its version of eruca-spark"
            )
        manifest = msgspec.json.decode(data, type=_Manifest)
    except msgspec.DecodeError as error:
        raise SourceError(f"{name} cannot be read: {error}") from error
    gaps = any(before.end != after.base for before, after in pairwise(manifest.segments))
    if manifest.log_id != log_id or gaps:
        raise SourceError(f"{name} is not the manifest of log {log_id}, or it is damaged")
    return manifest
