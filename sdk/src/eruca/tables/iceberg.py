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
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError, TableAlreadyExistsError
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.table import Table, TableProperties

from eruca.tables.batches import Batch, CommitConflictError, TableError
from eruca.tables.columns import missing_columns
from eruca.tables.committing import DataFile
from eruca.tables.files import check_storage

_DATA: Final = "data"
_OF_STORES: Final = ("s3.", "gcs.", "adls.", "hdfs.")  # properties of pyiceberg's FileIO


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
        check_storage(self.name, [name for name in options or () if name.startswith(_OF_STORES)])
        self._catalog = load_catalog(catalog_name, **dict(options or {}))
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
    def data_uri(self) -> str:
        """The URI of the directory for data files."""
        return f"{self._table.location().rstrip('/')}/{_DATA}"

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
        self._catalog.create_namespace_if_not_exists(namespace)
        try:
            return self._catalog.create_table(self._rest, columns)
        except TableAlreadyExistsError:  # by another process
            return self._catalog.load_table(self._rest)
