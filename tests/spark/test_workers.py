"""Which pyspark Spark's own Python processes import."""

from __future__ import annotations

import sys
from pathlib import Path

import pyspark
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

INSTALLED = str(Path(pyspark.__file__))


class Importing(DataSource):
    """A source that says which pyspark the process that plans has, and the one that reads."""

    @classmethod
    def name(cls) -> str:
        return "importing"

    def schema(self) -> str:
        import pyspark

        return f"`{pyspark.__file__}` STRING"

    def reader(self, schema: StructType) -> DataSourceReader:
        return ImportingReader()


class ImportingReader(DataSourceReader):
    def read(self, partition: InputPartition):  # type: ignore[no-untyped-def]  # noqa: ANN201
        import pyspark

        yield (pyspark.__file__,)


def test_planners_and_workers_import_the_installed_pyspark(spark: SparkSession) -> None:
    """Not Spark's archive of it: that has no compiled code, and takes seconds to import."""
    from pyspark import cloudpickle

    cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]
    spark.dataSource.register(Importing)

    rows = spark.read.format("importing").load()

    assert rows.columns == [INSTALLED]
    assert [row[0] for row in rows.collect()] == [INSTALLED]
