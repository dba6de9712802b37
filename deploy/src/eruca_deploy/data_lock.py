"""The lock on a cluster's data: at most one supervisor has the services of a directory.

Each service locks what is its own, too. Here a second cluster is refused before it starts any, in
the words of whoever started it.
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
    """Another cluster has the directory; the text names its supervisor."""


def lock_data(directory: Path) -> int:
    """Lock *directory*, which exists; return the descriptor to be closed at the end.

    The kernel drops the lock with the process, however it ends.

    Raises:
        DataTakenError: Somebody has locked it.
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
    with suppress(OSError):  # a courtesy, which a full disk may refuse
        os.ftruncate(lock, 0)
        os.pwrite(lock, b"%d\n" % os.getpid(), 0)
    return lock
