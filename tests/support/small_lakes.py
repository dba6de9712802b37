"""Lakes that are written without Spark, file by file as the export writes them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from eruca.exporting.columns import COLUMNS, arrow_schema
from eruca.exporting.ranges import Queue, Range
from eruca_spark.lake import Catalogue, Manifest
from eruca_spark.lake_files import LocalFiles
from eruca_spark.maintenance.folders import LocalFolders

SCHEMA = arrow_schema([name for name in COLUMNS if name != "topic"])


DYING_MAINTENANCE: Final = """
import os, signal, sys
from datetime import date
from pathlib import Path
from eruca_spark.maintenance.running import Maintenance
from support.small_lakes import KillableFolders

class Folders(KillableFolders):
    def die(self):
        os.kill(os.getpid(), signal.SIGKILL)

folders = Folders(Path(sys.argv[1]), int(sys.argv[2]))
keep_days = int(sys.argv[3]) if sys.argv[3:] else None
with folders.maintaining():
    Maintenance(folders).run(1_000_000, keep_days=keep_days, today=date(2026, 11, 28))
print(folders.steps)
"""
"""A program that maintains a lake and kills itself before one of its changes.

If there are fewer changes, it prints how many.
"""


def support_path() -> dict[str, str]:
    """Return the environment in which a program finds this package."""
    return {"PYTHONPATH": str(Path(__file__).parents[1])}


class KilledError(BaseException):
    """The process is dead; nothing of it goes on."""


class KillableFolders(LocalFolders):
    """Directories that are changed until the process is killed before a change."""

    def __init__(self, root: Path, kill_before: int | None = None) -> None:
        super().__init__(root)
        self.steps = 0
        self.kill_before = kill_before

    def step(self) -> None:
        """Count a change; be killed before the chosen one."""
        if self.steps == self.kill_before:
            self.die()
        self.steps += 1

    def die(self) -> None:
        """Stop here."""
        raise KilledError

    def write(self, path: str, text: str) -> None:
        self.step()
        super().write(path, text)

    def delete(self, path: str) -> None:
        """Delete file by file, so that a kill leaves some of them."""
        for one in self.files_below(path):
            self.step()
            super().delete(one)
        self.step()
        super().delete(path)

    def link(self, path: str, other: str) -> None:
        self.step()
        super().link(path, other)

    def create(self, path: str, like: str) -> None:
        self.step()
        super().create(path, like)

    def exchange(self, path: str, other: str) -> None:
        self.step()
        super().exchange(path, other)

    def delete_if_empty(self, path: str) -> None:
        self.step()
        super().delete_if_empty(path)

    def merge(self, paths: list[str], target: str) -> int:
        self.step()
        return super().merge(paths, target)


def rows_of(day: str, offsets: range, **columns: Any) -> pa.Table:  # noqa: ANN401 - any column
    """Return messages of a queue, stored one second after the other."""
    midnight = datetime.fromisoformat(day).replace(tzinfo=UTC)
    times = [midnight + timedelta(seconds=offset) for offset in offsets]
    values: dict[str, Any] = {
        "broker_name": ["broker-a"] * len(offsets),
        "queue_id": [0] * len(offsets),
        "queue_offset": [*offsets],
        "log_offset": [offset * 100 for offset in offsets],
        "stored_at": times,
        "born_at": times,
        "message_id": [f"id-{offset}" for offset in offsets],
        "keys": [[f"key-{offset}"] for offset in offsets],
        "body": [b"{}"] * len(offsets),
        "properties": [[("tenant", "acme")]] * len(offsets),
        "size": [100] * len(offsets),
    }
    columns = {**values, **columns}
    arrays = [
        pa.array(columns.get(field.name, [None] * len(offsets)), field.type) for field in SCHEMA
    ]
    return pa.Table.from_arrays(arrays, schema=SCHEMA)


def write_batch(
    root: Path, batch: int, rows: Mapping[str, range], topic: str = "orders"
) -> Manifest:
    """Write a finished batch: offsets by day."""
    files = []
    for day, offsets in rows.items():
        path = root / f"topic={topic}/dt={day}/batch={batch}/part-{batch}.parquet"
        path.parent.mkdir(parents=True)
        pq.write_table(rows_of(day, offsets), path, compression="zstd", store_schema=False)
        files.append((path.relative_to(root).as_posix(), path.stat().st_size))
    queue = Queue(topic, "broker-a", 0)
    start, end = min(one.start for one in rows.values()), max(one.stop for one in rows.values())
    manifest = Manifest(
        batch=batch,
        query_id="1b4e",
        schema_version=2,
        ranges=(Range(queue, start, end),),
        rows=end - start,
        missing_rows=0,
        written_at="2026-11-27T08:00:00.000+00:00",
        files=tuple(files),
    )
    Catalogue(LocalFiles(root)).replace(manifest)
    return manifest


def data_files(root: Path) -> list[Path]:
    """Return all data files that a reader of the root finds."""
    return sorted(root.glob("topic=*/**/*.parquet"))
