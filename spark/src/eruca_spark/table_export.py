"""The export to a table by Spark: its executors write the files, the driver commits them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from eruca.exporting.options import Options
from eruca.exporting.ranges import Range
from eruca.tables.committing import ExportTable
from eruca.tables.exporter import TableExporter
from eruca_spark.parquet import WRITER_OPTIONS, parquet_settings

# A directory for each day, so that a file has one; Delta Lake's clean-up skips names with "_".
_DAY: Final = "day"
_OF_STARTS: Final = frozenset({"startingoffsets", "startingtimestamp", "maxrowspertrigger"})


def table_exporter(
    session: Callable[[], SparkSession], table: ExportTable, options: Mapping[str, str]
) -> TableExporter:
    """Return an export by Spark.

    Args:
        session: Returns the session; called only if there is something to export.
        table: The table.
        options: The data source's options.
    """
    read_options = {name: text for name, text in options.items() if name.lower() not in _OF_STARTS}

    def write(ranges: Sequence[Range], uri: str) -> None:
        document = json.dumps([one.to_json() for one in ranges])
        reader = session().read.format("eruca").options(**read_options, ranges=document)
        _write(reader.load(), uri)

    return TableExporter(table, Options.parse(options), write)


def _write(rows: DataFrame, uri: str) -> None:
    with parquet_settings(rows.sparkSession):
        dated = rows.withColumn(_DAY, f.to_date("stored_at")) if _has_times(rows) else rows
        writer = dated.write.options(**WRITER_OPTIONS)
        if _has_times(rows):
            writer = writer.partitionBy(_DAY)
        writer.parquet(uri)


def _has_times(rows: DataFrame) -> bool:
    return "stored_at" in rows.columns
