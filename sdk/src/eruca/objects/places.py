"""Open the repository that a place names: a folder, or the URL of an object store."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from eruca.contract.errors import ValidationError
from eruca.objects.folders import FolderRepository
from eruca.objects.object_stores import INSTALLATION, ObjectRepository
from eruca.objects.repositories import Repository

_PLAIN: Final = re.compile(r"^\.|[^A-Za-z0-9._-]")
_SCHEME: Final = re.compile(r"([a-z][a-z0-9+.-]+):/(/?)", re.IGNORECASE)
_NO_STORES: Final = {
    "memory": "it would be lost with this process",
    "file": "a folder is named by its path",
}
_FIX: Final = "use a folder's path, or the URL of an object store, such as s3://BUCKET/PREFIX"


def open_repository(
    place: str, folder: str, *, named: str = "--repository", installation: str = INSTALLATION
) -> Repository:
    """Return the repository in a folder of *place*.

    Args:
        place: A folder's path, or the URL of an object store: ``s3://BUCKET/PREFIX``.
        folder: Relative to it, with ``/`` between its parts.
        named: The option or setting that has the place, for errors.
        installation: The command that installs obstore, for errors.

    Raises:
        ValidationError: The place is empty, the URL is invalid or not that of an object store, or
            obstore is not installed.
    """
    if not place:
        raise ValidationError(f"{named} is empty", fix=_FIX)
    match = _SCHEME.match(place)
    if match is None:
        return FolderRepository(Path(place) / folder)
    if not match[2]:  # a slip of the pen would make a folder of this name
        raise ValidationError(f"{named} {place}: expected {match[1]}://", fix=_FIX)
    if why := _NO_STORES.get(match[1].lower()):
        raise ValidationError(f"{named} {place}: not an object store: {why}", fix=_FIX)
    try:
        return ObjectRepository.of_url(place, folder, installation)
    except ValidationError as error:
        raise ValidationError(f"{named} {error.detail}", fix=error.fix or _FIX) from error


def folder_of(broker_name: str) -> str:
    """Return a folder's name for a broker; different names have different folders."""
    return _PLAIN.sub(lambda found: f"={ord(found[0]):x}=", broker_name)
