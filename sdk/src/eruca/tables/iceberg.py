"""An Apache Iceberg table in any catalogue of pyiceberg: REST, SQL, Hive, Glue.

A commit requires that the branch ``main`` is still at the snapshot that was read. pyiceberg would
otherwise repeat a commit after another exporter's, and add the rows of both.

The record of a batch is in its snapshot's summary. The snapshots are followed from the current one
to its ancestors, so a rollback takes rows and progress back together.

Source: Iceberg table spec, Snapshots; pyiceberg, ``Transaction.commit_transaction``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import pyarrow as pa
from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NoSuchNamespaceError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.io import ARROW_FILE_IO
from pyiceberg.io.pyarrow import PyArrowFileIO, schema_to_pyarrow
from pyiceberg.table import Table, TableProperties

from eruca.tables.batches import Batch, CommitConflictError, TableError
from eruca.tables.columns import missing_columns
from eruca.tables.files import DataDirectory, DataFile
from eruca.tables.s3 import iceberg_defaults

_DATA: Final = "data"


class IcebergExportTable:
    """A table of a catalogue; it and its namespace are created if they do not exist.

    Args:
        identifier: ``CATALOG.NAMESPACE.TABLE``; the catalogue as pyiceberg's configuration has it.
        columns: The columns of the export.
        options: Properties of the catalogue, besides its configuration.
        adopts: Take a table that has rows, but no record of its batches.

    Raises:
        TableError: The identifier is invalid, or the table cannot take the columns.
    """

    def __init__(
        self,
        identifier: str,
        columns: pa.Schema,
        options: Mapping[str, str] | None = None,
        *,
        adopts: bool = False,
    ) -> None:
        self.adopts: Final = adopts
        catalog_name, _, rest = identifier.partition(".")
        namespace, _, table_name = rest.rpartition(".")
        if not (catalog_name and namespace and table_name):
            raise TableError(f"expected iceberg:CATALOG.NAMESPACE.TABLE, found {identifier!r}")
        self._identifier = identifier
        self._rest = rest
        self._catalog = load_catalog(catalog_name, **dict(options or {}))
        for name, text in iceberg_defaults().items():
            self._catalog.properties.setdefault(name, text)
        try:
            table = self._catalog.load_table(rest)
        except NoSuchTableError:
            table = self._created(namespace, columns)
        held = schema_to_pyarrow(table.schema(), include_field_ids=False)
        lacking = missing_columns(self.name, held, columns)
        if len(lacking):
            with table.update_schema() as update:
                update.union_by_name(lacking)
        self._table = self._read()

    @property
    def name(self) -> str:
        """The table's name in texts."""
        return f"iceberg:{self._identifier}"

    @property
    def data(self) -> DataDirectory:
        """The directory for data files, with the credentials that the catalogue gave for it.

        Raises:
            TableError: The table's files are not read by pyarrow.
        """
        io = self._table.io
        if not isinstance(io, PyArrowFileIO):
            raise TableError(
                f"{self.name}: expected the catalogue's property py-io-impl to be"
                f" {ARROW_FILE_IO}, found {type(io).__module__}.{type(io).__name__}"
            )
        uri = f"{self._table.location().rstrip('/')}/{_DATA}"
        scheme, host, path = io.parse_location(uri, io.properties)
        return DataDirectory(io.fs_by_scheme(scheme, host), path, uri)

    @property
    def is_used(self) -> bool:
        """True if the last reading found a snapshot, even an empty one: others may have expired."""
        return self._table.current_snapshot() is not None

    def last_batch(self) -> Batch | None:
        """Read the table again; return its last batch, None if it never had one.

        Raises:
            TableError: Its snapshot has expired, and the table is not adopted.
        """
        self._table = self._read()
        snapshot = self._table.current_snapshot()
        while snapshot is not None:
            if snapshot.summary is not None:
                batch = Batch.from_properties(snapshot.summary.additional_properties)
                if batch is not None:
                    return batch
            if snapshot.parent_snapshot_id is None:
                return None
            parent = self._table.snapshot_by_id(snapshot.parent_snapshot_id)
            if parent is None and self.adopts:
                return None
            if parent is None:
                raise TableError(
                    f"{self.name}: expected the snapshot of the last batch, but snapshots before"
                    f" {snapshot.snapshot_id} have expired; export more often than snapshots"
                    " expire, or set where to continue (--adopt)"
                )
            snapshot = parent
        return None

    def append(self, files: Sequence[DataFile], batch: Batch) -> None:
        """Commit files as a snapshot after the current one.

        Raises:
            CommitConflictError: There is another snapshot by now.
            TableError: A file does not fit into the table's partitions.
        """
        table = self._table
        # Only in memory: the property of the table stays as it is, for other writers.
        properties = {**table.metadata.properties, TableProperties.COMMIT_NUM_RETRIES: "0"}
        table.metadata = table.metadata.model_copy(update={"properties": properties})
        try:
            with table.transaction() as transaction:
                transaction.add_files(
                    [one.uri for one in files],
                    snapshot_properties=batch.to_properties(),
                    check_duplicate_files=False,  # their directory is new
                )
        except CommitFailedException as error:
            raise CommitConflictError(str(error)) from error
        except ValueError as error:
            raise TableError(f"{self.name}: {error}") from error

    def _read(self) -> Table:
        return self._catalog.load_table(self._rest)

    def _created(self, namespace: str, columns: pa.Schema) -> Table:
        try:
            return self._catalog.create_table(self._rest, columns)
        except NoSuchNamespaceError:  # only then, because a user may have no right to create one
            self._catalog.create_namespace_if_not_exists(namespace)
        except TableAlreadyExistsError:  # by another process
            return self._catalog.load_table(self._rest)
        try:
            return self._catalog.create_table(self._rest, columns)
        except TableAlreadyExistsError:
            return self._catalog.load_table(self._rest)
