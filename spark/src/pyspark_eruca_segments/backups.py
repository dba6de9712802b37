"""The log in a backup: the pieces that one manifest names."""

from __future__ import annotations

from eruca.cli.backups.manifests import (
    BACKUPS_FOLDER,
    InvalidManifestError,
    Manifest,
    decoded,
    name_of,
    number_of,
    path_of,
)
from eruca.exporting.errors import OptionError, SourceError
from eruca.objects.places import folder_of
from pyspark_eruca_segments.copies import LogCopy, Stretch
from pyspark_eruca_segments.objects import Objects, Source


def backup_copy(place: str, broker_name: str, number: int | None) -> LogCopy:
    """Return a broker's log in a backup repository.

    Args:
        place: The repository's folder or URL.
        broker_name: The broker.
        number: Of the backup; None: the latest.

    Raises:
        OptionError: There is no such backup.
        SourceError: Its manifest is damaged, or of a later version.
    """
    folder = folder_of(broker_name)
    with Objects.at(place, folder) as objects:
        manifest = _manifest(objects, place, broker_name, number)
    stretches: list[Stretch] = []
    before_ms: int | None = None
    for piece in manifest.pieces:
        if piece.size:
            source = Source(place, folder, path_of(manifest.log_id, piece))
            end = piece.begin + piece.size
            stretches.append(Stretch(source, piece.begin, end, before_ms, piece.stored_ms))
            before_ms = piece.stored_ms  # times never decrease in a log
    return LogCopy(manifest.broker_name, tuple(stretches))


def _manifest(objects: Objects, place: str, broker_name: str, number: int | None) -> Manifest:
    sizes = objects.sizes(BACKUPS_FOLDER)
    numbers = sorted(found for path, size in sizes.items() if size and (found := number_of(path)))
    if not numbers:
        raise OptionError(
            f"the path {place} has neither a store nor a backup of broker {broker_name}; check the"
            " option broker, and for a tier, set the option cluster"
        )
    chosen = numbers[-1] if number is None else number
    if chosen not in numbers:
        raise OptionError(
            f"option backup: broker {broker_name} has no backup {chosen} in {place}, only"
            f" {', '.join(map(str, numbers))}"
        )
    try:
        return decoded(objects.get(name_of(chosen)))
    except InvalidManifestError as error:
        raise SourceError(f"{place}: the manifest of backup {chosen}: {error}") from error
