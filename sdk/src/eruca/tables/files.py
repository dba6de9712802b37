"""Data files on their way into a table: their place, and what is in them, by their footers."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, Self

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

_SUFFIX: Final = ".parquet"
# Readers use the first characters; a longer text would have to be cut, and its maximum raised.
_TEXT_LENGTH_MAX: Final = 32


@dataclass(frozen=True, slots=True)
class DataFile:
    """A Parquet file that is to become part of a table."""

    uri: str
    path: str  # relative to the table's data directory
    size: int  # bytes
    rows: int
    statistics: str  # JSON, as Delta Lake has it


@dataclass(frozen=True, slots=True)
class DataDirectory:
    """A directory for data files.

    The file system is the one that the table's own library uses, with the same options and
    credentials. So a process that can commit can write the files.

    Attributes:
        system: The file system.
        path: The directory's path in it; empty for its root.
        uri: The same place as a URI, for other writers and for the table's entries.
    """

    system: fs.FileSystem
    path: str
    uri: str

    @classmethod
    def of_uri(cls, uri: str) -> Self:
        """Return the directory at a URI that pyarrow knows.

        Raises:
            pyarrow.ArrowInvalid: It knows none of this scheme.
        """
        system, path = fs.FileSystem.from_uri(uri)
        return cls(system, path.rstrip("/"), uri.rstrip("/"))

    def below(self, name: str) -> Self:
        """Return a directory in this one; it need not exist."""
        return type(self)(self.system, self.path_of(name), f"{self.uri}/{name}")

    def path_of(self, name: str) -> str:
        """Return the path of a file or directory in this one."""
        return "/".join(part for part in (self.path, name) if part)

    def create(self) -> None:
        """Create it on a local disk; object stores need no directories."""
        if isinstance(self.system, fs.LocalFileSystem):
            self.system.create_dir(self.path, recursive=True)


def written_files(table: DataDirectory, name: str) -> list[DataFile]:
    """Return the Parquet files below a directory in a table's data directory.

    Raises:
        OSError: The file system cannot be read.
    """
    selector = fs.FileSelector(table.path_of(name), recursive=True, allow_not_found=True)
    found = []
    for info in sorted(table.system.get_file_info(selector), key=lambda one: one.path):
        if info.type != fs.FileType.File or not info.path.endswith(_SUFFIX):
            continue
        path = info.path.removeprefix(table.path).lstrip("/")
        with table.system.open_input_file(info.path) as file:
            metadata = pq.ParquetFile(file).metadata
        found.append(
            DataFile(
                uri=f"{table.uri}/{path}",
                path=path,
                size=info.size,
                rows=metadata.num_rows,
                statistics=json.dumps(statistics_of(metadata)),
            )
        )
    return found


def delete_directory(directory: DataDirectory) -> None:
    """Delete a directory of files that no table has."""
    if directory.system.get_file_info(directory.path).type == fs.FileType.Directory:
        directory.system.delete_dir(directory.path)


def statistics_of(metadata: pq.FileMetaData) -> dict[str, Any]:
    """Return a file's statistics as Delta Lake has them: least, greatest, and number of nulls."""
    least: dict[str, Any] = {}
    greatest: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    schema: pa.Schema = metadata.schema.to_arrow_schema()
    for at in range(metadata.num_columns):
        name = metadata.schema.column(at).path
        if schema.get_field_index(name) < 0:
            continue  # an element of a list or map
        groups = [
            metadata.row_group(group).column(at).statistics
            for group in range(metadata.num_row_groups)
        ]
        if not groups or any(one is None or not one.has_null_count for one in groups):
            continue
        nulls[name] = sum(one.null_count for one in groups)
        told = [one for one in groups if one.has_min_max]
        if len(told) == len(groups):
            low, high = min(one.min for one in told), max(one.max for one in told)
            if _is_exact(low) and _is_exact(high):
                least[name], greatest[name] = _json_of(low), _json_of(high, is_greatest=True)
    return {
        "numRecords": metadata.num_rows,
        "minValues": least,
        "maxValues": greatest,
        "nullCount": nulls,
    }


def _is_exact(value: object) -> bool:
    if isinstance(value, str):
        return len(value) <= _TEXT_LENGTH_MAX
    return isinstance(value, int | datetime)


def _json_of(value: object, *, is_greatest: bool = False) -> object:
    if not isinstance(value, datetime):
        return value
    # Delta Lake has milliseconds here: the greatest must not be less than any value.
    more = -value.microsecond % 1000 if is_greatest else 0
    rounded = value + timedelta(microseconds=more)
    return rounded.isoformat(timespec="milliseconds").replace("+00:00", "Z")
