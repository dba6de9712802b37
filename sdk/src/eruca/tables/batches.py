"""The record of a batch in its commit's properties. Pure.

=========================  =========================================================================
Property                   Meaning
=========================  =========================================================================
``eruca.batch``            number of the batch: 0, 1, 2 …
``eruca.commit``           unique id of this commit, which shows whether an unanswered one succeeded
``eruca.positions``        JSON: for each queue, the position behind the batch, and its proof
``eruca.brokers``          JSON: for each broker group, the end of its log when the run began, and
                           the epoch of the record before it; null or missing if unknown. The run's
                           last batch reaches it: all records of the topics before it are exported
``eruca.rows``             rows of the batch
``eruca.missing-rows``     messages that were deleted before they were read
``eruca.damaged-rows``     rows of damaged messages
``eruca.schema-version``   version of the columns
=========================  =========================================================================

Positions are those of Spark's checkpoints, see :mod:`eruca.exporting.stream_offsets`: ``next`` has
each queue's offset with the topic's id, the broker's run and the last store time. ``first`` has the
starts of queues that are new in this batch. So a batch's ranges follow from it and the batch
before.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Self

_PREFIX: Final = "eruca."
POSITIONS: Final = f"{_PREFIX}positions"


class TableError(Exception):
    """The table is not as expected; the text says what was expected, found, and how to fix it."""


class TableBusyError(TableError):
    """Another export writes to this table."""


class CommitConflictError(Exception):
    """Another writer has committed first; nothing of ours is in the table."""


@dataclass(frozen=True, slots=True)
class Batch:
    """A committed batch."""

    number: int
    commit: str
    positions: str  # JSON
    rows: int
    missing_rows: int
    damaged_rows: int
    schema_version: int
    brokers: str = "{}"  # JSON

    def to_properties(self) -> dict[str, str]:
        """Return the commit's properties."""
        return {
            f"{_PREFIX}batch": str(self.number),
            f"{_PREFIX}commit": self.commit,
            POSITIONS: self.positions,
            f"{_PREFIX}brokers": self.brokers,
            f"{_PREFIX}rows": str(self.rows),
            f"{_PREFIX}missing-rows": str(self.missing_rows),
            f"{_PREFIX}damaged-rows": str(self.damaged_rows),
            f"{_PREFIX}schema-version": str(self.schema_version),
        }

    @classmethod
    def from_properties(cls, properties: Mapping[str, object]) -> Self | None:
        """Return the batch of a commit; None if the commit is not an export's.

        Raises:
            TableError: The properties are incomplete or invalid.
        """
        if POSITIONS not in properties:
            return None
        try:
            return cls(
                number=int(str(properties[f"{_PREFIX}batch"])),
                commit=str(properties[f"{_PREFIX}commit"]),
                positions=str(properties[POSITIONS]),
                rows=int(str(properties[f"{_PREFIX}rows"])),
                missing_rows=int(str(properties[f"{_PREFIX}missing-rows"])),
                damaged_rows=int(str(properties[f"{_PREFIX}damaged-rows"])),
                schema_version=int(str(properties[f"{_PREFIX}schema-version"])),
                brokers=str(properties.get(f"{_PREFIX}brokers", "{}")),  # earlier versions: none
            )
        except (KeyError, ValueError) as error:
            raise TableError(
                f"expected the properties of an export's commit, found invalid ones ({error});"
                " export into a new table"
            ) from error
