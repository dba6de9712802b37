"""Content of the projections' files at the last checkpoint: ``config/projectionMarks.json``.

Projections are not checked by their own format, which is RocketMQ's, and after a kill nobody has
closed them. So each checkpoint notes of each queue, and of each file of the key index, how far it
went and which CRC-32 it had up to there. The next start opens none of the queues' files: it knows
from here what they hold, and each is proved when it is first read. A file that is something else
is rebuilt from the log.

Crash rule: the marks are written after the files they tell of have been flushed, and before the
checkpoint. Files only grow, so marks stay true of their beginnings; where a recovery cuts them, or
RocketMQ has had the store, the marks are deleted first.
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
from eruca_chassis.directories import sync_directory

NAME: Final = "projectionMarks.json"

logger = structlog.get_logger(__name__)


class Marks(msgspec.Struct, frozen=True):
    """Of every file of every projection."""

    log_offset: int  # before which they lack nothing
    queues: list[QueueMark]
    index: dict[str, IndexMark]  # by file name


def write_marks(directory: Path, marks: Marks) -> None:
    """Replace the marks of the store in *directory*, durably.

    Raises:
        OSError: They could not be written; the former ones stand.
    """
    write_checked(directory, NAME, marks)


def read_marks(directory: Path) -> Marks | None:
    """Return the marks; None where there are none to be trusted. Damaged ones are logged."""
    path = directory / DIRECTORY / NAME
    try:
        return read_checked(path, Marks)
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        logger.warning("marks of projections are damaged", path=str(path), fault=str(error))
        return None


def delete_marks(directory: Path) -> None:
    """Delete the marks, if there are any, durably: files are about to be cut."""
    path = directory / DIRECTORY / NAME
    if path.is_file() or path.is_symlink():
        path.unlink()
        sync_directory(path.parent)
