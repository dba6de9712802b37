"""Projections that lag: the disk refused to write records of the log to them.

The log is the truth and continues. It is written, flushed and acknowledged even if a file of a
consume queue or of the key index fails. Memory keeps only the log offset of the first record that
such a file lacks. :meth:`Dispatcher.catch_up` adds the missing ones from the log.

Meanwhile a read of missing entries fails with the reason, and no checkpoint includes them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeAlias

from eruca.contract.errors import UnavailableError
from eruca_broker.store.queues.queue_files import DamagedQueueError

Key: TypeAlias = tuple[str, int]
"""A queue: its topic and its queue id."""
ProjectionError: TypeAlias = OSError | DamagedQueueError

KEY_INDEX: Final = ("", 0)
"""The key index as a queue: no topic has this name."""
RETRY_AFTER_SECONDS: Final = 5.0  # a checkpoint's period: each checkpoint retries


@dataclass(frozen=True, slots=True)
class Lag:
    """The first record that a projection lacks, and the reason."""

    log_offset: int  # of the first missing record
    error: ProjectionError

    @property
    def reason(self) -> str:
        """The reason, as text."""
        return reason_of(self.error)


def reason_of(error: ProjectionError) -> str:
    """Return the message of the disk, or of a damaged file."""
    return (isinstance(error, OSError) and error.strerror) or str(error)


def queue_failed(key: Key, error: ProjectionError) -> UnavailableError:
    """Return the error for a request that needs a queue whose file has failed."""
    topic, queue_id = key
    return UnavailableError(
        f"the consume queue {queue_id} of {topic!r} cannot be read or written: {reason_of(error)}",
        fix="acknowledged messages are safe in the log, and the broker retries; if this continues, "
        "repair the disk and restart the broker, which rebuilds the queue",
        retry_after_seconds=RETRY_AFTER_SECONDS,
    )


def queue_damaged(key: Key, fault: str) -> UnavailableError:
    """Return the error for a read of a queue with an entry that was never written."""
    topic, queue_id = key
    return UnavailableError(
        f"the consume queue {queue_id} of {topic!r} is damaged: {fault}",
        fix="acknowledged messages are safe in the log: stop the broker in order and start it, and "
        "it rebuilds the queue",
        retry_after_seconds=RETRY_AFTER_SECONDS,
    )


def index_unproved() -> UnavailableError:
    """Return the error for a look-up by key before the index has been verified."""
    return UnavailableError(
        "the key index is being verified after a crash, so it may be incomplete",
        fix="try again: a gigabyte takes some seconds",
        retry_after_seconds=1.0,
    )


def index_failed(error: ProjectionError) -> UnavailableError:
    """Return the error for a look-up by key while the index is incomplete."""
    return UnavailableError(
        f"the key index cannot be written: {reason_of(error)}",
        fix="acknowledged messages are safe in the log, and the broker retries; if this continues, "
        "repair the disk and restart the broker, which rebuilds the index",
        retry_after_seconds=RETRY_AFTER_SECONDS,
    )
