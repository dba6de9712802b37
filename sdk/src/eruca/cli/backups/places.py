"""Open the repository that a place names: a folder, or the URL of an object store."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from eruca.cli.backups.folders import FolderRepository
from eruca.cli.backups.object_stores import ObjectRepository
from eruca.cli.backups.repositories import Repository

_PLAIN: Final = re.compile(r"^\.|[^A-Za-z0-9._-]")
_SCHEME: Final = re.compile(r"([a-z][a-z0-9+.-]+)://")


def open_repository(place: str, broker_name: str) -> Repository:
    """Return the repository of a broker in *place*.

    Args:
        place: A folder's path, or the URL of an object store: ``s3://BUCKET/PREFIX``.
        broker_name: The broker.

    Raises:
        ValidationError: The URL is invalid, or the extra ``backup`` is not installed.
    """
    folder = folder_of(broker_name)
    match = _SCHEME.match(place)
    if match is None:
        return FolderRepository(Path(place) / folder)
    return ObjectRepository.of_url(place, folder)


def folder_of(broker_name: str) -> str:
    """Return a folder's name for a broker; different names have different folders."""
    return _PLAIN.sub(lambda found: f"={ord(found[0]):x}=", broker_name)
