"""The export to a table of Delta Lake or Iceberg: each batch is one commit.

The table is the only record of progress: there is neither a checkpoint nor a manifest. A batch is
planned from the positions in the table's last commit, as a stream would plan it. Spark writes its
rows as Parquet files, which no reader sees yet. Then one commit adds the files and the positions
behind them. It succeeds only if the last batch is still the one that was read at first.

So a kill at any moment leaves either the whole batch or, for readers, nothing. Files without a
commit remain, until the table's own clean-up deletes them: ``VACUUM``, ``remove_orphan_files``.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.datasource import ReadMaxRows

from eruca.tables.batches import Batch, TableError
from eruca.tables.committing import (
    DataFile,
    ExportTable,
    checked_last_batch,
    commit_once,
)
from eruca.tables.files import delete_directory, written_files
from eruca_spark.export import Exported, Watch
from eruca_spark.parquet import WRITER_OPTIONS, parquet_settings
from pyspark_eruca.columns import DAMAGE, SCHEMA_VERSION
from pyspark_eruca.options import Options
from pyspark_eruca.ranges import Range
from pyspark_eruca.stream import StreamReader
from pyspark_eruca.stream_offsets import StreamOffset, batch_ranges

# A directory for each day, so that a file has one; Delta Lake's clean-up skips names with "_".
_DAY: Final = "day"
_OF_STARTS: Final = frozenset({"startingoffsets", "startingtimestamp", "maxrowspertrigger"})


@dataclass(frozen=True, slots=True)
class _Planned:
    """A batch before its rows are written."""

    number: int
    positions: dict[str, Any]
    ranges: tuple[Range, ...]

    @property
    def rows(self) -> int:
        return sum(one.rows for one in self.ranges)


class TableExporter:
    """Exports topics to a table, batch by batch.

    Args:
        session: Returns the session; called only if there is something to export.
        table: The table.
        options: The data source's options.
    """

    def __init__(
        self,
        session: Callable[[], SparkSession],
        table: ExportTable,
        options: Mapping[str, str],
    ) -> None:
        self._session = session
        self._table = table
        self._options = Options.parse(options)
        self._read_options = {
            name: text for name, text in options.items() if name.lower() not in _OF_STARTS
        }
        self._stream = StreamReader(self._options)
        self.done = Exported()

    def run(
        self, watch: Watch = lambda _: None, is_over: Callable[[], bool] = lambda: False
    ) -> None:
        """Export the messages that exist now.

        Args:
            watch: Called after each batch.
            is_over: Called after each batch; if it returns true, that batch was the last.

        Raises:
            TableError: The table has rows but no positions, or the number of rows is wrong.
            TableBusyError: Another export writes to the table.
            SourceError: The service refused, or messages are lost.
        """
        after = checked_last_batch(self._table)
        self._stream.prepareForTriggerAvailableNow()
        while (planned := self._planned(after)) is not None:
            after = self._export(planned, after)
            watch(self.done)
            if is_over():
                break

    def waiting_rows(self) -> int:
        """Return the number of messages that the table does not have yet."""
        reader = StreamReader(self._options)
        reader.prepareForTriggerAvailableNow()
        last = checked_last_batch(self._table)
        start = reader.initialOffset() if last is None else json.loads(last.positions)
        return sum(one.rows for one in _ranges(start, reader.latestOffset(start, _NO_LIMIT)))

    def _planned(self, after: Batch | None) -> _Planned | None:
        """Return the next batch; None if there is nothing to export."""
        start = self._stream.initialOffset() if after is None else json.loads(after.positions)
        end = self._stream.latestOffset(start, ReadMaxRows(self._options.trigger_rows))
        if end == start:
            return None
        number = 0 if after is None else after.number + 1
        return _Planned(number, end, tuple(_ranges(start, end)))

    def _export(self, planned: _Planned, after: Batch | None) -> Batch:
        commit = uuid.uuid4().hex
        directory = f"eruca-{planned.number:08d}-{commit}"
        try:
            files = self._written(planned, directory)
        except BaseException:
            delete_directory(self._table.data_uri, directory)
            raise
        written = sum(one.rows for one in files)
        batch = Batch(
            number=planned.number,
            commit=commit,
            positions=json.dumps(planned.positions, sort_keys=True),
            rows=written,
            missing_rows=planned.rows - written,
            damaged_rows=sum(_damaged_rows(one) for one in files),
            schema_version=SCHEMA_VERSION,
        )
        commit_once(self._table, after, files, batch)
        self.done.count(planned.ranges, written, batch.damaged_rows)
        return batch

    def _written(self, planned: _Planned, directory: str) -> Sequence[DataFile]:
        if not planned.rows:
            return ()
        ranges = json.dumps([one.to_json() for one in planned.ranges])
        rows = (
            self._session().read.format("eruca").options(**self._read_options, ranges=ranges).load()
        )
        _write(rows, f"{self._table.data_uri}/{directory}")
        files = written_files(self._table.data_uri, directory)
        written, may_miss = sum(one.rows for one in files), not self._options.fail_on_data_loss
        if written > planned.rows or (written < planned.rows and not may_miss):
            raise TableError(
                f"expected {planned.rows} rows in batch {planned.number}, found {written}"
            )
        return files


_NO_LIMIT: Final = ReadMaxRows(2**31 - 1)


def _ranges(start: dict[str, Any], end: dict[str, Any]) -> Iterator[Range]:
    yield from batch_ranges(StreamOffset.parse(start), StreamOffset.parse(end))


def _write(rows: DataFrame, uri: str) -> None:
    with parquet_settings(rows.sparkSession):
        dated = rows.withColumn(_DAY, f.to_date("stored_at")) if _has_times(rows) else rows
        writer = dated.write.options(**WRITER_OPTIONS)
        if _has_times(rows):
            writer = writer.partitionBy(_DAY)
        writer.parquet(uri)


def _has_times(rows: DataFrame) -> bool:
    return "stored_at" in rows.columns


def _damaged_rows(file: DataFile) -> int:
    nulls: dict[str, int] = json.loads(file.statistics)["nullCount"]
    return file.rows - nulls.get(DAMAGE, file.rows)
