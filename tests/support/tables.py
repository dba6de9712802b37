"""Tables of Delta Lake and Iceberg on this machine, and their rows as other readers see them."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from pyiceberg.catalog import Catalog, load_catalog

from eruca.exporting.columns import COLUMNS, arrow_schema
from eruca.exporting.ranges import Queue, Range
from eruca.tables.batches import Batch
from eruca.tables.committing import ExportTable, commit_once
from eruca.tables.files import written_files
from eruca.tables.s3 import delta_options, iceberg_defaults
from eruca.tables.targets import opened
from support.export_service import batch_of

Kind = Literal["delta", "iceberg"]
_READ = ["topic", "broker_name", "queue_id", "queue_offset"]


@dataclass(frozen=True, slots=True)
class LocalTable:
    """A table on this machine.

    Attributes:
        kind: Its format.
        directory: Its directory, and for Iceberg that of a SQL catalogue.
        store: The URI of a prefix in an object store, if the table is there.
        catalogue: The URL of a REST catalogue, if Iceberg's is one.
        token: The bearer token for it; no part of a command line.
        name: The table's name in a catalogue.
    """

    kind: Kind
    directory: Path
    store: str = ""
    catalogue: str = ""
    token: str = ""
    name: str = "table"

    @property
    def target(self) -> str:
        """The target in a command line."""
        return f"delta:{self._delta}" if self.kind == "delta" else f"iceberg:lake.db.{self.name}"

    @property
    def options(self) -> dict[str, str]:
        """The options that find it."""
        if self.kind == "delta":
            return {}
        if self.catalogue:
            return {"type": "rest", "uri": self.catalogue}
        return {
            "type": "sql",
            "uri": f"sqlite:///{self.directory}/catalogue.db",
            "warehouse": self.store or self.directory.as_uri(),
        }

    @property
    def _secrets(self) -> dict[str, str]:
        return {"token": self.token} if self.token else {}

    @property
    def _delta(self) -> str:
        return f"{self.store or self.directory}/table"

    def opened(self, *, adopts: bool = False) -> ExportTable:
        """Open it for an export; create it if it does not exist."""
        return opened(
            self.target, arrow_schema(COLUMNS), {**self.options, **self._secrets}, adopts=adopts
        )

    def catalog(self) -> Catalog:
        """Return the catalogue."""
        environment = iceberg_defaults() if self.store else {}
        return load_catalog("lake", **self.options, **environment, **self._secrets)

    def delta(self) -> DeltaTable:
        """Return the table of Delta Lake."""
        options = delta_options({}) if self.store else None
        return DeltaTable(self._delta, storage_options=options)

    def rows(self) -> pa.Table:
        """Return all rows."""
        if self.kind == "delta":
            return self.delta().to_pyarrow_table()
        return self.catalog().load_table(f"db.{self.name}").scan().to_arrow()

    def offsets(self) -> list[tuple[str, str, int, int]]:
        """Return topic, broker, queue and offset of every row."""
        rows = self.rows()
        return sorted(zip(*(rows.column(name).to_pylist() for name in _READ), strict=True))

    def commits(self) -> int:
        """Return the number of commits that contain a batch."""
        if self.kind == "delta":
            return sum("eruca.positions" in entry for entry in self.delta().history())
        snapshots = self.catalog().load_table(f"db.{self.name}").snapshots()
        return sum(
            one.summary is not None and "eruca.positions" in one.summary.additional_properties
            for one in snapshots
        )


def export_batch(
    table: ExportTable, number: int, after: Batch | None, topic: str = "orders"
) -> Batch:
    """Write and commit ten rows."""
    commit = uuid.uuid4().hex
    rows = batch_of(
        Range(Queue(topic, "broker-a", 0), number * 10, number * 10 + 10), list(COLUMNS)
    )
    directory = table.data.below(f"{commit}/day=2026-11-21")
    directory.create()
    path = directory.path_of("part-0.parquet")
    pq.write_table(pa.Table.from_batches([rows]), path, filesystem=directory.system)
    files = written_files(table.data, commit)
    batch = Batch(number, commit, f'{{"next": {number}}}', 10, 0, 0, 2)
    commit_once(table, after, files, batch)
    return batch


def export_batches(table: ExportTable, count: int) -> list[Batch]:
    """Write and commit batches, each after the one before."""
    batches: list[Batch] = []
    for number in range(count):
        batches.append(export_batch(table, number, batches[-1] if batches else None))
    return batches
