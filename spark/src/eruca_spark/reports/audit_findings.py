"""Findings of an audit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from eruca_spark.reports.findings import Finding, TableRow, TableRows, finding
from eruca_spark.reports.words import N_, counted_words

_FAULTS: Final = (
    ("missing", N_("One message is missing."), N_("{count:,} messages are missing.")),
    ("duplicates", N_("One offset occurs twice."), N_("{count:,} offsets occur twice.")),
    ("damaged", N_("One message is damaged."), N_("{count:,} messages are damaged.")),
    (
        "times_back",
        N_("One message is older than the message before it."),
        N_("{count:,} messages are older than the message before them."),
    ),
)


def is_sound(queue: TableRow) -> bool:
    """Tell whether a row of the table of queues has no fault."""
    return not any(queue[name] for name, _, _ in _FAULTS)


def audit_findings(rows: Mapping[str, TableRows]) -> list[Finding]:
    """Return the findings: how many queues have faults, and the faults of each kind."""
    queues = rows["queues"]
    if not queues:
        return [finding("note", N_("There are no messages."))]
    messages = sum(row["messages"] for row in queues)
    unsound = [row for row in queues if not is_sound(row)]
    found = []
    if unsound:
        worst = max(unsound, key=lambda row: sum(row[name] for name, _, _ in _FAULTS))
        found.append(
            finding(
                "bad",
                N_("Queues with faults: {unsound:,} of {queues:,}; the worst is {queue}."),
                unsound=len(unsound),
                queues=len(queues),
                queue=f"{worst['topic']}/{worst['broker_name']}/{worst['queue_id']}",
            )
        )
    else:
        found.append(
            finding(
                "good",
                N_(
                    "Every queue is sound: {messages:,} messages in {queues:,} queues, none"
                    " missing, none twice, none damaged."
                ),
                messages=messages,
                queues=len(queues),
            )
        )
    for name, one, more in _FAULTS:
        if count := sum(row[name] for row in queues):
            found.append(Finding("bad", counted_words(count, one, more)))
    shortened = sum(1 for row in queues if row["first_offset"] > 0)
    if shortened:
        found.append(
            Finding(
                "note",
                counted_words(
                    shortened,
                    N_("One queue does not begin at 0: retention, or the range that was read."),
                    N_(
                        "{count:,} queues do not begin at 0: retention, or the range that was read."
                    ),
                ),
            )
        )
    return found
