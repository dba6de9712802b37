"""An audit: does every queue have all its messages, each once, with times that never decrease?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as f

from eruca_spark.reports.audit_findings import audit_findings, is_sound
from eruca_spark.reports.chart import Bars, Chart
from eruca_spark.reports.findings import TableRows
from eruca_spark.reports.report import Report, ReportTable
from eruca_spark.reports.words import N_, words

_QUEUE: Final = ("topic", "broker_name", "queue_id")
MESSAGE_COLUMNS: Final = (*_QUEUE, "queue_offset", "stored_at", "damage")
_GAPS_MAX: Final = 1_000  # maximum number of listed gaps
_BARS_MAX: Final = 40


def audit_report(messages: DataFrame) -> Report:
    """Return the report. Retention has shortened a queue that does not begin at 0."""
    rows = messages.select(*MESSAGE_COLUMNS)
    in_order = Window.partitionBy(*_QUEUE).orderBy("queue_offset", "stored_at")
    beside = rows.select(
        *_QUEUE,
        "queue_offset",
        "damage",
        f.lag("queue_offset").over(in_order).alias("before"),
        (f.lag("stored_at").over(in_order) > f.col("stored_at")).alias("goes_back"),
    )
    skipped = f.greatest(f.col("queue_offset") - f.col("before") - 1, f.lit(0))
    queues = (
        beside.groupBy(*_QUEUE)
        .agg(
            f.count(f.lit(1)).alias("messages"),
            f.min("queue_offset").alias("first_offset"),
            f.max("queue_offset").alias("last_offset"),
            f.coalesce(f.sum(skipped), f.lit(0)).alias("missing"),
            f.count_if(f.col("queue_offset") == f.col("before")).alias("duplicates"),
            f.count_if("goes_back").alias("times_back"),
            f.count("damage").alias("damaged"),
        )
        .orderBy(*_QUEUE)
    )
    gaps = (
        beside.where(skipped > 0)
        .select(
            *_QUEUE,
            (f.col("before") + 1).alias("from_offset"),
            f.col("queue_offset").alias("to_offset"),
            skipped.alias("missing"),
        )
        .orderBy(*_QUEUE, "from_offset")
        .limit(_GAPS_MAX)
    )
    tables = [
        ReportTable("queues", N_("Queues"), queues),
        ReportTable("gaps", N_("Gaps"), gaps),
    ]
    return Report("audit", N_("Audit"), tables, _charts, audit_findings)


def without_stranded(messages: DataFrame) -> DataFrame:
    """Omit damaged messages before the first other one of their queue.

    In a lake whose old days were dropped, they would seem to have a gap behind them: their day is
    unknown, so they stay for longer.
    """
    in_queue = Window.partitionBy(*_QUEUE)
    sound_offset = f.when(f.col("damage").isNull(), f.col("queue_offset"))
    first = messages.withColumn("first_sound", f.min(sound_offset).over(in_queue))
    is_before = f.col("damage").isNotNull() & (
        f.coalesce(f.col("queue_offset") < f.col("first_sound"), f.lit(False))
    )
    return first.where(~is_before).drop("first_sound")


def _charts(rows: Mapping[str, TableRows]) -> list[Chart]:
    queues = sorted(rows["queues"], key=is_sound)[:_BARS_MAX]
    return [
        Bars(
            words(N_("Messages by queue; red or a sign marks faults")),
            [f"{row['topic']}/{row['broker_name']}/{row['queue_id']}" for row in queues],
            {N_("messages"): [float(row["messages"]) for row in queues]},
            unit=N_("messages"),
            marked=[not is_sound(row) for row in queues],
        )
    ]
