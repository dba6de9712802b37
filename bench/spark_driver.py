"""``python -m bench.spark_driver MEMORY JAR``: Spark in its own process, for one job after another.

A job is a JSON object on a line of stdin. Its duration in seconds goes to stdout.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from bench import ndjson_source
from eruca.exporting.columns import COLUMNS, arrow_schema
from eruca.tables.targets import opened
from eruca_spark.export import run_export
from eruca_spark.parquet import WRITER_OPTIONS
from eruca_spark.session import spark_session
from eruca_spark.table_export import table_exporter

MASTER: Final = "local[2]"
_DDL: Final = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())


def _topic(spark: SparkSession, job: Mapping[str, Any]) -> DataFrame:
    return spark.read.format("eruca").options(**job["options"]).load()


def _segments(spark: SparkSession, job: Mapping[str, Any]) -> DataFrame:
    return spark.read.format("eruca-segments").options(**job["options"]).load()


def _over_ndjson(spark: SparkSession, job: Mapping[str, Any]) -> DataFrame:
    return spark.read.format(ndjson_source.NdjsonSource.name()).options(**job["options"]).load()


def _over_jdbc(spark: SparkSession, job: Mapping[str, Any]) -> DataFrame:
    return spark.read.jdbc(
        job["url"],
        job["table"],
        predicates=job["predicates"],
        properties={"driver": "org.postgresql.Driver", "fetchsize": "10000"},
    )


_SOURCES: Final[Mapping[str, Callable[[SparkSession, Mapping[str, Any]], DataFrame]]] = {
    "eruca": _topic,
    "segments": _segments,
    "parquet": lambda spark, job: spark.read.parquet(job["source"]),
    "json": lambda spark, job: spark.read.schema(_DDL).json(job["source"]),
    "ndjson": _over_ndjson,
    "jdbc": _over_jdbc,
}


def do(spark: SparkSession, job: Mapping[str, Any]) -> None:
    """Run a job."""
    if job["to"] == "lake":
        run_export(spark, job["target"], job["options"])
        return
    if job["to"] == "table":
        table = opened(job["target"], arrow_schema(COLUMNS), job["table_options"])
        table_exporter(lambda: spark, table, job["options"]).run()
        return
    rows = _SOURCES[job["from"]](spark, job)
    if job["to"] == "nothing":
        rows.write.format("noop").mode("overwrite").save()
    elif job["to"] == "json":
        rows.write.mode("overwrite").json(job["target"])
    elif job["to"] == "files":
        rows.write.mode("overwrite").options(**WRITER_OPTIONS).parquet(job["target"])
    else:
        dated = rows.withColumn("dt", f.to_date("stored_at"))
        writer = dated.write.mode("overwrite").partitionBy("topic", "dt")
        writer = writer.options(**WRITER_OPTIONS).option("partitionOverwriteMode", "dynamic")
        writer.parquet(job["target"])


def main(memory: str, jar: str) -> None:
    """Run jobs until stdin ends, with *memory* MiB of heap."""
    cloudpickle.register_pickle_by_value(ndjson_source)  # type: ignore[no-untyped-call]
    settings = {"spark.driver.memory": f"{memory}m", **({"spark.jars": jar} if jar else {})}
    with spark_session("bench", MASTER, settings) as spark:
        spark.dataSource.register(ndjson_source.NdjsonSource)
        print("ready", flush=True)
        for line in sys.stdin:
            began = time.perf_counter()
            do(spark, json.loads(line))
            print(time.perf_counter() - began, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
