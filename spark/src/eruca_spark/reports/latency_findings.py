"""Findings on delivery latency."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median
from typing import Final

from eruca_spark.reports.findings import Finding, TableRows, finding, moment, ms_text
from eruca_spark.reports.words import N_

SLOW_MS: Final = 1_000.0  # p99 until storage
SLOW_GROUP_MS: Final = 60_000.0  # p99 until a group was past a message
PEAK_TIMES: Final = 5.0  # the median minute of the same topic
PEAK_MS: Final = 100.0  # a peak below it bothers nobody
PEAK_MINUTES: Final = 3  # fewer minutes have no usual one


def latency_findings(rows: Mapping[str, TableRows]) -> list[Finding]:
    """Return the findings: until storage, its peaks, and until groups were past the messages."""
    found = [*_until_stored(rows["topics"]), *_peak(rows["minutes"])]
    if "groups" in rows:
        found += _until_passed(rows["groups"])
    else:
        found.append(
            finding("note", N_("Consumer groups were not examined; --groups includes them."))
        )
    order = {"bad": 0, "warn": 1}
    return sorted(found, key=lambda one: order.get(one.level, 2))


def _until_stored(topics: TableRows) -> list[Finding]:
    if not topics:
        return [finding("note", N_("There are no messages with a time of creation."))]
    slowest = max(topics, key=lambda row: row["p99_ms"])
    values = {
        "topic": slowest["topic"],
        "p99": ms_text(slowest["p99_ms"]),
        "worst": ms_text(slowest["worst_ms"]),
        "limit": ms_text(SLOW_MS),
    }
    found = []
    if slowest["p99_ms"] >= SLOW_MS:
        found.append(
            finding(
                "warn",
                N_(
                    "Storing is slow: 99 % of the messages of topic {topic} were stored within"
                    " {p99}, the slowest within {worst}."
                ),
                **values,
            )
        )
    else:
        found.append(
            finding(
                "good",
                N_(
                    "Storing is fast: 99 % of the messages of the slowest topic, {topic}, were"
                    " stored within {p99}, the slowest message within {worst}."
                ),
                **values,
            )
        )
    early = min(topics, key=lambda row: row["p50_ms"])
    if early["p50_ms"] < 0:
        found.append(
            finding(
                "warn",
                N_(
                    "Clocks differ: half of the messages of topic {topic} were stored {by} or more"
                    " before they were created. Synchronise producers and brokers."
                ),
                topic=early["topic"],
                by=ms_text(-early["p50_ms"]),
            )
        )
    return found


def _peak(minutes: TableRows) -> list[Finding]:
    by_topic: dict[str, list[float]] = {}
    for row in minutes:
        by_topic.setdefault(row["topic"], []).append(row["p99_ms"])
    peaks = [
        row
        for row in minutes
        if len(by_topic[row["topic"]]) >= PEAK_MINUTES
        and row["p99_ms"] >= max(PEAK_MS, PEAK_TIMES * median(by_topic[row["topic"]]))
    ]
    if not peaks:
        return []
    worst = max(peaks, key=lambda row: row["p99_ms"])
    return [
        finding(
            "warn",
            N_(
                "Topic {topic} had a peak: in the minute of {minute} its p99 was {p99}, usually"
                " {usual}."
            ),
            topic=worst["topic"],
            minute=moment(worst["minute"]),
            p99=ms_text(worst["p99_ms"]),
            usual=ms_text(median(by_topic[worst["topic"]])),
        )
    ]


def _until_passed(groups: TableRows) -> list[Finding]:
    if not groups:
        return [finding("note", N_("No consumer group has committed or acknowledged a message."))]
    found = []
    behind = [row for row in groups if row["backlog"]]
    if behind:
        worst = max(behind, key=lambda row: row["backlog"])
        found.append(
            finding(
                "warn",
                N_(
                    "Group {group} is behind: {backlog:,} messages of topic {topic} wait, the"
                    " oldest since {since}."
                ),
                group=worst["consumer_group"],
                topic=worst["topic"],
                backlog=worst["backlog"],
                since=moment(worst["oldest_stored_at"]),
            )
        )
    else:
        found.append(finding("good", N_("No group is behind: each is past every message.")))
    timed = [row for row in groups if row["p99_ms"] is not None]
    if timed:
        slowest = max(timed, key=lambda row: row["p99_ms"])
        found.append(
            finding(
                "warn" if slowest["p99_ms"] >= SLOW_GROUP_MS else "good",
                N_(
                    "The slowest group, {group}, was past 99 % of the messages of topic {topic}"
                    " within {p99}."
                ),
                group=slowest["consumer_group"],
                topic=slowest["topic"],
                p99=ms_text(slowest["p99_ms"]),
            )
        )
    return found
