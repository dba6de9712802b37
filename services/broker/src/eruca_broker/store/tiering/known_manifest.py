"""The manifest that a store knew last, kept in ``tier/`` for its next start.

With it a broker that starts while the object store is away knows where each queue begins, and a
place that lacks this manifest is not believed.

Crash rule: the manifest is written last. If a crash comes between the files, the head is not that
of the manifest's first segment: then only the manifest's number is known.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Final, NamedTuple

from eruca_broker.core.tier.manifests import Manifest, decoded, encoded
from eruca_broker.core.tier.queue_tables import QueueTable
from eruca_broker.core.tier.queue_tables import decoded as decoded_head
from eruca_broker.store.files.small_files import read_file, replace_files

TIER: Final = "tier"  # the directory in the store's
_MANIFEST_FILE: Final = "manifest.json"
_HEAD_FILE: Final = "first.queues"
_REACHED_FILE: Final = "reached"  # the reader's `reached`, in decimal digits
_FILE_SIZE_MAX: Final = 1024**3


class Known(NamedTuple):
    """The facts that the store knew last."""

    manifest: Manifest
    first: QueueTable | None  # of its first segment
    reached: int  # log offset: the manifest has all before it that was ever in the tier
    is_whole: bool  # else only the manifest's number counts


def remember(directory: Path, manifest: Manifest, *, reached: int, head: bytes | None) -> None:
    """Keep a manifest, durably.

    Args:
        directory: The store's ``tier/``.
        manifest: The manifest.
        reached: Log offset: it has all before it that was ever in the tier.
        head: Of its first segment; None: that is kept already, or there is no segment.

    Raises:
        OSError: The disk refuses; what was known before may be kept.
    """
    contents = {} if head is None else {_HEAD_FILE: head}
    contents[_REACHED_FILE] = str(reached).encode()
    contents[_MANIFEST_FILE] = encoded(manifest)
    replace_files(directory, contents)


def known(directory: Path, log_id: str) -> Known:
    """Return what was kept for a log.

    Raises:
        FileNotFoundError: Nothing is known.
        OSError: It cannot be read.
        ValueError: It is damaged, or of another log.
    """
    data = read_file(directory / _MANIFEST_FILE, _FILE_SIZE_MAX)
    manifest = decoded(data, number=None, log_id=log_id)
    reached = int(read_file(directory / _REACHED_FILE, _FILE_SIZE_MAX))
    if not manifest.segments:
        return Known(manifest, None, reached, is_whole=True)
    head = read_file(directory / _HEAD_FILE, _FILE_SIZE_MAX)
    if hashlib.sha256(head).hexdigest() != manifest.segments[0].head_sha256:
        return Known(manifest, None, reached, is_whole=False)
    return Known(manifest, decoded_head(head), reached, is_whole=True)
