"""Files written without Spark: their days, and memory that does not grow with their rows."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eruca.exporting.columns import COLUMNS, arrow_schema
from eruca.exporting.options import Options
from eruca.exporting.ranges import Queue, Range
from eruca.tables import arrow_writer
from eruca.tables.arrow_writer import ArrowWriter, by_day
from eruca.tables.files import DataDirectory, written_files
from support.export_service import batch_of

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MIB = 1024 * 1024
moments = st.datetimes(datetime(1970, 1, 1), datetime(2200, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001


@given(st.lists(st.none() | moments, max_size=30))
def test_parts_of_a_day_are_all_rows_in_their_order(times: list[datetime | None]) -> None:
    batch = pa.RecordBatch.from_pylist(
        [{"stored_at": time} for time in times], arrow_schema(["stored_at"])
    )

    parts = list(by_day(batch))

    assert [t for _, part in parts for t in part.column(0).to_pylist()] == times
    for directory, part in parts:
        for time in part.column(0).to_pylist():
            day = "none" if time is None else str(time.date())
            assert directory == f"day={day}"


def test_rows_without_times_have_no_day() -> None:
    [(directory, part)] = by_day(pa.record_batch({"queue_offset": [1, 2]}))
    assert (directory, part.num_rows) == ("", 2)


class EndlessRows:
    """Rows of any range, a mebibyte at a time; each batch is new memory."""

    rows = 1_000
    peak = 0

    def __init__(self, options: Options, *, stop: threading.Event | None = None) -> None:
        self._options = options
        self._stop = stop

    def read(self, ranges: Sequence[Range]) -> Iterator[pa.RecordBatch]:
        for one in ranges:
            for start in range(one.start, one.end, self.rows):
                part = one._replace(start=start, end=min(one.end, start + self.rows))
                batch = batch_of(part, list(COLUMNS))
                at = batch.schema.get_field_index("body")
                bodies = pa.array([bytes([start % 251]) * 1_000] * part.rows)
                yield batch.set_column(at, batch.schema.field(at), bodies)
                EndlessRows.peak = max(EndlessRows.peak, pa.total_allocated_bytes())


def test_memory_does_not_grow_with_the_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arrow_writer, "Exports", EndlessRows)
    monkeypatch.setattr(arrow_writer, "ROW_GROUP_BYTES", 4 * MIB)
    options = Options.parse({"url": "http://127.0.0.1:1", "topic": "orders"})
    before = pa.total_allocated_bytes()
    EndlessRows.peak = before
    rows = 60_000  # 60 MiB of bodies

    directory = DataDirectory.of_uri(tmp_path.as_uri())
    written = ArrowWriter(options)([Range(Queue("orders", "broker-a", 0), 0, rows)], directory)

    files = written_files(directory, "")
    assert sum(one.rows for one in files) == written == rows
    assert EndlessRows.peak - before < 16 * MIB
