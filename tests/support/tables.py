"""Tables of Delta Lake and Iceberg on this machine, and their rows as other readers see them."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from pyiceberg.catalog import Catalog, load_catalog

from eruca.exporting.columns import COLUMNS, arrow_schema
from eruca.exporting.ranges import Queue, Range
from eruca.tables.batches import Batch
from eruca.tables.committing import ExportTable, commit_once
from eruca.tables.files import written_files
from eruca.tables.targets import opened
from support.export_service import batch_of

Kind = Literal["delta", "iceberg"]
_READ = ["topic", "broker_name", "queue_id", "queue_offset"]


@dataclass(frozen=True, slots=True)
class LocalTable:
    """A table in a directory; for Iceberg, with a SQL catalogue beside it."""

    kind: Kind
    directory: Path

    @property
    def target(self) -> str:
        """The target in a command line."""
        return f"delta:{self.directory}/table" if self.kind == "delta" else "iceberg:lake.db.table"

    @property
    def options(self) -> dict[str, str]:
        """The options that find it."""
        if self.kind == "delta":
            return {}
        return {
            "type": "sql",
            "uri": f"sqlite:///{self.directory}/catalogue.db",
            "warehouse": self.directory.as_uri(),
        }

    def opened(self, *, adopts: bool = False) -> ExportTable:
        """Open it for an export; create it if it does not exist."""
        return opened(self.target, arrow_schema(COLUMNS), self.options, adopts=adopts)

    def catalog(self) -> Catalog:
        """Return the catalogue."""
        return load_catalog("lake", **self.options)

    def delta(self) -> DeltaTable:
        """Return the table of Delta Lake."""
        return DeltaTable(f"{self.directory}/table")

    def rows(self) -> pa.Table:
        """Return all rows."""
        if self.kind == "delta":
            return self.delta().to_pyarrow_table()
        return self.catalog().load_table("db.table").scan().to_arrow()

    def offsets(self) -> list[tuple[str, str, int, int]]:
        """Return topic, broker, queue and offset of every row."""
        rows = self.rows()
        return sorted(zip(*(rows.column(name).to_pylist() for name in _READ), strict=True))

    def commits(self) -> int:
        """Return the number of commits that contain a batch."""
        if self.kind == "delta":
            return sum("eruca.positions" in entry for entry in self.delta().history())
        snapshots = self.catalog().load_table("db.table").snapshots()
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
    directory = Path(unquote(urlsplit(table.data_uri).path)) / commit / "day=2026-11-21"
    directory.mkdir(parents=True)
    pq.write_table(pa.Table.from_batches([rows]), directory / "part-0.parquet")
    files = written_files(table.data_uri, commit)
    batch = Batch(number, commit, f'{{"next": {number}}}', 10, 0, 0, 2)
    commit_once(table, after, files, batch)
    return batch


def export_batches(table: ExportTable, count: int) -> list[Batch]:
    """Write and commit batches, each after the one before."""
    batches: list[Batch] = []
    for number in range(count):
        batches.append(export_batch(table, number, batches[-1] if batches else None))
    return batches
