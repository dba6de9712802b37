"""Data files on their way into a table: what is in them, by their footers."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from eruca.tables.batches import TableError
from eruca.tables.committing import DataFile

_SUFFIX: Final = ".parquet"
# Readers use the first characters; a longer text would have to be cut, and its maximum raised.
_TEXT_LENGTH_MAX: Final = 32


def check_storage(name: str, options: Iterable[str]) -> None:
    """Refuse options for an object store, which would not apply to the data files.

    Raises:
        TableError: There are such options.
    """
    names = sorted(options)
    if names:
        raise TableError(
            f"{name}: storage options ({', '.join(names)}) apply to the table's log only, not to"
            " its data files, which pyarrow writes; set the store's environment variables instead,"
            " such as AWS_ACCESS_KEY_ID and AWS_ENDPOINT_URL, which apply to both"
        )


def written_files(data_uri: str, directory: str) -> list[DataFile]:
    """Return the Parquet files below a directory of a table's data directory.

    Raises:
        OSError: The file system cannot be read.
    """
    files, root = fs.FileSystem.from_uri(data_uri)
    selector = fs.FileSelector(f"{root}/{directory}", recursive=True, allow_not_found=True)
    found = []
    for info in sorted(files.get_file_info(selector), key=lambda one: one.path):
        if info.type != fs.FileType.File or not info.path.endswith(_SUFFIX):
            continue
        path = info.path.removeprefix(root).lstrip("/")
        with files.open_input_file(info.path) as file:
            metadata = pq.ParquetFile(file).metadata
        found.append(
            DataFile(
                uri=f"{data_uri}/{path}",
                path=path,
                size=info.size,
                rows=metadata.num_rows,
                statistics=json.dumps(statistics_of(metadata)),
            )
        )
    return found


def delete_directory(data_uri: str, directory: str) -> None:
    """Delete a directory of files that no table has."""
    files, root = fs.FileSystem.from_uri(data_uri)
    if files.get_file_info(f"{root}/{directory}").type == fs.FileType.Directory:
        files.delete_dir(f"{root}/{directory}")


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
