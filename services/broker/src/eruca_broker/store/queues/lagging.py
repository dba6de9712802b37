"""Projections that lag: the disk refused to take what the log has.

The log is the truth and goes on: it is written, flushed and acknowledged whatever becomes of a file
of a consume queue or of the key index. Of what such a file lacks nothing is kept in memory but the
log offset from which it lacks it; :meth:`Dispatcher.catch_up` puts it again from the log.

Meanwhile whoever reads what is not there yet is told why, and no checkpoint promises it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeAlias

from eruca.contract.errors import UnavailableError
from eruca_broker.store.queues.queue_files import DamagedQueueError

Key: TypeAlias = tuple[str, int]
"""A queue: its topic and its number."""
ProjectionError: TypeAlias = OSError | DamagedQueueError

KEY_INDEX: Final = ("", 0)
"""The key index, among queues: no topic is called so."""
RETRY_AFTER_SECONDS: Final = 5.0  # a checkpoint's period: each tries again


@dataclass(frozen=True, slots=True)
class Lag:
    """The first record that a projection lacks, and the reason."""

    log_offset: int  # of the first record that is not in it
    error: ProjectionError

    @property
    def reason(self) -> str:
        """The reason, as text."""
        return reason_of(self.error)


def reason_of(error: ProjectionError) -> str:
    """Return what the disk, or a damaged file, said."""
    return (isinstance(error, OSError) and error.strerror) or str(error)


def queue_failed(key: Key, error: ProjectionError) -> UnavailableError:
    """Return what whoever reads or needs a queue is told whose file has failed."""
    topic, queue_id = key
    return UnavailableError(
        f"the consume queue {queue_id} of {topic!r} cannot be read or written: {reason_of(error)}",
        fix="what was acknowledged is safe in the log, and the broker tries again; if it goes on, "
        "mend the disk and restart the broker, which rebuilds the queue",
        retry_after_seconds=RETRY_AFTER_SECONDS,
    )


def queue_damaged(key: Key, fault: str) -> UnavailableError:
    """Return what whoever reads a queue is told that has an entry which was never written."""
    topic, queue_id = key
    return UnavailableError(
        f"the consume queue {queue_id} of {topic!r} is damaged: {fault}",
        fix="what was acknowledged is safe in the log: stop the broker in order and start it, and "
        "it makes the queue anew",
        retry_after_seconds=RETRY_AFTER_SECONDS,
    )


def index_unproved() -> UnavailableError:
    """Return the error of a look-up by key while the index is still to be proved."""
    return UnavailableError(
        "the key index is being proved after a crash, so it is not known to be complete",
        fix="try again: a gigabyte takes some seconds",
        retry_after_seconds=1.0,
    )


def index_failed(error: ProjectionError) -> UnavailableError:
    """Return what whoever looks for a key is told while the index does not know all."""
    return UnavailableError(
        f"the key index cannot be written: {reason_of(error)}",
        fix="what was acknowledged is safe in the log, and the broker tries again; if it goes on, "
        "mend the disk and restart the broker, which rebuilds the index",
        retry_after_seconds=RETRY_AFTER_SECONDS,
    )
