"""Refusals: convert a disk's error to the reason why a store accepts no writes, and for how long.

If the disk is full, or another resource is short, writes are refused until it is available again.
Any other error ends writing for good, because the state of the bytes is unknown.
"""

from __future__ import annotations

import errno
from typing import Final

from eruca.contract.errors import DiskFullError, ErucaError, StoreFailedError, UnavailableError

DISK_FULL_ERRNOS: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
SCARCITY_FIXES: Final = {
    errno.EMFILE: "let the broker open more files (ulimit -n), or take fewer connections "
    "(ERUCA_BROKER_CONNECTIONS_MAX)",
    errno.ENFILE: "let the system open more files (fs.file-max)",
    errno.ENOMEM: "let the broker have more memory, or more mappings (vm.max_map_count)",
}
"""The fix for each error that reports a shortage; the disk itself works."""
RETRY_AFTER_SECONDS: Final = 5.0


def is_scarcity(error: OSError) -> bool:
    """Tell whether *error* reports a temporary shortage rather than a failing disk."""
    return error.errno in DISK_FULL_ERRNOS or error.errno in SCARCITY_FIXES


def refusal_of(error: OSError, what: str) -> UnavailableError:
    """Return why writes are refused after *error*: for good, or until there is room again.

    Args:
        error: The error of a write.
        what: The operation that failed, as a sentence.
    """
    kind: type[UnavailableError] = StoreFailedError
    fix = None
    if error.errno in DISK_FULL_ERRNOS:
        kind = DiskFullError
    elif error.errno in SCARCITY_FIXES:
        kind, fix = UnavailableError, SCARCITY_FIXES[error.errno]
    reason = error.strerror or str(error)
    return kind(f"{what}: {reason}", fix=fix, retry_after_seconds=RETRY_AFTER_SECONDS)


def failed_flush(error: OSError) -> StoreFailedError:
    """Return why nothing is acknowledged after a failed flush, whatever the error."""
    return StoreFailedError(
        f"the disk failed to flush the log: {error.strerror}",
        retry_after_seconds=RETRY_AFTER_SECONDS,
    )


def stuck_flush(seconds: float) -> UnavailableError:
    """Return the error for a flush that has been in progress for too long; it may still succeed."""
    return UnavailableError(
        f"a flush of the log has been in progress for {seconds:.0f} seconds",
        fix="examine the disk; if this continues, restart the broker once the disk responds again",
        retry_after_seconds=RETRY_AFTER_SECONDS,
    )


def renewed(error: ErucaError) -> ErucaError:
    """Return a copy of *error* to raise: an error raised twice would accumulate tracebacks."""
    return type(error)(error.detail, fix=error.fix, retry_after_seconds=error.retry_after_seconds)
