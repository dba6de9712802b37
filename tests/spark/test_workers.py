"""The pyspark that Spark's own Python processes import."""

from __future__ import annotations

import sys
from pathlib import Path

import psutil
import pyspark
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from support.export_service import ExportService

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


def archives_on_paths() -> list[str]:
    """Return what Python processes of this process's Spark have Spark's archive on their path."""
    found = []
    for process in psutil.Process().children(recursive=True):
        try:
            words = process.cmdline()
            if "-m" in words and "pyspark.zip" in process.environ().get("PYTHONPATH", ""):
                found.append(" ".join(words))
        except psutil.Error:
            pass  # it has just ended
    return found


def test_a_source_found_by_its_name_is_planned_with_the_installed_pyspark(
    spark: SparkSession, service: ExportService, tmp_path: Path
) -> None:
    """Tables and streams: Spark starts those processes with the driver's Python."""
    service.hold("orders", {0: 10})
    options = {"url": service.url, "topic": "orders"}
    archives: list[str] = []
    service.on_plan = lambda: archives.extend(archives_on_paths())
    assert spark.read.format("eruca").options(**options).load().count() == 10
    rows = spark.readStream.format("eruca").options(**options).load()
    writer = rows.writeStream.format("noop").trigger(availableNow=True)
    writer.option("checkpointLocation", str(tmp_path)).start().awaitTermination()

    assert archives == []


def test_planners_and_workers_import_the_installed_pyspark(spark: SparkSession) -> None:
    """Not Spark's archive of it: that has no compiled code, and takes seconds to import."""
    from pyspark import cloudpickle

    cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]
    spark.dataSource.register(Importing)

    rows = spark.read.format("importing").load()

    assert rows.columns == [INSTALLED]
    assert [row[0] for row in rows.collect()] == [INSTALLED]
