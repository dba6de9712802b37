"""Findings on dead letters."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import median
from typing import Final

from eruca_spark.reports.findings import Finding, TableRows, finding, moment, share_text
from eruca_spark.reports.words import N_, counted_words

MOST: Final = 0.5  # of all dead letters
RISE_TIMES: Final = 3  # the median of the group's earlier days


def dead_letters_findings(rows: Mapping[str, TableRows]) -> list[Finding]:
    """Return the findings: how many, where most come from, and whether they become more."""
    reasons = rows["reasons"]
    if not reasons:
        return [finding("good", N_("There are no dead letters."))]
    total = sum(row["dead_letters"] for row in reasons)
    newest = max(reasons, key=lambda row: row["last_at"])
    found = [
        Finding(
            "warn",
            counted_words(
                total,
                N_("There is one dead letter, of group {group}, from {at}."),
                N_("There are {count:,} dead letters; the newest, of group {group}, is from {at}."),
                group=newest["consumer_group"],
                at=moment(newest["last_at"]),
            ),
        )
    ]
    if total > 1:
        found.append(_origin(reasons, total))
    found += _rise(rows["days"])
    without = sum(row["dead_letters"] for row in reasons if row["reason"] is None)
    if without:
        found.append(
            Finding(
                "note",
                counted_words(
                    without,
                    N_("One has no reason, as those that RocketMQ wrote."),
                    N_("{count:,} have no reason, as those that RocketMQ wrote."),
                ),
            )
        )
    return found


def _origin(reasons: TableRows, total: int) -> Finding:
    top = max(reasons, key=lambda row: row["dead_letters"])
    values = {
        "share": share_text(top["dead_letters"] / total),
        "group": top["consumer_group"],
        "topic": top["origin_topic"] or "?",
        "reason": top["reason"] or "?",
    }
    if top["dead_letters"] >= MOST * total:
        return finding(
            "note",
            N_("One origin has {share} of them: group {group}, topic {topic}, reason {reason}."),
            **values,
        )
    return finding(
        "note",
        N_(
            "No origin has most of them: the largest share is {share} (group {group}, topic"
            " {topic}, reason {reason})."
        ),
        **values,
    )


def _rise(days: TableRows) -> list[Finding]:
    by_group: dict[str, list[tuple[str, int]]] = {}
    for row in days:
        by_group.setdefault(row["consumer_group"], []).append(
            (f"{row['day']}", row["dead_letters"])
        )
    found = []
    for group, counts in sorted(by_group.items()):
        *earlier, (day, last) = sorted(counts)
        usual = median(count for _, count in earlier) if earlier else None
        if usual is not None and last >= RISE_TIMES * usual:
            found.append(
                finding(
                    "warn",
                    N_(
                        "They become more: group {group} had {last:,} on {day}, usually"
                        " {usual:,.0f} a day."
                    ),
                    group=group,
                    last=last,
                    day=day,
                    usual=usual,
                )
            )
    return found
