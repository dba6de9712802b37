"""The target of an export in a command line: ``delta:PATH``, ``iceberg:CATALOG.DB.TABLE``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from eruca.tables.batches import TableError

if TYPE_CHECKING:
    import pyarrow as pa

    from eruca.tables.committing import ExportTable

DELTA: Final = "delta:"
ICEBERG: Final = "iceberg:"


def is_table(target: str) -> bool:
    """Tell whether a target is a table, not a file."""
    return target.startswith((DELTA, ICEBERG))


def opened(
    target: str,
    columns: pa.Schema,
    options: Mapping[str, str] | None = None,
    *,
    adopts: bool = False,
) -> ExportTable:
    """Return the table of a target; create it if it does not exist.

    Raises:
        TableError: The target is invalid, a package is missing, or the table cannot take the
            columns.
    """
    kind, _, place = target.partition(":")
    try:
        if target.startswith(DELTA) and place:
            from eruca.tables.delta import DeltaExportTable

            return DeltaExportTable(place, columns, options, adopts=adopts)
        if target.startswith(ICEBERG) and place:
            from eruca.tables.iceberg import IcebergExportTable

            return IcebergExportTable(place, columns, options, adopts=adopts)
    except ImportError as error:
        raise TableError(
            f"{kind} tables need {error.name}, which is not installed: install the extra tables"
        ) from error
    except TableError:
        raise
    except Exception as error:  # of the formats' libraries, which have no class in common
        raise TableError(
            f"{target} cannot be opened: {type(error).__name__}: {error}; check the place, and the"
            " options of its catalogue or storage (--table-option NAME=VALUE)"
        ) from error
    raise TableError(f"expected delta:PATH or iceberg:CATALOG.NAMESPACE.TABLE, found {target!r}")
