"""A client of Spark Connect that reads and writes topics, and leaves what it has seen as JSON.

``python connect_driver.py REMOTE QUERY_URL NAMESRVS FROM TO DIRECTORY [--registers]``

It is a process of its own, because a client sets variables that end all sessions without Connect.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, Final

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from eruca_spark.session import register_source

SEEN: Final = "seen.json"  # in DIRECTORY; not its output, to which Spark writes, too


def run(*, remote: str, url: str, namesrvs: str, source: str, target: str, directory: str) -> None:
    """Read the topic *source*, write to the topic *target*; leave what was seen in *directory*."""
    spark = SparkSession.builder.remote(remote).getOrCreate()
    if "--registers" in sys.argv:
        register_source(spark)
    seen: dict[str, Any] = {"kind": f"{type(spark).__module__}"}

    rows = spark.read.format("eruca").option("url", url).option("topic", source).load()
    seen["rows"] = rows.count()
    seen["last"] = rows.orderBy(f.desc("body")).select(f.col("body").cast("string")).collect()[0][0]
    seen["joined"] = rows.join(rows, ["broker_name", "queue_id", "queue_offset"]).count()
    spark.sql(
        f"CREATE TEMPORARY VIEW seen USING eruca OPTIONS (url '{url}', subscribePattern '{source}')"
    )
    seen["view"] = spark.sql("SELECT count(*) FROM seen WHERE queue_id = 0").collect()[0][0]

    made = spark.range(500).select(
        f.concat(f.lit("made "), "id").alias("body"), f.array(f.lit("k")).alias("keys")
    )
    made.write.format("eruca").mode("append").options(
        namesrv=namesrvs, topic=target, idempotencyPrefix="load-1"
    ).save()
    made.write.format("eruca").mode("append").options(
        namesrv=namesrvs, topic=target, idempotencyPrefix="load-1"
    ).save()

    for _ in range(2):
        stream = spark.readStream.format("eruca").options(
            url=url, subscribe=source, maxOffsetsPerTrigger="700"
        )
        writer = stream.load().select("body").writeStream.format("eruca")
        query = (
            writer.options(namesrv=namesrvs, topic=target)
            .option("checkpointLocation", str(Path(directory) / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        commits = (Path(directory) / "checkpoint" / "commits").glob("[0-9]*")
        seen.setdefault("batches", []).append(len(list(commits)))

    seen["errors"] = [_error(spark, options) for options in ({"topic": "no-such"}, {"topc": "a"})]
    (Path(directory) / SEEN).write_text(json.dumps(seen))


def _error(spark: SparkSession, options: dict[str, str]) -> str:
    try:
        spark.read.format("eruca").options(url="http://127.0.0.1:1", **options).option(
            "retrySeconds", "1"
        ).load().count()
    except PySparkException as error:
        return str(error)
    return "no error"


if __name__ == "__main__":
    names = ("remote", "url", "namesrvs", "source", "target", "directory")
    run(**dict(zip(names, sys.argv[1:7], strict=True)))
