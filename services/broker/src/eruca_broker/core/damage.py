"""Describe a damaged record: the same text wherever it is found."""

from __future__ import annotations

from typing import Final, NamedTuple

from eruca.contract.errors import RecordNotFoundError

RESTORE_FIX: Final = "restore the log's file from a backup while the broker is stopped"


class Damage(NamedTuple):
    """A stored message that can no longer be handed out."""

    queue_offset: int
    log_offset: int  # according to its consume queue
    size: int  # … and how many bytes it took
    reason: str

    def __str__(self) -> str:
        return f"at log offset {self.log_offset}: {self.reason}"


class UnreadableRecordError(RecordNotFoundError):
    """A record is where it was expected, and damaged.

    A reader that needs its content treats it like a missing one.
    """


def damaged_record(log_offset: int, fault: object) -> UnreadableRecordError:
    """Return the error for a request that needs the record at *log_offset*, which has *fault*."""
    return UnreadableRecordError(
        f"the record at log offset {log_offset} is damaged: {fault}", fix=RESTORE_FIX
    )
