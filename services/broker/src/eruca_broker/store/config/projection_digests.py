"""Digests of the projections' files at an orderly shutdown: ``config/projectionDigests.json``.

The projections' own format, RocketMQ's, has no checksums. So an orderly shutdown writes their
digests here, and the next start compares. A file that differs, is missing or is surplus makes its
projection untrusted, and the projection is rebuilt from the log. The digests are deleted right
after the comparison: they say nothing about files that are being written.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec
import structlog

from eruca_broker.store.config.checked_json import read_checked, write_checked
from eruca_broker.store.config.config_snapshots import DIRECTORY
from eruca_broker.store.index.key_index import KeyIndex
from eruca_broker.store.queues.consume_queues import ConsumeQueues
from eruca_broker.store.queues.queue_check import QueueDigest

NAME: Final = "projectionDigests.json"

logger = structlog.get_logger(__name__)


class Digests(msgspec.Struct):
    """Digests of every file of every projection."""

    queues: list[QueueDigest]
    index: dict[str, int]  # by file name


def write_digests(directory: Path, queues: ConsumeQueues, index: KeyIndex) -> None:
    """Write the digests of projections that are closed for writing.

    Raises:
        OSError: They could not be written; the next start will rebuild the projections.
    """
    write_checked(directory, NAME, Digests(queues.digests(), index.digests()))


def take_digests(directory: Path) -> Digests | None:
    """Return the digests and delete them; None if there are no valid ones."""
    path = directory / DIRECTORY / NAME
    try:
        digests = read_checked(path, Digests)
    except FileNotFoundError:
        return None
    except OSError as error:
        logger.warning("digests cannot be read", path=str(path), reason=error.strerror)
        return None  # they are replaced when the store is closed
    except ValueError:
        digests = None
    path.unlink()
    return digests
