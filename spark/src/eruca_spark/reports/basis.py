"""The basis of a report: the messages that it read, and those that it lacks.

A reader must not take a part for the whole. So a page names brokers that were away, queues with
gaps, topics without a message, damaged messages, and a broker that became silent before the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from eruca_spark.reports.findings import Finding, TableRows, finding, moment, ms_text
from eruca_spark.reports.words import N_, counted_words

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

BASIS_COLUMNS: Final = (
    "topic",
    "broker_name",
    "queue_id",
    "queue_offset",
    "stored_at",
    "damage",
)
SILENT_MIN: Final = timedelta(minutes=1)
SILENT_SHARE: Final = 0.25  # of the whole time


@dataclass(frozen=True, slots=True)
class Lacks:
    """The losses that the source knows of."""

    away: Sequence[str] = ()  # a sentence of the query service for each broker that was away
    deleted_count: int = 0  # messages that retention deleted before an export read them
    may_lack: bool = False  # whether losses were tolerated (failOnDataLoss=false)


@dataclass(frozen=True, slots=True)
class Basis:
    """The messages of a report."""

    queues: TableRows  # one row for each queue with a message
    topics: Sequence[str]  # those that were asked for; empty: all of a lake
    lacks: Lacks

    @property
    def message_count(self) -> int:
        """The messages read, including damaged ones."""
        return sum(row["messages"] for row in self.queues)

    @property
    def period(self) -> tuple[datetime, datetime] | None:
        """The times of storage of the oldest and the newest message."""
        # A queue whose messages are all damaged has no times.
        timed = [row for row in self.queues if row["first_stored_at"] is not None]
        if not timed:
            return None
        oldest = min(row["first_stored_at"] for row in timed)
        return oldest, max(row["last_stored_at"] for row in timed)


def basis_table(messages: DataFrame) -> DataFrame:
    """Return a row for each queue of *messages*, which have ``BASIS_COLUMNS``."""
    from pyspark.sql import functions as f

    return messages.groupBy("topic", "broker_name", "queue_id").agg(
        f.count(f.lit(1)).alias("messages"),
        f.count_distinct("queue_offset").alias("offsets"),
        f.count("damage").alias("damaged"),
        f.min("queue_offset").alias("first_offset"),
        f.max("queue_offset").alias("last_offset"),
        f.min("stored_at").alias("first_stored_at"),
        f.max("stored_at").alias("last_stored_at"),
    )


def basis_findings(basis: Basis) -> list[Finding]:
    """Return a finding for each reason why the report may lack something."""
    found = [
        finding("warn", N_("A broker was away, so its messages are missing: {detail}"), detail=one)
        for one in basis.lacks.away
    ]
    if deleted := basis.lacks.deleted_count:
        found.append(
            Finding(
                "warn",
                counted_words(
                    deleted,
                    N_("Retention deleted one message before an export to the lake."),
                    N_("Retention deleted {count:,} messages before an export to the lake."),
                ),
            )
        )
    found += [*_empty_topics(basis), *_gaps(basis), *_silent(basis), *_damaged(basis)]
    if not found and basis.queues:
        if basis.lacks.may_lack:
            return [
                finding(
                    "note",
                    N_(
                        "Losses were tolerated (failOnDataLoss=false); the command named them on"
                        " stderr."
                    ),
                )
            ]
        return [finding("good", N_("Nothing is missing: every queue was read without a gap."))]
    return found


def _empty_topics(basis: Basis) -> list[Finding]:
    held = {row["topic"] for row in basis.queues}
    return [
        finding("warn", N_("Topic {topic} has no messages here."), topic=topic)
        for topic in basis.topics
        if topic not in held
    ]


def _gaps(basis: Basis) -> list[Finding]:
    gaps = {
        f"{row['topic']}/{row['broker_name']}/{row['queue_id']}": row["last_offset"]
        - row["first_offset"]
        + 1
        - row["offsets"]
        for row in basis.queues
    }
    missing = sum(gaps.values())
    if not missing:
        return []
    worst = max(gaps, key=lambda queue: gaps[queue])
    return [
        Finding(
            "warn",
            counted_words(
                missing,
                N_("One message is missing within a queue: {queue}."),
                N_("{count:,} messages are missing within queues, most of them in {queue}."),
                queue=worst,
            ),
        )
    ]


def _silent(basis: Basis) -> list[Finding]:
    if basis.period is None:
        return []
    oldest, newest = basis.period
    last: dict[str, datetime] = {}
    for row in basis.queues:
        name = row["broker_name"]
        if row["last_stored_at"] is None:
            continue
        last[name] = max(last.get(name, row["last_stored_at"]), row["last_stored_at"])
    limit = max(SILENT_MIN, (newest - oldest) * SILENT_SHARE)
    return [
        finding(
            "warn",
            N_(
                "Broker {broker} became silent: its last message is from {at}, {by} before the"
                " newest of the others."
            ),
            broker=name,
            at=moment(at),
            by=ms_text((newest - at) / timedelta(milliseconds=1)),
        )
        for name, at in sorted(last.items())
        if newest - at > limit
    ]


def _damaged(basis: Basis) -> list[Finding]:
    damaged = sum(row["damaged"] for row in basis.queues)
    if not damaged:
        return []
    return [
        Finding(
            "warn",
            counted_words(
                damaged,
                N_("One message is damaged."),
                N_("{count:,} messages are damaged."),
            ),
        )
    ]
