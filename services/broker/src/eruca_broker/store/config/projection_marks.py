"""Content of the projections' files at the last checkpoint: ``config/projectionMarks.json``.

RocketMQ's format, which projections use, has no checksums, and after a kill the files were not
closed. So each checkpoint records for each queue, and for each file of the key index, its end and
the CRC-32 up to there. The next start opens none of the queues' files: it takes their content from
here, and each file is verified on its first read. A file that differs is rebuilt from the log.

Crash rule: the marks are written after the files that they describe have been flushed, and before
the checkpoint. Files only grow, so marks stay true for their beginnings. If a recovery truncates
the files, or RocketMQ has used the store, the marks are deleted first.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec
import structlog

from eruca_broker.store.config.checked_json import read_checked, write_checked
from eruca_broker.store.config.config_snapshots import DIRECTORY
from eruca_broker.store.index.index_file import IndexMark
from eruca_broker.store.queues.consume_queue import QueueMark
from eruca_chassis.files.directories import sync_directory

NAME: Final = "projectionMarks.json"

logger = structlog.get_logger(__name__)


class Marks(msgspec.Struct, frozen=True):
    """The marks of every file of every projection."""

    log_offset: int  # up to which the projections are complete
    queues: list[QueueMark]
    index: dict[str, IndexMark]  # by file name


def write_marks(directory: Path, marks: Marks) -> None:
    """Replace the marks of the store in *directory*, durably.

    Raises:
        OSError: They could not be written; the previous ones remain.
    """
    write_checked(directory, NAME, marks)


def read_marks(directory: Path) -> Marks | None:
    """Return the marks; None if there are no valid ones. Damaged ones are logged."""
    path = directory / DIRECTORY / NAME
    try:
        return read_checked(path, Marks)
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        logger.warning("marks of projections are damaged", path=str(path), fault=str(error))
        return None


def delete_marks(directory: Path) -> None:
    """Delete the marks, if any, durably: files are about to be truncated."""
    path = directory / DIRECTORY / NAME
    if path.is_file() or path.is_symlink():
        path.unlink()
        sync_directory(path.parent)
