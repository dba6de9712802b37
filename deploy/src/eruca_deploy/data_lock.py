"""The lock on a cluster's data: at most one supervisor uses a directory.

Each service also locks its own files. This lock refuses a second cluster before it starts any
service, with a message for its user.
"""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from pathlib import Path
from typing import Final

from eruca_deploy.ports import process_text

LOCK_NAME: Final = "lock"


class DataTakenError(Exception):
    """Another cluster uses the directory; the text names its supervisor."""


def lock_data(directory: Path) -> int:
    """Lock *directory*, which must exist; return the descriptor to close at the end.

    The kernel releases the lock with the process, however it ends.

    Raises:
        DataTakenError: The directory is locked.
    """
    lock = os.open(directory / LOCK_NAME, os.O_RDWR | os.O_CREAT, mode=0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.pread(lock, 32, 0).strip()
        os.close(lock)
        whose = process_text(int(holder)) if holder.isdigit() else "another process"
        raise DataTakenError(
            f"the data in {directory} is in use by {whose}; stop it, or choose another --data"
        ) from None
    except OSError:
        os.close(lock)
        raise
    with suppress(OSError):  # only for messages; a full disk must not prevent locking
        os.ftruncate(lock, 0)
        os.pwrite(lock, b"%d\n" % os.getpid(), 0)
    return lock
