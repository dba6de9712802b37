"""A driver that streams files to a topic, to be killed in the middle of a micro-batch.

``python sink_driver.py NAMESRV TOPIC FILES CHECKPOINT``
"""

from __future__ import annotations

import sys

from eruca_spark.session import spark_session
from support.spark import SMALL_SPARK


def run(namesrv: str, topic: str, files: str, checkpoint: str) -> None:
    """Stream all files that are there, one in each micro-batch."""
    with spark_session("sink", "local[2,4]", SMALL_SPARK) as spark:
        rows = spark.readStream.schema("body string, key string").option("maxFilesPerTrigger", 1)
        writer = rows.parquet(files).writeStream.format("eruca").trigger(availableNow=True)
        writer = writer.option("namesrv", namesrv).option("topic", topic)
        writer.option("checkpointLocation", checkpoint).start().awaitTermination()


if __name__ == "__main__":
    run(*sys.argv[1:])
