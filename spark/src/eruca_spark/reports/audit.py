"""An audit: does every queue have all its messages, each once, with times that never decrease?"""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame, Row, Window
from pyspark.sql import functions as f

from eruca_spark.charts import Picture
from eruca_spark.reports.report import Report, ReportTable, Rows

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
        ReportTable("queues", "Queues", queues),
        ReportTable("gaps", "Gaps", gaps),
    ]
    return Report("audit", "Audit", tables, _draw)


def is_sound(queue: Row) -> bool:
    """Tell whether a row of the table of queues has no fault."""
    return not (queue["missing"] or queue["duplicates"] or queue["times_back"] or queue["damaged"])


def _draw(rows: dict[str, Rows]) -> Picture:
    picture = Picture("Audit: red marks faults", 1)
    queues = sorted(rows["queues"], key=is_sound)[:_BARS_MAX]
    picture.bars(
        "Messages by queue",
        [f"{row['topic']}/{row['broker_name']}/{row['queue_id']}" for row in queues],
        {"messages": [float(row["messages"]) for row in queues]},
        unit="messages",
        marked=[not is_sound(row) for row in queues],
    )
    return picture
