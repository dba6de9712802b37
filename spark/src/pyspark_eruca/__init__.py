"""The Spark data source ``eruca``: topics as tables and streams, and frames written to topics.

    spark.read.format("eruca").option("url", QUERY).option("topic", "orders").load()
    spark.readStream.format("eruca").option("url", QUERY).option("topic", "orders").load()
    rows.write.format("eruca").mode("append").option("namesrv", NAMESRV)...  see SinkWriter
    rows.writeStream.format("eruca").option("namesrv", NAMESRV)...  see SinkStreamWriter

It needs only the standard library, pyarrow and Spark, because ``eruca-spark`` sends it to every
executor. If it is installed, Spark finds it by name, without registration.

``__init__`` and ``schema()`` run once per load, in a planning process beside the driver. The
instance is pickled into every later step. So ``schema()`` fixes the offsets to read. Even if Spark
plans again, all frames of one load have the same rows.

Source: Spark 4.3, Python Data Source API; Eruca's export contract.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
)
from pyspark.sql.types import StructType

from eruca.exporting.columns import COLUMNS
from eruca.exporting.errors import OptionError
from eruca.exporting.exports import Exports
from eruca.exporting.option_texts import OptionTexts
from eruca.exporting.options import Options
from eruca.exporting.ranges import Range
from pyspark_eruca.replay import ReplayWriter
from pyspark_eruca.replay_options import ReplayOptions
from pyspark_eruca.sink import SinkStreamWriter, SinkWriter
from pyspark_eruca.sink_options import SinkOptions
from pyspark_eruca.stream import StreamReader
from pyspark_eruca.table import TableReader, pinned_ranges

FORMAT: Final = "eruca"


class DefaultSource(DataSource):
    """The format ``eruca``."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._given = dict(options)
        self._ranges: tuple[Range, ...] | None = None

    @classmethod
    def name(cls) -> str:
        """Return the format's name."""
        return FORMAT

    def schema(self) -> str:
        """Return the columns, and fix the offsets to read."""
        options = Options.parse(self._given)
        if options.ranges is not None:
            self._ranges = options.ranges
        elif options.starting != "latest":  # only for a stream, for which nothing is fixed
            self._ranges = pinned_ranges(options, Exports(options))
        return ", ".join(f"{name} {COLUMNS[name]}" for name in options.columns)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return a reader of the fixed offsets."""
        options = self._options_for(schema)
        if self._ranges is None:
            raise OptionError(
                "expected a table from its earliest offsets or from given offsets, without a"
                " schema of your own; to choose columns, use the option columns"
            )
        if options.progress_group is not None and options.ranges is None:
            raise OptionError(
                "option progressGroup: only a stream or an incremental export has progress; remove"
                " the option from the table"
            )
        return TableReader(options, self._ranges)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return a reader of a stream."""
        return StreamReader(self._options_for(schema))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:  # noqa: FBT001
        """Return a writer of a table: of a replay if the option names one."""
        if overwrite:
            raise OptionError("messages cannot be overwritten; use mode append")
        if OptionTexts(self._given).text("replay") is not None:
            return ReplayWriter(ReplayOptions.parse(self._given), schema.fieldNames())
        return SinkWriter(SinkOptions.parse(self._given), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:  # noqa: FBT001
        """Return a writer of a stream."""
        if overwrite:
            raise OptionError("messages cannot be overwritten; use outputMode append or update")
        return SinkStreamWriter(SinkOptions.parse(self._given), schema)

    def _options_for(self, schema: StructType) -> Options:
        options = Options.parse(self._given)
        if tuple(schema.fieldNames()) != options.columns:
            raise OptionError("a schema of your own is not supported; use the option columns")
        return options
