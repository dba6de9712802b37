"""What is said of a record that has rotted: the same wherever it is met."""

from __future__ import annotations

from typing import Final

from eruca.contract.errors import RecordNotFoundError

RESTORE_FIX: Final = "restore the log's file from a replica or a backup while the broker is stopped"


def damaged_record(log_offset: int, fault: object) -> RecordNotFoundError:
    """Return the error of whoever needs the record at *log_offset*, which *fault* is wrong with."""
    return RecordNotFoundError(
        f"the record at log offset {log_offset} is damaged: {fault}", fix=RESTORE_FIX
    )
