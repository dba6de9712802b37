"""Delivery latency: from the producer to the broker, and from there to each consumer group.

A group has passed a message when it has committed a later offset, or has acknowledged its delivery.
The control records of ``ERUCA_SYS_EVENTS`` contain both. Messages before a group's start do not
count. Messages that no commit has passed are the group's backlog. A message that was sent back has
been passed as well: its retries are messages of the retry topic. Retries and dead letters are
copies of older messages, so their latency to the broker does not count.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from eruca_spark.reports.chart import LINES_MAX, Bars, Chart, Lines
from eruca_spark.reports.findings import TableRows
from eruca_spark.reports.latency_findings import latency_findings
from eruca_spark.reports.report import Report, ReportTable, in_utc
from eruca_spark.reports.times import ms_between, spread
from eruca_spark.reports.words import N_, words

_QUEUE = ("topic", "broker_name", "queue_id")
MESSAGE_COLUMNS: Final = (*_QUEUE, "queue_offset", "stored_at", "born_at")
EVENT_COLUMNS: Final = ("broker_name", "stored_at", "tag", "body")
_NUMBERS = "ARRAY<ARRAY<BIGINT>>"


def latency_report(messages: DataFrame, events: DataFrame | None) -> Report:
    """Return the report.

    Args:
        messages: Messages of any topics, with at least ``MESSAGE_COLUMNS``.
        events: Control records (``EVENT_COLUMNS``) of the same brokers; None: no report on groups.
    """
    own = ~(f.col("topic").startswith("%RETRY%") | f.col("topic").startswith("%DLQ%"))
    stored = messages.where(own & f.col("born_at").isNotNull()).select(
        "topic", "stored_at", ms_between("born_at", "stored_at").alias("ms")
    )
    tables = [
        ReportTable("topics", N_("From made to stored, by topic"), _to_stored(stored, "topic")),
        ReportTable(
            "minutes",
            N_("From made to stored, by topic and minute"),
            _to_stored(
                stored.withColumn("minute", f.date_trunc("minute", "stored_at")), "topic", "minute"
            ),
        ),
    ]
    if events is not None:
        by_group = ReportTable(
            "groups", N_("From stored until a group was past it"), _to_passed(messages, events)
        )
        tables.append(by_group)
    return Report("latency", N_("Delivery latency"), tables, _charts, latency_findings)


def _to_stored(stored: DataFrame, *by: str) -> DataFrame:
    counted = stored.groupBy(*by).agg(f.count("ms").alias("messages"), *spread("ms"))
    return counted.orderBy(*by)


def _to_passed(messages: DataFrame, events: DataFrame) -> DataFrame:
    commits, acks, starts = commits_of(events), acks_of(events), starts_of(events)
    groups = commits.select("consumer_group", *_QUEUE).union(acks.select("consumer_group", *_QUEUE))
    own = (
        messages.select(*_QUEUE, "queue_offset", "stored_at")
        .join(groups.distinct(), [*_QUEUE])
        .join(starts, ["consumer_group", *_QUEUE], "left")
        .where("start_offset IS NULL OR queue_offset >= start_offset")
        .drop("start_offset")
    )
    passed = _first_commits(own, commits).join(
        acks, ["consumer_group", *_QUEUE, "queue_offset"], "left"
    )
    measured = passed.withColumn("passed_at", f.least("committed_at", "acked_at")).withColumn(
        "ms", ms_between("stored_at", "passed_at")
    )
    oldest = f.min(f.when(f.col("passed_at").isNull(), f.col("stored_at")))
    return (
        measured.groupBy("consumer_group", "topic")
        .agg(
            f.count("passed_at").alias("messages"),
            *spread("ms"),
            f.count_if(f.col("passed_at").isNull()).alias("backlog"),
            oldest.alias("oldest_stored_at"),
        )
        .orderBy("consumer_group", "topic")
    )


def _first_commits(own: DataFrame, commits: DataFrame) -> DataFrame:
    """Return *own* with the time of the first commit beyond each message.

    Each commit is placed among the messages, at the last offset that it covers. Searching from the
    end of the queue, the result is the earliest commit at or after a message. A range join would
    compare every message with every commit.
    """
    both = own.withColumn("committed_at", f.lit(None).cast("timestamp")).unionByName(
        commits.select(
            "consumer_group",
            *_QUEUE,
            (f.col("next_offset") - 1).alias("queue_offset"),
            f.lit(None).cast("timestamp").alias("stored_at"),
            f.col("at").alias("committed_at"),
        )
    )
    behind = (
        Window.partitionBy("consumer_group", *_QUEUE)
        .orderBy(f.desc("queue_offset"))
        .rangeBetween(Window.unboundedPreceding, Window.currentRow)
    )
    earliest = both.withColumn("committed_at", f.min("committed_at").over(behind))
    return earliest.where("stored_at IS NOT NULL")


# --- Control records ------------------------------------------------------------------------------


def commits_of(events: DataFrame) -> DataFrame:
    """Return the commits: consumer_group, queue, ``next_offset``, ``at``."""
    told = _told(events, ["offsets_committed", "locks_released"])
    offsets = f.explode(f.from_json(f.get_json_object("json", "$.offsets"), "ARRAY<ARRAY<STRING>>"))
    return told.select("consumer_group", "broker_name", "at", offsets.alias("one")).select(
        "consumer_group",
        f.get("one", 0).alias("topic"),
        "broker_name",
        _number("one", 1).cast("int").alias("queue_id"),
        _number("one", 2).alias("next_offset"),
        "at",
    )


def acks_of(events: DataFrame) -> DataFrame:
    """Return the acknowledged deliveries: consumer_group, queue, ``queue_offset``, ``acked_at``."""
    told = _told(events, ["deliveries_acked"])
    queues = f.explode(f.from_json(f.get_json_object("json", "$.queues"), "ARRAY<ARRAY<STRING>>"))
    leases = f.explode(f.from_json(f.get("queue", 2), _NUMBERS))
    each = (
        told.select("consumer_group", "broker_name", "at", queues.alias("queue"))
        .select("*", leases.alias("lease"))
        .select(
            "consumer_group",
            f.get("queue", 0).alias("topic"),
            "broker_name",
            _number("queue", 1).cast("int").alias("queue_id"),
            f.get("lease", 0).alias("queue_offset"),
            "at",
        )
    )
    return each.groupBy("consumer_group", *_QUEUE, "queue_offset").agg(
        f.min("at").alias("acked_at")
    )


def starts_of(events: DataFrame) -> DataFrame:
    """Return the groups' starts: consumer_group, queue, ``start_offset``."""
    told = _told(events, ["starts_resolved"])
    topics = f.explode(f.from_json(f.get_json_object("json", "$.topics"), "ARRAY<ARRAY<STRING>>"))
    starts = f.explode(f.from_json(f.get("met", 1), "ARRAY<ARRAY<STRING>>"))
    each = (
        told.select("consumer_group", "broker_name", "at", topics.alias("met"))
        .select("*", starts.alias("start"))
        .select(
            "consumer_group",
            f.get("met", 0).alias("topic"),
            "broker_name",
            _number("start", 0).cast("int").alias("queue_id"),
            _number("start", 1).alias("start_offset"),
        )
    )
    return each.groupBy("consumer_group", *_QUEUE).agg(f.min("start_offset").alias("start_offset"))


