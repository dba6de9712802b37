"""How far the scrub has come: ``config/scrubProgress.json``, so that a start goes on from there.

Else a broker that is restarted more often than a round takes would never prove the end of its log.
Nothing depends on the file: without it a round begins anew, so it is not flushed, and whether it
still fits the log is seen when it is used.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from eruca_broker.store.config.config_snapshots import DIRECTORY

NAME: Final = "scrubProgress.json"


class Progress(msgspec.Struct, frozen=True):
    """Where a round stands."""

    log_offset: int  # where it goes on
    found: int = 0  # damaged records, so far
    found_before: int = 0  # … in the round before


def write_progress(directory: Path, progress: Progress) -> None:
    """Write it for the store in *directory*.

    Raises:
        OSError: It could not be written; its predecessor stands.
    """
    path = directory / DIRECTORY / NAME
    path.parent.mkdir(exist_ok=True)
    temporary = path.with_suffix(".json.new")
    temporary.write_bytes(msgspec.json.encode(progress))
    temporary.replace(path)


def read_progress(directory: Path) -> Progress | None:
    """Return what was written for the store in *directory*; None where nothing can be read."""
    try:
        return msgspec.json.decode((directory / DIRECTORY / NAME).read_bytes(), type=Progress)
    except (OSError, msgspec.DecodeError):
        return None
