"""Open the repository that a place names: a folder, or the URL of an object store."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from eruca.cli.backups.folders import FolderRepository
from eruca.cli.backups.object_stores import ObjectRepository
from eruca.cli.backups.repositories import Repository
from eruca.contract.errors import ValidationError

_PLAIN: Final = re.compile(r"^\.|[^A-Za-z0-9._-]")
_SCHEME: Final = re.compile(r"([a-z][a-z0-9+.-]+):/(/?)", re.IGNORECASE)
_NO_STORES: Final = {
    "memory": "it would be lost with this process",
    "file": "a folder is named by its path",
}
_FIX: Final = "use a folder's path, or the URL of an object store, such as s3://BUCKET/PREFIX"


def open_repository(place: str, broker_name: str) -> Repository:
    """Return the repository of a broker in *place*.

    Args:
        place: A folder's path, or the URL of an object store: ``s3://BUCKET/PREFIX``.
        broker_name: The broker.

    Raises:
        ValidationError: The place is empty, the URL is invalid or not that of an object store, or
            the extra ``backup`` is not installed.
    """
    folder = folder_of(broker_name)
    if not place:
        raise ValidationError("--repository is empty", fix=_FIX)
    match = _SCHEME.match(place)
    if match is None:
        return FolderRepository(Path(place) / folder)
    if not match[2]:  # a slip of the pen would make a folder of this name
        raise ValidationError(f"--repository {place}: expected {match[1]}://", fix=_FIX)
    if why := _NO_STORES.get(match[1].lower()):
        raise ValidationError(f"--repository {place}: not an object store: {why}", fix=_FIX)
    return ObjectRepository.of_url(place, folder)


def folder_of(broker_name: str) -> str:
    """Return a folder's name for a broker; different names have different folders."""
    return _PLAIN.sub(lambda found: f"={ord(found[0]):x}=", broker_name)
