"""Parquet for other readers: times are microseconds in UTC, as ``eruca export`` writes them.

By default Spark writes times as INT96. That type is deprecated: it has no time zone and no
statistics for skipping files, and Iceberg refuses it. Files of earlier versions have it. Spark
reads both.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from pyspark.sql import SparkSession

SETTINGS: Final[Mapping[str, str]] = {
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    # Times before 1900, from a wrong producer's clock, are written unchanged.
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    # Days are in UTC, in a user's own sessions as well.
    "spark.sql.session.timeZone": "UTC",
}

# Dictionaries are expensive and useless if nearly all values differ.
WRITER_OPTIONS: Final[Mapping[str, str]] = {
    "compression": "zstd",
    "parquet.enable.dictionary": "false",
    "parquet.enable.dictionary#broker_name": "true",
    "parquet.enable.dictionary#tag": "true",
}


@contextmanager
def parquet_settings(spark: SparkSession) -> Iterator[None]:
    """Write Parquet with these settings in the block, because writers have no options for them."""
    before = {name: spark.conf.get(name, None) for name in SETTINGS}
    try:
        for name, value in SETTINGS.items():
            spark.conf.set(name, value)
        yield
    finally:
        for name, earlier in before.items():
            if earlier is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, earlier)
