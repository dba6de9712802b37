"""Pages of reports, made of rows that were made up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from eruca_spark.reports.basis import Basis, Lacks
from eruca_spark.reports.chart import Bars, Chart, Lines
from eruca_spark.reports.findings import TableRows
from eruca_spark.reports.hot_keys_findings import hot_keys_findings
from eruca_spark.reports.page import Origin, PageContent, PageTable, page_of
from eruca_spark.reports.words import Language, words

BEGAN: Final = datetime(2026, 11, 21, 8, tzinfo=UTC)
ATTACK: Final = "</script><script>alert(1)</script>"


def at(seconds: float) -> datetime:
    return BEGAN + timedelta(seconds=seconds)


def basis_row(**given: Any) -> dict[str, Any]:  # noqa: ANN401
    """Return the row of a queue without a fault."""
    row = {
        "topic": "orders",
        "broker_name": "broker-a",
        "queue_id": 0,
        "messages": 100,
        "offsets": 100,
        "damaged": 0,
        "first_offset": 0,
        "last_offset": 99,
        "first_stored_at": at(0),
        "last_stored_at": at(3_000),
    }
    assert set(given) <= set(row)
    return {**row, **given}


def basis(*rows: Mapping[str, Any], topics: Sequence[str] = (), lacks: Lacks = Lacks()) -> Basis:  # noqa: B008
    return Basis(rows, topics, lacks)


def hot_keys_rows() -> dict[str, TableRows]:
    """Return rows with a hot key, which looks like markup."""
    counts = [600, *(20 - number for number in range(11))]
    keys = [ATTACK, *(f"key-{number}" for number in range(11))]
    return {
        "keys": [
            {"topic": "orders", "key": key, "messages": count, "share": count / sum(counts)}
            for key, count in zip(keys, counts, strict=True)
        ],
        "sharding-keys": [],
        "queues": [
            {
                "topic": "orders",
                "broker_name": "broker-a",
                "queue_id": number,
                "messages": 10 + number,
                "bytes": None if number else 7,
                "times_the_mean": 1.0,
            }
            for number in range(3)
        ],
    }


def hot_keys_page(language: Language) -> str:
    """Return a page with bars, stacked bars, lines, a chart without data, and tables."""
    rows = hot_keys_rows()
    labels = [row["key"] for row in rows["keys"]]
    counts = [float(row["messages"]) for row in rows["keys"]]
    times = [at(60 * minute) for minute in range(30)]
    charts: list[Chart] = [
        Bars(words("Hottest keys"), labels, {"messages": counts}, "messages", [True]),
        Bars(
            words("By producer group and topic"),
            ["shop", ATTACK],
            {"committed": [3.0, 4.0], "rolled back": [1.0, 0.0]},
            "transactions",
        ),
        Lines(
            words("From made to stored, p99 by minute"),
            {ATTACK: (times, [float(n % 7) for n in range(30)]), "orders": (times[:1], [3.0])},
            "ms",
        ),
        Lines(words("From made to stored, p99 by minute"), {}, "ms"),
    ]
    tables = [
        PageTable("Hottest keys", ["topic", "key", "messages", "share"], rows["keys"]),
        PageTable("Queues", ["queue_id", "messages", "bytes"], rows["queues"]),
        PageTable("Hottest sharding keys", ["topic", "key"], []),
    ]
    content = PageContent(
        "Hot keys and queues",
        hot_keys_findings(rows),
        basis(basis_row(), basis_row(queue_id=1, damaged=2), topics=["orders"]),
        charts,
        tables,
    )
    origin = Origin("eruca-spark hot-keys --topic orders", "http://query:10931", BEGAN, "0.1.0")
    return page_of(content, origin, language)
