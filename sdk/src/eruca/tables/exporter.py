"""The export to a table of Delta Lake or Iceberg: each batch is one commit.

The table is the only record of progress: there is neither a checkpoint nor a manifest. A batch is
planned from the positions in the table's last commit, as a stream would plan it. Its rows are
written as Parquet files, which no reader sees yet. Then one commit adds the files and the positions
behind them. It succeeds only if the last batch is still the one that was read at first.

So a kill at any moment leaves either the whole batch or, for readers, nothing. Files without a
commit remain, until the table's own clean-up deletes them: ``VACUUM``, ``remove_orphan_files``.

Who writes the files is the caller's choice: Spark's executors, or this process
(:mod:`.arrow_writer`). The plan, the commit and its properties are the same, so each continues the
other's table.
"""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from eruca.exporting.columns import DAMAGE, SCHEMA_VERSION
from eruca.exporting.exported import Exported, Watch
from eruca.exporting.options import Options
from eruca.exporting.planner import BatchPlanner
from eruca.exporting.ranges import Range
from eruca.tables.batches import Batch, TableError
from eruca.tables.committing import ExportTable, checked_last_batch, commit_once
from eruca.tables.failures import failure_of
from eruca.tables.files import DataDirectory, DataFile, delete_directory, written_files

WriteRows = Callable[[Sequence[Range], DataDirectory], int]
"""Writes the rows of ranges as Parquet files below a directory, which is new; returns their number.

A file has one topic and one day.
"""


@dataclass(frozen=True, slots=True)
class _Planned:
    """A batch before its rows are written."""

    number: int
    positions: dict[str, Any]
    ranges: tuple[Range, ...]
    brokers: dict[str, Any]  # their logs

    @property
    def rows(self) -> int:
        return sum(one.rows for one in self.ranges)


class TableExporter:
    """Exports topics to a table, batch by batch.

    Args:
        table: The table.
        options: The topics, and how to read them.
        write: Writes the rows of a batch.
        stop: Set if the export should end; then no request is retried.
    """

    def __init__(
        self,
        table: ExportTable,
        options: Options,
        write: WriteRows,
        *,
        stop: threading.Event | None = None,
    ) -> None:
        self._table = table
        self._options = options
        self._write = write
        self._stop = stop
        self._planner = BatchPlanner(options, stop=stop)
        self.done = Exported()

    def run(
        self, watch: Watch = lambda _: None, is_over: Callable[[], bool] = lambda: False
    ) -> None:
        """Export the messages that exist now.

        Args:
            watch: Called after each batch.
            is_over: Called after each batch; if it returns true, that batch was the last.

        Raises:
            TableError: The table has rows but no positions, the number of rows is wrong, or the
                storage or the catalogue refuses the credentials.
            TableBusyError: Another export writes to the table.
            SourceError: The service refused, or messages are lost.
            UnavailableError: A service, the storage or the catalogue failed.
            StoppedError: The export should end.
        """
        after = checked_last_batch(self._table)
        self._planner.fix_end()
        while (planned := self._planned(after)) is not None:
            after = self._export(planned, after)
            watch(self.done)
            if is_over():
                break

    def waiting_rows(self) -> int:
        """Return the number of messages that the table does not have yet."""
        planner = BatchPlanner(self._options, stop=self._stop)
        planner.fix_end()
        last = checked_last_batch(self._table)
        start = planner.initial() if last is None else json.loads(last.positions)
        return sum(one.rows for one in planner.ranges(start, planner.next(start, None)))

    def _planned(self, after: Batch | None) -> _Planned | None:
        """Return the next batch; None if there is nothing to export."""
        planner = self._planner
        start = planner.initial() if after is None else json.loads(after.positions)
        end = planner.next(start, self._options.trigger_rows)
        if end == start:
            return None
        number = 0 if after is None else after.number + 1
        brokers = {name: log._asdict() for name, log in planner.logs.items()}
        return _Planned(number, end, tuple(planner.ranges(start, end)), brokers)

    def _export(self, planned: _Planned, after: Batch | None) -> Batch:
        commit = uuid.uuid4().hex
        name = f"eruca-{planned.number:08d}-{commit}"
        try:
            files = self._written(planned, name)
        except BaseException as error:
            self._discard(name, error)
            if isinstance(error, OSError):
                raise failure_of(self._table.name, error) from error
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
            brokers=json.dumps(planned.brokers, sort_keys=True),
        )
        commit_once(self._table, after, files, batch)
        self.done.count(planned.ranges, written, batch.damaged_rows)
        return batch

    def _written(self, planned: _Planned, name: str) -> Sequence[DataFile]:
        if not planned.rows:
            return ()
        data = self._table.data
        written = self._write(planned.ranges, data.below(name))
        may_miss = not self._options.fail_on_data_loss
        if written > planned.rows or (written < planned.rows and not may_miss):
            raise TableError(
                f"expected {planned.rows} rows in batch {planned.number}, found {written}"
            )
        files = written_files(data, name)
        # Rows that are written but not found are not lost at the source, so no option allows them.
        if (found := sum(one.rows for one in files)) != written:
            raise TableError(
                f"expected {written} rows in the files of batch {planned.number}, found {found} in"
                f" {data.below(name).uri}: they may have been written elsewhere; let the processes"
                " that write files and this one use the same storage (endpoint, credentials, or a"
                " directory that all machines share)"
            )
        return files

    def _discard(self, name: str, reason: BaseException) -> None:
        """Delete the files of a batch that failed, as far as the storage allows it."""
        try:
            delete_directory(self._table.data.below(name))
        except OSError as error:  # the reason is the error to report; most often it is the same
            reason.add_note(f"the files of the batch remain, in {name}: {error}")


def _damaged_rows(file: DataFile) -> int:
    nulls: dict[str, int] = json.loads(file.statistics)["nullCount"]
    return file.rows - nulls.get(DAMAGE, file.rows)
