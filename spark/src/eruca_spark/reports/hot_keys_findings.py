"""Findings on hot keys and queues."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median
from typing import Final

from eruca_spark.reports.findings import Finding, TableRow, TableRows, finding, share_text
from eruca_spark.reports.words import N_, counted_words

HOT_SHARE: Final = 0.1  # of a topic's keys: below it no key is hot
HOT_TIMES: Final = 3  # the median of the topic's other listed keys
MOST: Final = 0.5  # of a topic's keys: such a key is hot, however few the others are
SKEWED_TIMES: Final = 1.5  # the mean of the topic's queues; of two queues, 3 to 1


def hot_keys_findings(rows: Mapping[str, TableRows]) -> list[Finding]:
    """Return the findings: on keys, on sharding keys, and on queues."""
    if not rows["queues"]:
        return [finding("note", N_("There are no messages."))]
    found = [
        *_on_keys(
            rows["keys"],
            one=N_(
                "One key is hot: {key} has {share} of the keys of topic {topic}"
                " ({messages:,} messages)."
            ),
            more=N_(
                "{count:,} keys are hot. The hottest is {key} with {share} of the keys of topic"
                " {topic} ({messages:,} messages)."
            ),
            quiet=N_("Nothing is hot: the busiest key, {key} of topic {topic}, has {share}."),
            few=N_(
                "No key stands out, but the topic has few: the busiest, {key} of topic {topic}, has"
                " {share}."
            ),
        ),
        *([] if rows["keys"] else [finding("note", N_("No message has a key."))]),
        *_on_keys(
            rows["sharding-keys"],
            one=N_(
                "One sharding key is hot: {key} has {share} of topic {topic} ({messages:,}"
                " messages), all in one queue."
            ),
            more=N_(
                "{count:,} sharding keys are hot. The hottest is {key} with {share} of topic"
                " {topic} ({messages:,} messages), all in one queue."
            ),
            quiet=N_("No sharding key is hot: the busiest, {key} of topic {topic}, has {share}."),
            few=N_(
                "No sharding key stands out, but the topic has few: the busiest, {key} of topic"
                " {topic}, has {share}."
            ),
        ),
        _on_queues(rows["queues"]),
    ]
    # A fault first: the first finding is the headline.
    return sorted(found, key=lambda one: one.level != "warn")


def hot(rows: TableRows) -> list[TableRow]:
    """Return the hot keys, the hottest first."""
    by_topic: dict[str, list[TableRow]] = {}
    for row in rows:
        by_topic.setdefault(row["topic"], []).append(row)
    found = []
    for listed in by_topic.values():
        for row in listed:
            others = [one["messages"] for one in listed if one is not row]
            stands_out = not others or row["messages"] >= HOT_TIMES * median(others)
            if row["share"] >= MOST or (row["share"] >= HOT_SHARE and stands_out):
                found.append(row)
    return sorted(found, key=lambda row: -row["share"])


def _on_keys(rows: TableRows, *, one: str, more: str, quiet: str, few: str) -> list[Finding]:
    if not rows:
        return []
    found = hot(rows)
    top = found[0] if found else max(rows, key=lambda row: row["share"])
    values = {
        "key": repr(top["key"]),
        "topic": top["topic"],
        "share": share_text(top["share"]),
        "messages": top["messages"],
    }
    if found:
        return [Finding("warn", counted_words(len(found), one, more, **values))]
    return [finding("good", quiet if top["share"] < HOT_SHARE else few, **values)]


def _on_queues(queues: TableRows) -> Finding:
    of_topics: dict[str, int] = {}
    for row in queues:
        of_topics[row["topic"]] = of_topics.get(row["topic"], 0) + 1
    beside = [row for row in queues if of_topics[row["topic"]] > 1]
    if not beside:
        return finding("note", N_("Each topic has messages in one queue only."))
    top = max(beside, key=lambda row: row["times_the_mean"])
    values = {
        "queue": f"{top['topic']}/{top['broker_name']}/{top['queue_id']}",
        "times": top["times_the_mean"],
        "messages": top["messages"],
    }
    if top["times_the_mean"] >= SKEWED_TIMES:
        return finding(
            "warn",
            N_(
                "Queues are skewed: {queue} has {times:.1f} times the mean of its topic"
                " ({messages:,} messages)."
            ),
            **values,
        )
    return finding(
        "good",
        N_("Queues are even: the fullest, {queue}, has {times:.1f} times the mean of its topic."),
        **values,
    )
