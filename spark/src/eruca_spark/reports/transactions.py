"""Transactions: their outcomes, their durations, and those that are still open.

The input is the control records of ``ERUCA_SYS_EVENTS``, see
:mod:`eruca.contract.transaction_events`. A decision contains all facts of its transaction, so a
deleted beginning does not matter. Ages are computed at the time of the last record.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from eruca_spark.reports.chart import Bars, Chart
from eruca_spark.reports.findings import TableRows
from eruca_spark.reports.report import Report, ReportTable
from eruca_spark.reports.times import spread
from eruca_spark.reports.transactions_findings import transactions_findings
from eruca_spark.reports.words import N_, words

EVENT_COLUMNS: Final = ("broker_name", "log_offset", "stored_at", "tag", "body")
_STATE_NAMES: Final = {
    "committed": N_("committed"),
    "rolled_back": N_("rolled back"),
    "parked": N_("parked"),
    "pending": N_("pending"),
}
STATES: Final = tuple(_STATE_NAMES)
_EVENT: Final = (
    "event STRING, transaction_id STRING, producer_group STRING, topic STRING, begun_at BIGINT, "
    "number INT, checks INT, outcome STRING, by STRING, decided_at BIGINT, parked_at BIGINT, "
    "reason STRING"
)
_OPEN_MAX: Final = 1_000  # listed open transactions


def transactions_report(events: DataFrame) -> Report:
    """Return the report."""
    told = events.where(f.col("tag").startswith("transaction_"))
    parsed = told.select(
        "broker_name",
        "log_offset",
        "stored_at",
        f.from_json(f.col("body").cast("string"), _EVENT).alias("one"),
    ).select("broker_name", "log_offset", "stored_at", "one.*")
    folded = fold(parsed)
    outcomes = (
        folded.groupBy("producer_group", "topic")
        .agg(
            f.count(f.lit(1)).alias("transactions"),
            *(f.count_if(f.col("state") == state).alias(state) for state in STATES),
            f.count_if(f.col("by") == "check").alias("decided_by_check"),
            f.sum("checks").alias("checks"),
            *spread("decision_ms"),
        )
        .orderBy("producer_group", "topic")
    )
    checks = (
        folded.groupBy("checks", "state")
        .agg(f.count(f.lit(1)).alias("transactions"))
        .orderBy("checks", "state")
    )
    still_open = (
        folded.where(f.col("state").isin("pending", "parked"))
        .select(
            "producer_group",
            "topic",
            "transaction_id",
            "state",
            "checks",
            "begun_at",
            "age_seconds",
        )
        .orderBy(f.desc("age_seconds"), "transaction_id")
        .limit(_OPEN_MAX)
    )
    tables = [
        ReportTable("outcomes", N_("Transactions by producer group and topic"), outcomes),
        ReportTable("checks", N_("By number of checks"), checks),
        ReportTable("open", N_("Open transactions, oldest first"), still_open),
    ]
    return Report("transactions", N_("Transactions"), tables, _charts, transactions_findings)


def fold(parsed: DataFrame) -> DataFrame:
    """Return one row for each transaction, from its events."""
    decided = f.col("event") == "transaction_decided"
    at = f.col("log_offset")  # a transaction is on one broker, whose log is ordered

    def latest(column: str) -> Column:
        return f.max_by(column, f.when(f.col(column).isNotNull(), at))

    folded = parsed.groupBy("broker_name", "transaction_id").agg(
        latest("producer_group").alias("producer_group"),
        latest("topic").alias("topic"),
        f.min("begun_at").alias("begun_ms"),
        f.max(f.when(decided, f.col("outcome"))).alias("outcome"),
        f.max(f.when(decided, f.col("by"))).alias("by"),
        f.max("decided_at").alias("decided_ms"),
        f.max("parked_at").alias("parked_ms"),
        f.coalesce(f.greatest(f.max("number"), f.max("checks")), f.lit(0)).alias("checks"),
    )
    last = parsed.agg(f.max("stored_at").alias("as_of"))
    state = (
        f.when(f.col("outcome") == "commit", "committed")
        .when(f.col("outcome") == "rollback", "rolled_back")
        .when(f.col("parked_ms").isNotNull(), "parked")
        .otherwise("pending")
    )
    return folded.crossJoin(f.broadcast(last)).select(
        "*",
        state.alias("state"),
        (f.col("decided_ms") - f.col("begun_ms")).alias("decision_ms"),
        f.timestamp_millis("begun_ms").alias("begun_at"),
        ((f.unix_millis("as_of") - f.col("begun_ms")) / 1000).alias("age_seconds"),
    )


def _charts(rows: Mapping[str, TableRows]) -> list[Chart]:
    outcomes = rows["outcomes"]
    by_checks: dict[int, int] = {}
    for row in rows["checks"]:
        by_checks[row["checks"]] = by_checks.get(row["checks"], 0) + row["transactions"]
    return [
        Bars(
            words(N_("By producer group and topic")),
            [f"{row['producer_group'] or '?'}: {row['topic'] or '?'}" for row in outcomes],
            {name: [float(row[state]) for row in outcomes] for state, name in _STATE_NAMES.items()},
            unit=N_("transactions"),
        ),
        Bars(
            words(N_("By number of checks")),
            [f"{checks}" for checks in by_checks],
            {N_("transactions"): [float(count) for count in by_checks.values()]},
            unit=N_("transactions"),
        ),
    ]
