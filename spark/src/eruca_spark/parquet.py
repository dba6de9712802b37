"""Parquet as other readers take it: times are microseconds in UTC, as ``eruca export`` writes them.

By default Spark writes times as INT96. That type is deprecated: it has no time zone and no
statistics by which a reader could skip files, and Iceberg refuses it. Files of earlier versions
have it; Spark reads both.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from pyspark.sql import SparkSession

SETTINGS: Final[Mapping[str, str]] = {
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    # Times before 1900, which a producer's clock may tell, are written as they are.
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    # Days are UTC's, in sessions of a user's own as well.
    "spark.sql.session.timeZone": "UTC",
}


@contextmanager
def parquet_settings(spark: SparkSession) -> Iterator[None]:
    """Write Parquet by these settings within the block; no writer has options for them."""
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
