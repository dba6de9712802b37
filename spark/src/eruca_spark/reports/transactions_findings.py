"""Findings on transactions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from eruca_spark.reports.findings import Finding, TableRows, finding, ms_text, share_text
from eruca_spark.reports.words import N_, counted_words

OLD_SECONDS: Final = 60.0  # an open transaction's age: the first check has passed
MANY_CHECKED: Final = 0.1  # of the decided transactions
MANY_ROLLED_BACK: Final = 0.5  # of the decided transactions


def transactions_findings(rows: Mapping[str, TableRows]) -> list[Finding]:
    """Return the findings: parked and open ones, outcomes, and decisions by checks."""
    outcomes = rows["outcomes"]
    count = sum(row["transactions"] for row in outcomes)
    if not count:
        return [finding("note", N_("There are no transactions."))]

    def total(name: str) -> int:
        return sum(row[name] for row in outcomes)

    found = []
    if parked := total("parked"):
        found.append(
            Finding(
                "bad",
                counted_words(
                    parked,
                    N_("One transaction is parked: its checks have ended without an answer."),
                    N_(
                        "{count:,} transactions are parked: their checks have ended without an"
                        " answer."
                    ),
                ),
            )
        )
    if pending := total("pending"):
        ages = [row["age_seconds"] for row in rows["open"] if row["state"] == "pending"]
        oldest = max(ages, default=0.0)
        found.append(
            Finding(
                "warn" if oldest >= OLD_SECONDS else "note",
                counted_words(
                    pending,
                    N_("One transaction is open, for {age}."),
                    N_("{count:,} transactions are open, the oldest for {age}."),
                    age=ms_text(oldest * 1_000),
                ),
            )
        )
    if not found:
        found.append(
            Finding(
                "good",
                counted_words(
                    count,
                    N_("The only transaction is decided."),
                    N_("All {count:,} transactions are decided."),
                ),
            )
        )
    if decided := total("committed") + total("rolled_back"):
        found += _of_decided(outcomes, decided, total("rolled_back"), total("decided_by_check"))
    return found


def _of_decided(outcomes: TableRows, decided: int, rolled_back: int, checked: int) -> list[Finding]:
    found = [
        finding(
            "warn" if rolled_back >= MANY_ROLLED_BACK * decided else "note",
            N_("{share} of the decided ones were rolled back ({rolled_back:,} of {decided:,})."),
            share=share_text(rolled_back / decided),
            rolled_back=rolled_back,
            decided=decided,
        )
    ]
    if checked:
        found.append(
            finding(
                "warn" if checked >= MANY_CHECKED * decided else "note",
                N_(
                    "A check decided {share} of them ({checked:,}): the producer's own decision was"
                    " late or lost."
                ),
                share=share_text(checked / decided),
                checked=checked,
            )
        )
    timed = [row for row in outcomes if row["p99_ms"] is not None]
    slowest = max(timed, key=lambda row: row["p99_ms"], default=None)
    if slowest is not None:
        found.append(
            finding(
                "note",
                N_(
                    "The slowest producer group, {group}, decided 99 % of its transactions within"
                    " {p99}."
                ),
                group=slowest["producer_group"] or "?",
                p99=ms_text(slowest["p99_ms"]),
            )
        )
    return found
