"""The files that a report writes: all of them in a directory, or one that ``--out`` names."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

_NOT_WRITTEN: Final = frozenset(
    {".csv", ".htm", ".jpeg", ".jpg", ".json", ".parquet", ".pdf", ".svg", ".txt"}
)
_HELP: Final = "give a directory, or a file that ends in .html or .png"


class TargetError(ValueError):
    """A report cannot be written to a path."""


@dataclass(frozen=True, slots=True)
class Targets:
    """The paths to write; None: not wanted."""

    directory: Path | None = None  # for the tables, as Parquet
    picture: Path | None = None
    page: Path | None = None

    @property
    def parent(self) -> Path:
        """The directory that must exist."""
        paths = (self.directory, *(path and path.parent for path in (self.picture, self.page)))
        return next(path for path in paths if path is not None)


def targets_of(out: Path, name: str) -> Targets:
    """Return the files of the report *name* for FILE.html, FILE.png, or a directory (*out*).

    Raises:
        TargetError: The path is a file of another kind.
    """
    suffix = out.suffix.lower()
    if out.is_dir():
        pass
    elif suffix == ".html":
        return Targets(page=out)
    elif suffix == ".png":
        return Targets(picture=out)
    elif out.exists():
        raise TargetError(f"{out} is a file; {_HELP}")
    elif suffix in _NOT_WRITTEN:
        raise TargetError(f"{out}: reports are not written as {suffix}; {_HELP}")
    return Targets(out, out / f"{name}.png", out / f"{name}.html")
