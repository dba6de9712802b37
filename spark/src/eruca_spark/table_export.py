"""The export to a table by Spark: its executors write the files, the driver commits them.

The executors write through Hadoop's file systems, which have their own settings and credentials
(``spark.hadoop.fs.s3a.…``). Hadoop's name of S3 is ``s3a``; the table keeps the name it has.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as f

from eruca.exporting.options import Options
from eruca.exporting.ranges import Range
from eruca.tables.batches import TableError
from eruca.tables.committing import ExportTable
from eruca.tables.exporter import TableExporter
from eruca.tables.files import DataDirectory
from eruca_spark.parquet import WRITER_OPTIONS, parquet_settings

# A directory for each day, so that a file has one; Delta Lake's clean-up skips names with "_".
_DAY: Final = "day"
_OF_STORES: Final = ("s3.", "gcs.", "adls.", "hdfs.")  # properties of pyiceberg's FileIO
_S3_CLASS: Final = "org.apache.hadoop.fs.s3a.S3AFileSystem"
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

    def write(ranges: Sequence[Range], to: DataDirectory) -> int:
        document = json.dumps([one.to_json() for one in ranges])
        reader = session().read.format("eruca").options(**read_options, ranges=document)
        uri = hadoop_uri(to.uri)
        if uri.startswith("s3a:"):
            _check_s3(session(), table.name)
        return _write(reader.load(), uri)

    return TableExporter(table, Options.parse(options), write)


def check_storage_options(target: str, options: Mapping[str, str]) -> None:
    """Refuse options for an object store, which the executors would not have.

    Raises:
        TableError: There are such options.
    """
    is_store = target.startswith("delta:") and "://" in target
    names = sorted(name for name in options if is_store or name.startswith(_OF_STORES))
    if names:
        raise TableError(
            f"{target}: storage options ({', '.join(names)}) apply to the driver only, not to"
            " Spark's executors; set the store's environment variables for the driver, and"
            " Hadoop's settings (--conf spark.hadoop.fs.s3a.…) for the executors"
        )


def hadoop_uri(uri: str) -> str:
    """Return a URI as Hadoop's file systems have it."""
    scheme, separator, rest = uri.partition("://")
    return f"s3a://{rest}" if separator and scheme in ("s3", "s3n") else uri


def _check_s3(spark: SparkSession, name: str) -> None:
    """Refuse S3 if Spark has no file system for it.

    Raises:
        TableError: Its jars are missing.
    """
    context = spark.sparkContext
    try:
        context._jsc.hadoopConfiguration().getClassByName(_S3_CLASS)
    except Py4JJavaError as error:
        assert context._jvm is not None
        hadoop = context._jvm.org.apache.hadoop.util.VersionInfo.getVersion()
        raise TableError(
            f"{name}: Spark lacks Hadoop's file system for S3 ({_S3_CLASS}); add"
            f" --conf spark.jars.packages=org.apache.hadoop:hadoop-aws:{hadoop} (spark/README.md"
            " has coordinates that are smaller), or export without Spark: eruca export --to"
        ) from error


def _write(rows: DataFrame, uri: str) -> int:
    """Write the rows; return how many the executors wrote, which the driver must then find."""
    counted = Observation()
    with parquet_settings(rows.sparkSession):
        dated = rows.withColumn(_DAY, f.to_date("stored_at")) if _has_times(rows) else rows
        observed = dated.observe(counted, f.count(f.lit(1)).alias("rows"))
        writer = observed.write.options(**WRITER_OPTIONS)
        if _has_times(rows):
            writer = writer.partitionBy(_DAY)
        writer.parquet(uri)
    return int(counted.get["rows"])


def _has_times(rows: DataFrame) -> bool:
    return "stored_at" in rows.columns
