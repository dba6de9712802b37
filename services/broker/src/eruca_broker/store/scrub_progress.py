"""The scrub's progress, in ``config/scrubProgress.json``, so that a restart continues there.

Otherwise a broker that is restarted more often than a round takes would never verify the end of its
log. Nothing depends on the file: without it a round begins again. So it is not flushed, and its
consistency with the log is checked when it is used.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from eruca_broker.store.config.config_snapshots import DIRECTORY
from eruca_broker.store.files.small_files import read_file, replace_files

NAME: Final = "scrubProgress.json"
_SIZE_MAX: Final = 4_096  # bytes; a few numbers


class Progress(msgspec.Struct, frozen=True):
    """The state of a round."""

    log_offset: int  # at which it continues
    found: int = 0  # damaged records, so far
    found_before: int = 0  # … in the previous round


def write_progress(directory: Path, progress: Progress) -> None:
    """Write it for the store in *directory*.

    Raises:
        OSError: It could not be written; its predecessor remains.
    """
    replace_files(directory / DIRECTORY, {NAME: msgspec.json.encode(progress)}, durably=False)


def delete_progress(directory: Path) -> None:
    """Delete it: its offset, and the damage that it counts, may be in no log any more.

    Raises:
        OSError: The disk refuses.
    """
    (directory / DIRECTORY / NAME).unlink(missing_ok=True)


def read_progress(directory: Path) -> Progress | None:
    """Read the progress for the store in *directory*; return None if there is none."""
    try:
        content = read_file(directory / DIRECTORY / NAME, _SIZE_MAX)
        return msgspec.json.decode(content, type=Progress)
    except (OSError, ValueError, RecursionError):
        return None
