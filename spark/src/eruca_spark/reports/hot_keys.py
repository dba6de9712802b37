"""Hot keys and queues: those with far more messages than the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as f

from eruca_spark.reports.chart import Bars, Chart
from eruca_spark.reports.findings import TableRows
from eruca_spark.reports.hot_keys_findings import SKEWED_TIMES, hot, hot_keys_findings
from eruca_spark.reports.report import Report, ReportTable
from eruca_spark.reports.words import N_, words

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
        ReportTable("keys", N_("Hottest keys"), _hottest(keys, top)),
        ReportTable("sharding-keys", N_("Hottest sharding keys"), _hottest(sharding_keys, top)),
        ReportTable("queues", N_("Queues, the fullest of a topic first"), _queues(messages)),
    ]
    return Report("hot-keys", N_("Hot keys and queues"), tables, _charts, hot_keys_findings)


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


def _charts(rows: Mapping[str, TableRows]) -> list[Chart]:
    keys = sorted(rows["keys"], key=lambda row: -row["messages"])[:_BARS_MAX]
    queues = sorted(rows["queues"], key=lambda row: -row["times_the_mean"])[:_BARS_MAX]
    hottest = hot(rows["keys"])
    return [
        Bars(
            words(N_("Hottest keys")),
            _without_only_topic([(row["topic"], ": ", row["key"]) for row in keys]),
            {N_("messages"): [float(row["messages"]) for row in keys]},
            unit=N_("messages"),
            marked=[row in hottest for row in keys],
        ),
        Bars(
            words(N_("Queues beside the mean of their topic")),
            _without_only_topic(
                [(row["topic"], "/", f"{row['broker_name']}/{row['queue_id']}") for row in queues]
            ),
            {N_("messages"): [row["times_the_mean"] for row in queues]},
            unit=N_("times the mean"),
            marked=[row["times_the_mean"] >= SKEWED_TIMES for row in queues],
        ),
    ]


def _without_only_topic(labels: Sequence[tuple[str, str, str]]) -> list[str]:
    """Return labels, with their topics only if there are several: narrow charts cut the end."""
    if len({topic for topic, _, _ in labels}) == 1:
        return [rest for _, _, rest in labels]
    return ["".join(label) for label in labels]
