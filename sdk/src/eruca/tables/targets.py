"""The target of an export in a command line: ``delta:PATH``, ``iceberg:CATALOG.DB.TABLE``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from eruca.exporting.errors import OptionError, UnavailableError
from eruca.tables.batches import TableError
from eruca.tables.failures import opening_failure_of

if TYPE_CHECKING:
    import pyarrow as pa

    from eruca.tables.committing import ExportTable

DELTA: Final = "delta:"
ICEBERG: Final = "iceberg:"
_OF_THE_EXTRA: Final = ("deltalake", "pyiceberg", "pyarrow")
_SECRET: Final = re.compile(
    r"secret|passw|passphrase"
    r"|(?:^|[-_.])(?:token|credential|authorization|connection[-_]string)$"
    r"|(?:account|access|api|sas|master|customer|private)[-_](?:key|key[-_]base64)$",
    re.IGNORECASE,
)


def is_table(target: str) -> bool:
    """Tell whether a target is a table, not a file."""
    return target.startswith((DELTA, ICEBERG))


def check_no_secrets(target: str, options: Mapping[str, str]) -> None:
    """Refuse secrets in a command line, which every user of a machine can read.

    Raises:
        OptionError: The target or an option has one; it is not shown.
    """
    kind, _, place = target.partition(":")
    if _has_password(place):
        raise OptionError(
            f"{kind}: expected a URI without credentials, found one with them (not shown); set"
            " the storage's environment variables, such as AWS_ACCESS_KEY_ID and"
            " AWS_SECRET_ACCESS_KEY, or ~/.aws/credentials"
        )
    for name, text in options.items():
        if not (_SECRET.search(name) or _has_password(text)):
            continue
        instead = (
            f"~/.pyiceberg.yaml or the environment variable {_environment_variable(place, name)}"
            if target.startswith(ICEBERG)
            else f"the environment variable {name.upper()} or ~/.aws/credentials"
        )
        raise OptionError(
            f"--table-option {name}: expected no secret in the command line, which every user of"
            f" the machine can read; use {instead}"
        )


def _has_password(text: str) -> bool:
    try:
        parts = urlsplit(text)
    except ValueError:
        return False
    return "@" in parts.netloc and ":" in parts.netloc.rpartition("@")[0]


def _environment_variable(identifier: str, name: str) -> str:
    catalog = identifier.partition(".")[0]
    return f"PYICEBERG_CATALOG__{catalog}__{name.replace('.', '__').replace('-', '_')}".upper()


def opened(
    target: str,
    columns: pa.Schema,
    options: Mapping[str, str] | None = None,
    *,
    adopts: bool = False,
) -> ExportTable:
    """Return the table of a target; create it if it does not exist.

    Raises:
        TableError: The target is invalid, a package is missing, the storage or the catalogue
            refuses the credentials, or the table cannot take the columns.
        UnavailableError: The storage or the catalogue cannot be reached.
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
        if error.name in _OF_THE_EXTRA:
            raise TableError(
                f"{kind} tables need {error.name}, which is not installed: install the extra tables"
            ) from error
        raise TableError(f"{target} needs {error.name}, which is not installed") from error
    except (TableError, UnavailableError):
        raise
    except Exception as error:  # of the formats' libraries, which have no class in common
        raise opening_failure_of(target, error) from error
    raise TableError(f"expected delta:PATH or iceberg:CATALOG.NAMESPACE.TABLE, found {target!r}")
