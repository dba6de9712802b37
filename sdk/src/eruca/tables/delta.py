"""A Delta Lake table; commits by delta-rs.

The commit is the next version after the one that was read, or it fails: delta-rs would otherwise
add the rows of two exporters after each other.

The record of a batch is in the log's entry (``commitInfo``). The log is cleaned in time. A
transaction identifier is kept for ever, and so shows that a record is missing.

In an object store, a commit is a conditional request (``If-None-Match: *``). So of two exporters
one wins, as on a disk.

Source: Delta Lake protocol, Commit Provenance Information, Transaction Identifiers; delta-rs,
``logstore/default_logstore.rs``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlsplit

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Schema, Transaction
from deltalake.exceptions import CommitFailedError
from deltalake.fs import DeltaStorageHandler
from deltalake.transaction import AddAction
from pyarrow import fs

from eruca.tables.batches import Batch, CommitConflictError, TableError
from eruca.tables.columns import missing_columns
from eruca.tables.failures import text_of
from eruca.tables.files import DataDirectory, DataFile
from eruca.tables.s3 import S3_SCHEMES, delta_options

APP_ID: Final = "eruca-export"
_READ_AT_FIRST: Final = 16  # entries of the log; most often the last one is an export's


class DeltaExportTable:
    """A table at a path or URI; it is created if it does not exist.

    Args:
        location: The table's directory.
        columns: The columns of the export.
        options: Options for the storage, as deltalake has them; besides its environment variables.
        adopts: Take a table that has rows, but no record of its batches.

    Raises:
        TableError: The table cannot take the columns.
    """

    def __init__(
        self,
        location: str,
        columns: pa.Schema,
        options: Mapping[str, str] | None = None,
        *,
        adopts: bool = False,
    ) -> None:
        self.adopts: Final = adopts
        is_path = not urlsplit(location).scheme
        self._uri = Path(location).absolute().as_uri() if is_path else location.rstrip("/")
        parts = urlsplit(self._uri)
        if not is_path and (parts.query or parts.fragment or ".." in parts.path.split("/")):
            raise TableError(
                f"{self.name}: expected a URI without '?', '#' and '..', such as s3://BUCKET/PATH"
            )
        is_s3 = parts.scheme in S3_SCHEMES
        if is_s3 and not parts.netloc:
            raise TableError(f"expected delta:s3://BUCKET/PATH, found {self.name}")
        self._options = delta_options(options or {}) if is_s3 else dict(options or {})
        self.data: Final = self._data_directory()
        if not DeltaTable.is_deltatable(self._uri, self._options):
            if is_path:
                Path(location).mkdir(parents=True, exist_ok=True)
            self._create(columns)
        self._table = self._read()
        partitions = self._table.metadata().partition_columns
        if partitions:
            raise TableError(
                f"{self.name}: expected a table without partitions, found"
                f" {', '.join(partitions)}; files have statistics of every column, so export"
                " into a new table"
            )
        lacking = missing_columns(self.name, pa.schema(self._table.schema().to_arrow()), columns)
        if len(lacking):
            self._table.alter.add_columns(list(Schema.from_arrow(lacking).fields))

    @property
    def name(self) -> str:
        """The table's name in texts."""
        return f"delta:{self._uri}"

    def _data_directory(self) -> DataDirectory:
        """Return the table's own directory."""
        if urlsplit(self._uri).scheme == "file":
            return DataDirectory.of_uri(self._uri)
        store = fs.PyFileSystem(DeltaStorageHandler(self._uri, self._options))
        return DataDirectory(store, "", self._uri)

    @property
    def is_used(self) -> bool:
        """True if the last reading of the table found rows."""
        return bool(self._table.file_uris())

    def last_batch(self) -> Batch | None:
        """Read the table again; return its last batch, None if it never had one.

        Raises:
            TableError: The log has no record of it any more, and the table is not adopted.
        """
        self._table = self._read()
        batch = _last_batch(_entries(self._table), self.name)
        if (
            batch is None
            and not self.adopts
            and self._table.transaction_version(APP_ID) is not None
        ):
            raise TableError(
                f"{self.name}: expected the record of batch"
                f" {self._table.transaction_version(APP_ID)}, but the table's log was cleaned or"
                " the table replaced; export into a new table, or set where to continue"
                " (--adopt)"
            )
        return batch

    def append(self, files: Sequence[DataFile], batch: Batch) -> None:
        """Commit files as the next version.

        Raises:
            CommitConflictError: That version exists.
            TableError: The table has a feature that delta-rs cannot write.
        """
        actions: list[Any] = [
            AddAction(
                path=quote(one.path, safe="/=-._~"),
                size=one.size,
                partition_values={},
                modification_time=0,
                data_change=True,
                stats=one.statistics,
            )
            for one in files
        ]
        properties = CommitProperties(
            custom_metadata=batch.to_properties(),
            max_commit_retries=0,
            app_transactions=[Transaction(APP_ID, batch.number)],
        )
        try:
            self._table.create_write_transaction(
                actions, "append", self._table.schema(), commit_properties=properties
            )
        except CommitFailedError as error:
            if self._read().version() > self._table.version():
                raise CommitConflictError(str(error)) from error
            raise TableError(
                f"{self.name}: {text_of(error)}; if the table has a feature that deltalake cannot"
                " write, drop it, or export into a new table"
            ) from error

    def _create(self, columns: pa.Schema) -> None:
        schema = Schema.from_arrow(columns)
        try:
            DeltaTable.create(self._uri, schema, mode="ignore", storage_options=self._options)
        except CommitFailedError:
            if not DeltaTable.is_deltatable(self._uri, self._options):
                raise
            # another process was faster

    def _read(self) -> DeltaTable:
        return DeltaTable(self._uri, storage_options=self._options)


def _entries(table: DeltaTable) -> Iterator[dict[str, Any]]:
    """Yield the entries of the log, the latest first."""
    some = table.history(_READ_AT_FIRST)
    yield from some
    if len(some) == _READ_AT_FIRST:
        yield from table.history()[len(some) :]


def _last_batch(entries: Iterator[dict[str, Any]], name: str) -> Batch | None:
    """Return the last batch in the log whose rows were not taken back by a RESTORE.

    Raises:
        TableError: A RESTORE names no version.
    """
    newest: int | None = None  # an entry after this version was taken back
    for entry in entries:
        if newest is not None and entry["version"] > newest:
            continue
        operation = str(entry.get("operation", ""))
        if operation == "RESTORE":
            version = entry.get("operationParameters", {}).get("version")
            if version is None:
                raise TableError(
                    f"{name}: expected a RESTORE to name its version, found one by time; restore"
                    " the table to a version"
                )
            newest = int(version)
            continue
        if "REPLACE TABLE" in operation:
            return None
        batch = Batch.from_properties(entry)
        if batch is not None:
            return batch
    return None
