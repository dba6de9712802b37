"""Make files outlast a power failure."""

from __future__ import annotations

import os
from pathlib import Path


def make_durable(path: Path) -> None:
    """Flush a file's data, or a directory's names, to the disk.

    Raises:
        OSError: It cannot be flushed.
    """
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
