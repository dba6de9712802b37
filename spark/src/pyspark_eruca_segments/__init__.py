"""The Spark data source ``eruca-segments``: rows straight from a log's files, without a broker.

    spark.read.format("eruca-segments").option("topic", "orders").option("broker", "broker-a")
        .load("/data/store")                                  a store
        .load("s3://bucket/backups")                          a backup
        .option("cluster", "eruca").load("s3://bucket/tier")  a tier

The columns are those of the format ``eruca``. ``DESIGN.md`` beside this file says which rows there
are. Executors need the extra ``segments``: the SDK, numpy, obstore. This module itself needs only
Spark, because Spark imports it whatever format is asked for.

Source: Spark 4.3, Python Data Source API.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from eruca.exporting.columns import COLUMNS
from eruca.exporting.errors import OptionError, SourceError

if TYPE_CHECKING:
    from pyspark_eruca_segments.options import SegmentOptions
    from pyspark_eruca_segments.plan import Share

FORMAT: Final = "eruca-segments"
_NEEDED: Final = ("eruca", "msgspec", "numpy")  # obstore's absence has an error of its own


class DefaultSource(DataSource):
    """The format ``eruca-segments``."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._given = dict(options)
        self._shares: tuple[Share, ...] | None = None

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return FORMAT

    def schema(self) -> str:
        """Return the columns, and fix what is read."""
        options = self._options()
        with _needing_the_extra():
            from pyspark_eruca_segments.plan import planned

        self._shares = planned(options)
        return ", ".join(f"{name} {COLUMNS[name]}" for name in options.columns)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return a reader of what was fixed."""
        options = self._options()
        if tuple(schema.fieldNames()) != options.columns:
            raise OptionError("a schema of your own is not supported; use the option columns")
        if self._shares is None:  # Spark does not ask for the schema if the user gives one
            raise OptionError(
                "expected a table without a schema of your own, even one of the same columns; to"
                " choose columns, use the option columns"
            )
        return SegmentReader(self._shares, options.columns, is_marked=options.damaged == "mark")

    def streamReader(self, schema: StructType) -> Any:  # noqa: ANN401 - there is none
        """Refuse: segments are a table."""
        raise OptionError("format eruca-segments is a table; for a stream, use format eruca")

    def writer(self, schema: StructType, overwrite: bool) -> Any:  # noqa: ANN401, FBT001
        """Refuse: only brokers write their logs."""
        raise OptionError("format eruca-segments cannot be written; write to topics by eruca")

    def _options(self) -> SegmentOptions:
        with _needing_the_extra():
            from pyspark_eruca_segments.options import SegmentOptions

        return SegmentOptions.parse(self._given)


class SegmentPartition(InputPartition):
    """A task's share: a stretch of one log."""

    def __init__(self, share: Share) -> None:
        super().__init__(share)
        self.share = share


class SegmentReader(DataSourceReader):
    """Rows of the fixed shares. It defines no ``pushFilters``, as that of ``eruca``."""

    def __init__(
        self, shares: tuple[Share, ...], columns: tuple[str, ...], *, is_marked: bool
    ) -> None:
        self._shares = shares
        self._columns = columns
        self._is_marked = is_marked

    def partitions(self) -> Sequence[InputPartition]:
        """Return a partition for each stretch."""
        return [SegmentPartition(share) for share in self._shares]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield the rows of a share, as Arrow batches."""
        if not isinstance(partition, SegmentPartition):  # Spark makes one itself if there is none
            return
        with _needing_the_extra():
            from pyspark_eruca_segments.share_reader import rows_of

        yield from rows_of(partition.share, self._columns, is_marked=self._is_marked)


@contextmanager
def _needing_the_extra() -> Iterator[None]:
    """Say what to install if an import within the block lacks it."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in _NEEDED:
            raise
        raise SourceError(
            f"{error.name} is not installed: install the extra segments on the driver and on each"
            " executor (pip install './spark[segments]')"
        ) from error
