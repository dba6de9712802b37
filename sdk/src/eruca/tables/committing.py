"""Commit a batch once, whatever other writers do, and whether or not the answer arrives.

======================================  ==========================================================
Event                                   Result
======================================  ==========================================================
the process dies before the commit      the table has nothing of the batch; the next run repeats it
the commit succeeds, its answer is lost the table is read again: it has the batch; done
another writer commits first            the table is read again; the batch is committed after it
another exporter commits first          the last batch is another one: refused, nothing is added
the catalogue or the storage fails      the run ends, to be repeated: nothing is lost or doubled
they refuse the credentials             the same, but a person has to look
======================================  ==========================================================
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, Protocol

from eruca.tables.batches import Batch, CommitConflictError, TableBusyError, TableError
from eruca.tables.failures import failure_of

if TYPE_CHECKING:
    from eruca.tables.files import DataDirectory, DataFile

# Other writers, such as a compaction, commit every few seconds at most.
CONFLICTS_MAX: Final = 20


class ExportTable(Protocol):
    """A table that takes batches."""

    @property
    def name(self) -> str:
        """The table's name in texts."""

    @property
    def data(self) -> DataDirectory:
        """The directory for data files."""

    @property
    def adopts(self) -> bool:
        """True if a table with rows, but without a record of its batches, may be continued."""

    @property
    def is_used(self) -> bool:
        """True if the last reading found rows, or signs that there were some."""

    def last_batch(self) -> Batch | None:
        """Read the table again; return its last batch, None if it never had one.

        Raises:
            TableError: The table had one, but its record is gone, and it is not adopted.
        """

    def append(self, files: Sequence[DataFile], batch: Batch) -> None:
        """Commit files to the table as :meth:`last_batch` found it.

        Raises:
            CommitConflictError: The table has changed since then.
        """


def checked_last_batch(table: ExportTable) -> Batch | None:
    """Read the table; return its last batch, None if the table is empty or adopted.

    Raises:
        TableError: The table was used, but nothing says where to continue.
        UnavailableError: The table cannot be read now.
    """
    last = _read(table)
    if last is None and table.is_used and not table.adopts:
        raise TableError(
            f"{table.name}: expected a new table or one of an export, found one whose commits"
            " do not say where to continue; export into a new table, or set where to continue"
            " (--adopt)"
        )
    return last


def commit_once(
    table: ExportTable, after: Batch | None, files: Sequence[DataFile], batch: Batch
) -> None:
    """Commit a batch that continues *after*, exactly once.

    Raises:
        TableBusyError: The table has another batch after *after*.
        TableError: Other writers commit all the time; or the storage or the catalogue refuses
            the credentials.
        UnavailableError: The table cannot be read or written now; perhaps it has the batch.
    """
    for _ in range(CONFLICTS_MAX):
        found = _read(table)
        if found == batch:
            return
        if found != after:
            raise TableBusyError(
                f"{table.name}: expected batch {_number(after)} to be the last one, found"
                f" {_number(found)}: another export writes to this table; run only one"
            )
        try:
            table.append(files, batch)
        except CommitConflictError:
            continue
        except Exception as error:
            if _read(table) == batch:
                return
            if isinstance(error, TableError):
                raise
            raise failure_of(table.name, error) from error
        return
    raise TableError(
        f"{table.name}: other writers committed {CONFLICTS_MAX} times before this export could;"
        " run it again"
    )


def _read(table: ExportTable) -> Batch | None:
    try:
        return table.last_batch()
    except TableError:
        raise
    except Exception as error:  # of the formats' libraries, which have no class in common
        raise failure_of(table.name, error) from error


def _number(batch: Batch | None) -> str:
    return "none" if batch is None else f"{batch.number} ({batch.commit})"
