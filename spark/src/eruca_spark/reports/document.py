"""A report as a document for programs, with all rows of its tables."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from typing import Any

from eruca_spark.reports.basis import basis_findings
from eruca_spark.reports.findings import Finding
from eruca_spark.reports.report import FinishedReport


def report_document(done: FinishedReport) -> dict[str, Any]:
    """Return the findings, the tables and the files of a report, as JSON has them.

    ``basis`` says which messages were read, and what is missing.
    """
    assert done.basis is not None, "a document says what is missing"
    period = done.basis.period
    return {
        "findings": _findings(done.findings),
        "basis": {
            "messages": done.basis.message_count,
            "first_stored_at": None if period is None else _plain(period[0]),
            "last_stored_at": None if period is None else _plain(period[1]),
            "findings": _findings(basis_findings(done.basis)),
        },
        "tables": {
            name: [{key: _plain(value) for key, value in row.asDict().items()} for row in rows]
            for name, rows in done.rows.items()
        },
        "files": [str(path) for path in done.files],
    }


def _findings(findings: Sequence[Finding]) -> list[dict[str, str]]:
    return [{"level": one.level, "text": one.words.text("en")} for one in findings]


def _plain(value: Any) -> Any:  # noqa: ANN401 - whatever a cell may hold
    """Return a cell's value as JSON has it; times are RFC 3339 in UTC."""
    if isinstance(value, datetime):  # Spark returns it in the process's zone, without the zone
        return value.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return value
