"""Hot keys and queues: those with far more messages than the others."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as f

from eruca_spark.charts import Picture
from eruca_spark.reports.report import Report, ReportTable, Rows

TOP_DEFAULT: Final = 20
MESSAGE_COLUMNS: Final = ("topic", "broker_name", "queue_id", "keys", "sharding_key", "size")
_BARS_MAX: Final = 20


def hot_keys_report(messages: DataFrame, top: int = TOP_DEFAULT) -> Report:
    """Return the report: the *top* keys and sharding keys of each topic, and the queues' shares."""
    keys = messages.select("topic", f.explode("keys").alias("key"))
    sharding_keys = messages.where("sharding_key IS NOT NULL").select(
        "topic", f.col("sharding_key").alias("key")
    )
    tables = [
        ReportTable("keys", "Hottest keys", _hottest(keys, top)),
        ReportTable("sharding-keys", "Hottest sharding keys", _hottest(sharding_keys, top)),
        ReportTable("queues", "Queues, the fullest of a topic first", _queues(messages)),
    ]
    return Report("hot-keys", "Hot keys and queues", tables, _draw)


def _hottest(keys: DataFrame, top: int) -> DataFrame:
    counted = keys.groupBy("topic", "key").agg(f.count(f.lit(1)).alias("messages"))
    of_topic = Window.partitionBy("topic")
    ranked = counted.withColumn(
        "share", f.col("messages") / f.sum("messages").over(of_topic)
    ).withColumn("rank", f.row_number().over(of_topic.orderBy(f.desc("messages"), "key")))
    return ranked.where(f.col("rank") <= top).orderBy("topic", "rank").drop("rank")


def _queues(messages: DataFrame) -> DataFrame:
    counted = messages.groupBy("topic", "broker_name", "queue_id").agg(
        f.count(f.lit(1)).alias("messages"), f.sum("size").alias("bytes")
    )
    mean = f.avg("messages").over(Window.partitionBy("topic"))
    return counted.withColumn("times_the_mean", f.col("messages") / mean).orderBy(
        "topic", f.desc("messages"), "broker_name", "queue_id"
    )


def _draw(rows: dict[str, Rows]) -> Picture:
    picture = Picture("Hot keys and queues", 2)
    keys = sorted(rows["keys"], key=lambda row: -row["messages"])[:_BARS_MAX]
    picture.bars(
        "Hottest keys",
        [f"{row['topic']}: {row['key']}" for row in keys],
        {"messages": [float(row["messages"]) for row in keys]},
        unit="messages",
    )
    queues = sorted(rows["queues"], key=lambda row: -row["times_the_mean"])[:_BARS_MAX]
    picture.bars(
        "Queues beside the mean of their topic",
        [f"{row['topic']}/{row['broker_name']}/{row['queue_id']}" for row in queues],
        {"messages": [row["times_the_mean"] for row in queues]},
        unit="times the mean",
    )
    return picture
