"""Programs that know nothing of manifests read a lake's root: before, during, after maintenance."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime
from pathlib import Path
from typing import NamedTuple

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from eruca_spark.maintenance.running import Maintenance
from support.small_lakes import KillableFolders, data_files, write_batch

TODAY = date(2026, 11, 28)
DAYS = ("2026-11-26", "2026-11-27")
TOPIC = "%25DLQ%25billing"  # as a directory's name: escaped


class Read(NamedTuple):
    """A reader's view of a lake."""

    rows: int
    offsets: int  # different ones
    last: datetime
    topics: frozenset[str]
    days: frozenset[date]


def with_duckdb(lake: Path) -> Read:
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        row = connection.execute(
            "SELECT count(*), count(DISTINCT queue_offset), epoch_us(max(stored_at)),"
            " typeof(any_value(stored_at)), list(DISTINCT topic), list(DISTINCT dt)"
            " FROM read_parquet(?, hive_partitioning = true, union_by_name = true)",
            [f"{lake}/topic=*/**/*.parquet"],
        ).fetchone()
    assert row is not None
    rows, offsets, last, kind, topics, days = row
    assert kind == "TIMESTAMP WITH TIME ZONE"
    return Read(
        rows, offsets, datetime.fromtimestamp(last / 1e6, UTC), frozenset(topics), frozenset(days)
    )


def with_polars(lake: Path) -> Read:
    frame = pl.scan_parquet(
        f"{lake}/topic=*/**/*.parquet",
        hive_partitioning=True,
        try_parse_hive_dates=True,
        missing_columns="insert",
        extra_columns="ignore",
    ).collect()
    assert frame.schema["stored_at"] == pl.Datetime("us", "UTC")
    return Read(
        frame.height,
        frame["queue_offset"].n_unique(),
        pc.max(frame["stored_at"].to_arrow()).as_py(),
        frozenset(frame["topic"]),
        frozenset(frame["dt"]),
    )


def with_pyarrow(lake: Path) -> Read:
    """Read the root itself; pyarrow ignores what begins with an underscore."""
    hive = ds.partitioning(
        pa.schema([("topic", pa.string()), ("dt", pa.date32()), ("batch", pa.int32())]),
        flavor="hive",
    )
    return _read(ds.dataset(lake, format="parquet", partitioning=hive).to_table())


def with_pandas_engine(lake: Path) -> Read:
    """Read the root as ``pandas.read_parquet`` does, which leaves it to this function."""
    table = pq.read_table(str(lake), filesystem=None, partitioning="hive")
    days = pa.array([date.fromisoformat(day) for day in table.column("dt").to_pylist()])
    topics = pc.cast(table.column("topic"), pa.string())
    for name, column in (("dt", days), ("topic", topics)):
        table = table.set_column(table.schema.get_field_index(name), name, column)
    return _read(table)


def _read(table: pa.Table) -> Read:
    assert table.schema.field("stored_at").type == pa.timestamp("us", tz="UTC")
    return Read(
        table.num_rows,
        pc.count_distinct(table.column("queue_offset")).as_py(),
        pc.max(table.column("stored_at")).as_py(),
        frozenset(table.column("topic").to_pylist()),
        frozenset(table.column("dt").to_pylist()),
    )


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    for batch in range(4):
        first = batch * 20
        content = {
            DAYS[0]: range(first, first + 10),
            DAYS[1]: range(first + 10, first + 20),
        }
        write_batch(tmp_path, batch, content, topic=TOPIC)
    return tmp_path


EXPECTED = Read(
    rows=80,
    offsets=80,
    last=datetime(2026, 11, 27, 0, 1, 19, tzinfo=UTC),
    topics=frozenset({"%DLQ%billing"}),
    days=frozenset({date(2026, 11, 26), date(2026, 11, 27)}),
)
each_reader = pytest.mark.parametrize(
    "read", [with_duckdb, with_polars, with_pyarrow, with_pandas_engine]
)


class WatchedFolders(KillableFolders):
    """Directories that are read before every change."""

    def __init__(self, root: Path, read: Callable[[Path], Read]) -> None:
        super().__init__(root)
        self.seen: list[Read] = []
        self._path, self._read = root, read

    def step(self) -> None:
        super().step()
        self.seen.append(self._read(self._path))


@each_reader
def test_each_row_is_read_once_at_any_moment(lake: Path, read: Callable[[Path], Read]) -> None:
    folders = WatchedFolders(lake, read)
    assert read(lake) == EXPECTED

    done = Maintenance(folders).run(1_000_000, today=TODAY)

    assert done.merged_files == 8
    assert len(folders.seen) > 20
    assert {*folders.seen} == {EXPECTED}
    assert read(lake) == EXPECTED
    assert len(data_files(lake)) == 2


@each_reader
def test_a_day_that_expires_is_gone_as_a_whole(lake: Path, read: Callable[[Path], Read]) -> None:
    folders = WatchedFolders(lake, read)
    Maintenance(folders).run(1, keep_days=1, today=TODAY)

    assert {one.rows for one in folders.seen} == {80, 40}
    assert read(lake) == EXPECTED._replace(
        rows=40, offsets=40, days=frozenset({date(2026, 11, 27)})
    )


@each_reader
def test_columns_that_were_added_later_break_no_reader(
    lake: Path, read: Callable[[Path], Read]
) -> None:
    """The newest batch has a column more than the others, before and after a merge."""
    path = next(one for one in data_files(lake) if "batch=3" in str(one))
    table = pq.ParquetFile(path).read()
    pq.write_table(table.append_column("added", pa.array([1] * table.num_rows)), path)

    assert read(lake) == EXPECTED
    Maintenance(KillableFolders(lake)).run(1_000_000, today=TODAY)
    assert read(lake) == EXPECTED


def test_merged_files_have_statistics_of_times(lake: Path) -> None:
    Maintenance(KillableFolders(lake)).run(1_000_000, today=TODAY)

    for path in data_files(lake):
        metadata = pq.ParquetFile(path).metadata
        names = [metadata.row_group(0).column(n).path_in_schema for n in range(10)]
        statistics = metadata.row_group(0).column(names.index("stored_at")).statistics
        assert statistics.has_min_max
        assert statistics.min.tzinfo is not None
