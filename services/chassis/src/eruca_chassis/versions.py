"""The version of a service: the metadata of a package is a file, which is read once."""

from __future__ import annotations

from functools import cache
from importlib.metadata import version


@cache
def version_of(package: str) -> str:
    """Return the version of an installed package.

    Raises:
        PackageNotFoundError: It is not installed.
    """
    return version(package)