def _told(events: DataFrame, tags: list[str]) -> DataFrame:
    return events.where(f.col("tag").isin(tags)).select(
        "broker_name",
        f.col("stored_at").alias("at"),
        f.col("body").cast("string").alias("json"),
        f.get_json_object(f.col("body").cast("string"), "$.group").alias("consumer_group"),
    )


def _number(array: str, index: int) -> Column:
    return f.get(array, index).cast("bigint")


# --- The charts -----------------------------------------------------------------------------------


def _charts(rows: Mapping[str, TableRows]) -> list[Chart]:
    by_topic: dict[str, tuple[list[datetime], list[float]]] = {}
    for row in rows["minutes"]:
        times, values = by_topic.setdefault(row["topic"], ([], []))
        times.append(in_utc(row["minute"]))
        values.append(row["p99_ms"])
    slowest = sorted(by_topic, key=lambda topic: -max(by_topic[topic][1]))[:LINES_MAX]
    title = (
        N_("From made to stored, p99 by minute")
        if len(by_topic) <= LINES_MAX
        else N_("From made to stored, p99 by minute, the {count} slowest of {topics} topics")
    )
    charts: list[Chart] = [
        Lines(
            words(title, count=LINES_MAX, topics=len(by_topic)),
            {topic: by_topic[topic] for topic in by_topic if topic in slowest},
            unit="ms",
        )
    ]
    if "groups" in rows:
        groups = rows["groups"]
        charts.append(
            Bars(
                words(N_("From stored until a group was past it, p99")),
                [f"{row['consumer_group']}: {row['topic']}" for row in groups],
                {"p99": [row["p99_ms"] or 0.0 for row in groups]},
                unit="ms",
            )
        )
    return charts
