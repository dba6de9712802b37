"""The Spark data source ``eruca``: topics as tables, as streams, and as a place to replay rows to.

    spark.read.format("eruca").option("url", QUERY).option("topic", "orders").load()
    spark.readStream.format("eruca").option("url", QUERY).option("topic", "orders").load()
    rows.write.format("eruca").mode("append").option("namesrv", NAMESRV)...  see ReplayWriter

It needs nothing but the standard library, pyarrow and Spark, for it travels to every executor:
``eruca-spark`` sees to that by itself. Installed, Spark finds it by its name, without registration.

Where it runs: ``__init__`` and ``schema()`` once per load, in a planning process beside the driver;
the instance is pickled into every later step. So what there is to read is pinned in ``schema()``:
however often Spark plans anew, all frames of one load see the same rows.

Source: Spark 4.3, Python Data Source API; Eruca's export contract.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamReader,
)
from pyspark.sql.types import StructType

from pyspark_eruca.columns import COLUMNS
from pyspark_eruca.errors import OptionError
from pyspark_eruca.exports import Exports
from pyspark_eruca.options import Options
from pyspark_eruca.ranges import Range
from pyspark_eruca.replay import ReplayWriter
from pyspark_eruca.replay_options import ReplayOptions
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
        """Return the columns, and pin what there is to read."""
        options = Options.parse(self._given)
        if options.starting != "latest":  # a stream's choice, which pins nothing
            self._ranges = pinned_ranges(options, Exports(options))
        return ", ".join(f"{name} {COLUMNS[name]}" for name in options.columns)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return a reader of what was pinned."""
        options = self._options_for(schema)
        if self._ranges is None:
            raise OptionError(
                "a table is read from its earliest offsets, or from given ones, and without a "
                "schema of one's own: use the option columns"
            )
        return TableReader(options, self._ranges)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return a reader of a stream."""
        return StreamReader(self._options_for(schema))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:  # noqa: FBT001
        """Return a writer that replays rows."""
        if overwrite:
            raise OptionError("messages cannot be overwritten: use mode append")
        return ReplayWriter(ReplayOptions.parse(self._given), schema.fieldNames())

    def _options_for(self, schema: StructType) -> Options:
        options = Options.parse(self._given)
        if tuple(schema.fieldNames()) != options.columns:
            raise OptionError("give no schema of your own: use the option columns")
        return options
