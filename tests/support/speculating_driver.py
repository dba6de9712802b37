"""A driver whose Spark runs a task twice at once: it reads a topic, and copies it to another.

``python speculating_driver.py MASTER QUERY_URL NAMESRVS FROM TO DIRECTORY``

The first attempt of one task stops in the middle. Spark starts a second one, because the first is
late. Once that has come to the same row, both go on, so they read and send at the same time.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Final

from pyspark import TaskContext
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from eruca_spark.session import spark_session
from support.spark_classes import QUICK_JAVA

SETTINGS: Final = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.minTaskRuntime": "100ms",
    "spark.executor.memory": "512m",
    "spark.executor.cores": "1",
    "spark.ui.enabled": "false",
    "spark.driver.extraJavaOptions": QUICK_JAVA,
    "spark.executor.extraJavaOptions": QUICK_JAVA,
}
SEEN: Final = "seen.json"  # not its output, to which Java and Spark write, too
LATE: Final = "order 1500"  # the body of the row at which the first attempt stops


def run(*, master: str, url: str, namesrvs: str, source: str, target: str, directory: str) -> None:
    """Read and write under speculation; leave the numbers of rows in *directory*."""
    with spark_session("speculating", master, SETTINGS) as spark:
        reader = spark.read.format("eruca").options(
            url=url,
            topic=source,
            partitionRows="500",
            columns="broker_name,queue_id,queue_offset,body",
        )
        rows = reader.load()
        read = with_straggler(rows, Path(directory) / "reading").collect()
        copied = with_straggler(rows, Path(directory) / "writing").select("body")
        writer = copied.write.format("eruca").mode("append")
        writer.options(namesrv=namesrvs, topic=target).save()
        places = {(row.broker_name, row.queue_id, row.queue_offset) for row in read}
        seen = {"read": len(read), "distinct": len(places)}
        (Path(directory) / SEEN).write_text(json.dumps(seen))


def with_straggler(rows: DataFrame, meeting: Path) -> DataFrame:
    """Return *rows*, of which one makes its first attempt wait for the second at *meeting*."""
    os.mkfifo(meeting)
    place, late = str(meeting), LATE

    @f.udf("string", useArrow=False)  # the other kind needs pandas
    def straggling(body: str) -> str:
        if body == late:
            context = TaskContext.get()
            assert context is not None
            attempt = context.attemptNumber()
            with Path(f"{place}-attempts").open("a") as attempts:
                attempts.write(f"{attempt}\n")
            if attempt < 2:
                with Path(place).open("r" if attempt == 0 else "w"):
                    pass  # opening it waits until the other one opens it
        return body

    body: Column = straggling(f.col("body").cast("string"))
    return rows.withColumn("body", body)


if __name__ == "__main__":
    names = ("master", "url", "namesrvs", "source", "target", "directory")
    run(**dict(zip(names, sys.argv[1:], strict=True)))
