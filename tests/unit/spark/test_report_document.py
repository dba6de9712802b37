"""A report as JSON: whole rows, times in UTC, and what is missing."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, date, datetime
from pathlib import Path

from pyspark.sql import Row

from eruca_spark.outcomes import line_of
from eruca_spark.reports.basis import Basis, Lacks
from eruca_spark.reports.document import report_document
from eruca_spark.reports.findings import finding
from eruca_spark.reports.report import FinishedReport

AT = datetime(2026, 11, 28, 8, 30, tzinfo=UTC)
LOCAL = AT.astimezone().replace(tzinfo=None)  # as Spark returns it


def finished(**rows: Sequence[Row]) -> FinishedReport:
    queue = {
        "topic": "orders",
        "broker_name": "broker-a",
        "queue_id": 0,
        "messages": 3,
        "offsets": 3,
        "damaged": 0,
        "first_offset": 1,
        "last_offset": 4,
        "first_stored_at": LOCAL,
        "last_stored_at": LOCAL,
    }
    basis = Basis([queue], ["orders", "bills"], Lacks(away=["broker-b: no answer"]))
    found = [finding("warn", "{count:,} of {topic}", count=1_000, topic="orders")]
    return FinishedReport(
        rows, found, {"t": Path("r/t.parquet")}, page=Path("r/p.html"), basis=basis
    )


def test_it_has_findings_rows_files_and_what_is_missing() -> None:
    row = Row(at=LOCAL, day=date(2026, 11, 28), mean=1.5, none=None, many=[1, float("inf")])
    text = line_of(report_document(finished(t=[row])))
    assert json.loads(text) == {
        "findings": [{"level": "warn", "text": "1,000 of orders"}],
        "basis": {
            "messages": 3,
            "first_stored_at": "2026-11-28T08:30:00.000Z",
            "last_stored_at": "2026-11-28T08:30:00.000Z",
            "findings": [
                {
                    "level": "warn",
                    "text": "A broker was away, so its messages are missing: broker-b: no answer",
                },
                {"level": "warn", "text": "Topic bills has no messages here."},
                {
                    "level": "warn",
                    "text": "One message is missing within a queue: orders/broker-a/0.",
                },
            ],
        },
        "tables": {
            "t": [
                {
                    "at": "2026-11-28T08:30:00.000Z",
                    "day": "2026-11-28",
                    "mean": 1.5,
                    "none": None,
                    "many": [1, None],
                }
            ]
        },
        "files": ["r/p.html", "r/t.parquet"],
    }
