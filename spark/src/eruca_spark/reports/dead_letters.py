"""Dead letters by group, origin and reason.

They are in the topics ``%DLQ%group``. Their properties contain the origin and the reason. Dead
letters written by RocketMQ have fewer properties, and their reason is null.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from eruca_spark.reports.chart import Bars, Chart
from eruca_spark.reports.dead_letters_findings import dead_letters_findings
from eruca_spark.reports.findings import TableRows
from eruca_spark.reports.report import Report, ReportTable
from eruca_spark.reports.words import N_, words

PREFIX: Final = "%DLQ%"
MESSAGE_COLUMNS: Final = ("topic", "stored_at", "message_id", "properties", "reconsume_times")
_ERROR_SHOWN: Final = 120  # characters of an error
_BARS_MAX: Final = 20


def dead_letters_report(messages: DataFrame) -> Report:
    """Return the report on the dead letters among *messages*."""
    letters = messages.where(f.col("topic").startswith(PREFIX)).select(
        f.substring("topic", len(PREFIX) + 1, 1_000).alias("consumer_group"),
        _property("DLQ_ORIGIN_TOPIC").alias("origin_topic"),
        _property("ERUCA_DEAD_REASON").alias("reason"),
        f.substring(_property("ERUCA_DEAD_ERROR"), 1, _ERROR_SHOWN).alias("error"),
        f.col("reconsume_times").alias("attempts"),  # including the last one
        "stored_at",
        "message_id",
    )
    reasons = (
        letters.groupBy("consumer_group", "origin_topic", "reason")
        .agg(
            f.count(f.lit(1)).alias("dead_letters"),
            f.max("attempts").alias("attempts_max"),
            f.min("stored_at").alias("first_at"),
            f.max("stored_at").alias("last_at"),
            f.max_by("error", "stored_at").alias("last_error"),
            f.max_by("message_id", "stored_at").alias("last_message_id"),
        )
        .orderBy(f.desc("dead_letters"), "consumer_group", "origin_topic", "reason")
    )
    attempts = (
        letters.groupBy("consumer_group", "attempts")
        .agg(f.count(f.lit(1)).alias("dead_letters"))
        .orderBy("consumer_group", "attempts")
    )
    days = (
        letters.groupBy("consumer_group", f.to_date("stored_at").alias("day"))
        .agg(f.count(f.lit(1)).alias("dead_letters"))
        .orderBy("consumer_group", "day")
    )
    tables = [
        ReportTable("reasons", N_("Dead letters by group, origin and reason"), reasons),
        ReportTable("attempts", N_("After how many attempts"), attempts),
        ReportTable("days", N_("By day"), days),
    ]
    return Report("dead-letters", N_("Dead letters"), tables, _charts, dead_letters_findings)


def _property(name: str) -> Column:
    return f.element_at("properties", f.lit(name))


def _charts(rows: Mapping[str, TableRows]) -> list[Chart]:
    reasons = rows["reasons"][:_BARS_MAX]
    return [
        Bars(
            words(N_("By group, origin and reason")),
            [
                f"{row['consumer_group']}: {row['origin_topic'] or '?'}, {row['reason'] or '?'}"
                for row in reasons
            ],
            {N_("dead letters"): [float(row["dead_letters"]) for row in reasons]},
            unit=N_("dead letters"),
        )
    ]
