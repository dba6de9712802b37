"""Write the rows of a batch as Parquet files in this process, without Spark.

Rows arrive in small Arrow batches. They are collected into row groups; so the memory depends on the
size of a row group and the number of open files, and not on the number of rows.

A file has one topic and one day, like those that Spark writes, so that readers skip files by their
statistics.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from eruca.exporting.columns import arrow_schema
from eruca.exporting.errors import StoppedError
from eruca.exporting.exports import Exports
from eruca.exporting.options import Options
from eruca.exporting.ranges import Range, pack
from eruca.tables.files import DataDirectory

ROW_GROUP_BYTES: Final = 32 * 1024 * 1024  # of Arrow's memory
ROW_GROUP_ROWS: Final = 250_000
FILE_BYTES: Final = 256 * 1024 * 1024
# Store times of a topic's queues are mixed by day only if the queues are read one after the other.
OPEN_FILES_MAX: Final = 4
_DAY_MICROSECONDS: Final = 86_400_000_000
_TIME: Final = "stored_at"
# Dictionaries are expensive and useless if nearly all values differ.
_DICTIONARIES: Final = ("topic", "broker_name", "tag")


@dataclass(slots=True)
class _File:
    """An open file, and the rows that are not in it yet."""

    stream: Any  # pyarrow has no types
    writer: pq.ParquetWriter
    waiting: list[pa.RecordBatch] = field(default_factory=list)
    waiting_bytes: int = 0
    waiting_rows: int = 0

    def add(self, batch: pa.RecordBatch) -> None:
        self.waiting.append(batch)
        self.waiting_bytes += batch.nbytes
        self.waiting_rows += batch.num_rows
        if self.waiting_bytes >= ROW_GROUP_BYTES or self.waiting_rows >= ROW_GROUP_ROWS:
            self.flush()

    def flush(self) -> None:
        if self.waiting:
            rows = pa.Table.from_batches(self.waiting)
            self.writer.write_table(rows, row_group_size=rows.num_rows)
            self.waiting, self.waiting_bytes, self.waiting_rows = [], 0, 0

    @property
    def is_full(self) -> bool:
        return bool(self.stream.tell() >= FILE_BYTES)

    def close(self) -> None:
        self.flush()
        self.writer.close()
        self.stream.close()

    def discard(self) -> None:
        """Close it without the rows that are not in it; an object store has no open files."""
        self.waiting, self.waiting_bytes, self.waiting_rows = [], 0, 0
        self.close()


class ArrowWriter:
    """Writes the rows of ranges; see :data:`.exporter.WriteRows`.

    Args:
        options: How to read the rows.
        watch: Called with the number of rows that have just been read.
        stop: Set if the work should end; then rows that were read are the last.
    """

    def __init__(
        self,
        options: Options,
        watch: Callable[[int], None] = lambda _: None,
        *,
        stop: threading.Event | None = None,
    ) -> None:
        self._options = options
        self._watch = watch
        self._stop = stop
        self._schema = arrow_schema(options.columns)

    def __call__(self, ranges: Sequence[Range], to: DataDirectory) -> int:
        """Write the rows of *ranges* below the directory *to*; return their number.

        Raises:
            OSError: The file system cannot be written.
            SourceError: The service refused, or messages are lost.
            StoppedError: The work should end.
        """
        exports = Exports(self._options, stop=self._stop)
        files = _Files(to, self._schema)
        row_count = 0
        try:
            topic = ""
            for share in pack(ranges, self._options.partition_rows):
                if share[0].queue.topic != topic:
                    files.close()  # a file has one topic
                    topic = share[0].queue.topic
                for batch in exports.read(share):
                    for day, rows in by_day(batch):
                        files.of(day).add(rows)
                        row_count += rows.num_rows
                    self._watch(batch.num_rows)
                    if self._stop is not None and self._stop.is_set():
                        raise StoppedError
            files.close()
        except BaseException as error:
            files.discard(error)
            raise
        return row_count


class _Files:
    """The open files of one topic, one for each day."""

    def __init__(self, to: DataDirectory, schema: pa.Schema) -> None:
        self._to = to
        self._schema = schema
        self._open: dict[str, _File] = {}  # the one used last at the end
        self._count = 0

    def of(self, day: str) -> _File:
        """Return the file for rows of a day."""
        file = self._open.pop(day, None)
        if file is not None and file.is_full:
            file.close()
            file = None
        if file is None:
            while len(self._open) >= OPEN_FILES_MAX:
                self._open.pop(next(iter(self._open))).close()
            file = self._created(day)
        self._open[day] = file
        return file

    def close(self) -> None:
        """Finish all files."""
        while self._open:
            self._open.pop(next(iter(self._open))).close()

    def discard(self, reason: BaseException) -> None:
        """Close all files, which are incomplete."""
        while self._open:
            file = self._open.pop(next(iter(self._open)))
            try:
                file.discard()
            except OSError as error:  # the reason is the error to report
                reason.add_note(f"a file could not be closed: {error}")

    def _created(self, day: str) -> _File:
        directory = self._to.below(day) if day else self._to
        directory.create()
        path = directory.path_of(f"part-{self._count:05d}.parquet")
        stream = directory.system.open_output_stream(path)
        self._count += 1
        names = self._schema.names
        writer = pq.ParquetWriter(
            stream,
            self._schema,
            compression="zstd",
            use_dictionary=[name for name in _DICTIONARIES if name in names],
        )
        return _File(stream, writer)


def by_day(batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Yield the parts of a batch with the directory of their day, in UTC.

    The directory is empty if the rows have no times, and ``day=none`` for damaged messages.
    """
    if _TIME not in batch.schema.names:
        yield "", batch
        return
    times = batch.column(_TIME).cast(pa.int64())
    runs = pc.run_end_encode(pc.divide(times, _DAY_MICROSECONDS))
    start = 0
    for end, day in zip(runs.run_ends.to_pylist(), runs.values.to_pylist(), strict=True):
        yield _directory(day), batch.slice(start, end - start)
        start = end


def _directory(day: int | None) -> str:
    if day is None:
        return "day=none"
    return f"day={pa.scalar(day, pa.int32()).cast(pa.date32()).as_py().isoformat()}"
