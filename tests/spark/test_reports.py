"""Reports on messages that were made up, whose numbers can be counted by hand."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from rich.console import Console

from eruca_spark.compaction import KeyColumn, latest_by_key, write_compacted
from eruca_spark.reports import audit, dead_letters, hot_keys, latency, transactions
from eruca_spark.reports.audit import audit_report
from eruca_spark.reports.audit_findings import is_sound
from eruca_spark.reports.basis import BASIS_COLUMNS, Lacks
from eruca_spark.reports.chinese import CHINESE
from eruca_spark.reports.dead_letters import dead_letters_report
from eruca_spark.reports.hot_keys import hot_keys_report
from eruca_spark.reports.latency import latency_report
from eruca_spark.reports.page import Origin
from eruca_spark.reports.report import FinishedReport, PageRequest, Report, finish
from eruca_spark.reports.targets import targets_of
from eruca_spark.reports.transactions import transactions_report
from support.spark import LAKE_DDL

BEGAN = datetime(2026, 11, 21, 8, tzinfo=UTC)
EVENTS = "ERUCA_SYS_EVENTS"
NAMES = [part.split()[0] for part in LAKE_DDL.replace(", STRING>", ">").split(", ")]
PNG = b"\x89PNG"
ORIGIN = Origin("eruca-spark …", "http://query", BEGAN, "1")


def at(ms: int) -> datetime:
    return BEGAN + timedelta(milliseconds=ms)


def message(offset: int, **given: Any) -> tuple[Any, ...]:  # noqa: ANN401
    row = {
        "topic": "orders",
        "broker_name": "broker-a",
        "queue_id": 0,
        "queue_offset": offset,
        "log_offset": offset * 100,
        "stored_at": at(offset),
        "born_at": at(offset),
        "message_id": f"{offset:032X}",
        "offset_message_id": f"{offset:032X}",
        "tag": None,
        "keys": [],
        "sharding_key": None,
        "body": b"",
        "properties": {},
        "reconsume_times": 0,
        "sys_flag": 0,
        "flag": 0,
        "prepared_offset": 0,
        "size": 100,
        "damage": None,
        "dt": BEGAN.date(),
        "batch": 0,
    }
    assert set(given) <= set(row)
    return tuple({**row, **given}[name] for name in NAMES)


def event(number: int, kind: str, ms: int, /, **body: Any) -> tuple[Any, ...]:  # noqa: ANN401
    return message(
        number,
        topic=EVENTS,
        tag=kind,
        stored_at=at(ms),
        body=json.dumps({"event": kind, **body}).encode(),
    )


def frame(spark: SparkSession, rows: Sequence[tuple[Any, ...]]) -> DataFrame:
    return spark.createDataFrame(list(rows), LAKE_DDL)


def run(
    spark: SparkSession, report: Report, out: Path, rows: Sequence[tuple[Any, ...]] = ()
) -> tuple[FinishedReport, str]:
    shown = io.StringIO()
    basis = frame(spark, rows).select(*BASIS_COLUMNS)
    request = PageRequest(basis, ["orders"], Lacks(), ORIGIN)
    console = Console(file=shown, width=200)
    finished = finish(spark, report, targets_of(out, report.name), console, request, language="zh")
    assert finished.picture is not None
    assert finished.picture.read_bytes()[:4] == PNG
    assert finished.page is not None
    page = finished.page.read_text()
    assert '<html lang="zh-Hans">' in page
    assert finished.findings[0].words.text("en") in shown.getvalue()
    titles = {table.title for table in report.tables}
    columns = {name.replace("_", " ") for table in report.tables for name in table.rows.columns}
    assert (titles | columns | {report.title}) <= CHINESE.keys()
    for name, path in finished.tables.items():
        assert spark.read.parquet(str(path)).count() == len(finished.rows[name])
    return finished, shown.getvalue()


def dicts(finished: FinishedReport, table: str, *columns: str) -> list[tuple[Any, ...]]:
    return [tuple(row[column] for column in columns) for row in finished.rows[table]]


def test_a_sound_topic_passes_the_audit(spark: SparkSession, tmp_path: Path) -> None:
    rows = [message(offset, queue_id=queue) for queue in (0, 1) for offset in range(5, 25)]
    finished, shown = run(
        spark, audit_report(frame(spark, rows).select(*audit.MESSAGE_COLUMNS)), tmp_path
    )

    assert all(is_sound(queue) for queue in finished.rows["queues"])
    assert dicts(finished, "queues", "queue_id", "messages", "first_offset", "last_offset") == [
        (0, 20, 5, 24),
        (1, 20, 5, 24),
    ]
    assert "none" in shown


def test_an_audit_finds_gaps_repetitions_and_times_that_go_back(
    spark: SparkSession, tmp_path: Path
) -> None:
    offsets = [0, 1, 2, 2, 5, 6, 9]
    rows = [message(offset, stored_at=at(-1 if offset == 6 else offset)) for offset in offsets]
    rows += [message(offset, queue_id=1) for offset in range(3)]
    finished, shown = run(
        spark, audit_report(frame(spark, rows).select(*audit.MESSAGE_COLUMNS)), tmp_path
    )

    assert dicts(finished, "queues", "missing", "duplicates", "times_back") == [
        (4, 1, 1),
        (0, 0, 0),
    ]
    assert dicts(finished, "gaps", "from_offset", "to_offset", "missing") == [(3, 5, 2), (7, 9, 2)]
    assert [is_sound(queue) for queue in finished.rows["queues"]] == [False, True]
    assert "Gaps" in shown


def test_hot_keys_are_counted_for_each_topic(spark: SparkSession, tmp_path: Path) -> None:
    rows = [
        message(offset, keys=["all", f"key-{offset % 4}"], sharding_key="hot" if offset else None)
        for offset in range(8)
    ]
    rows += [message(offset, topic="payments", keys=["one"], queue_id=1) for offset in range(2)]
    rows += [message(offset, queue_id=2) for offset in range(2)]
    finished, _ = run(
        spark,
        hot_keys_report(frame(spark, rows).select(*hot_keys.MESSAGE_COLUMNS), top=2),
        tmp_path,
    )

    assert dicts(finished, "keys", "topic", "key", "messages", "share") == [
        ("orders", "all", 8, 0.5),
        ("orders", "key-0", 2, 0.125),
        ("payments", "one", 2, 1.0),
    ]
    assert dicts(finished, "sharding-keys", "key", "messages") == [("hot", 7)]
    assert dicts(finished, "queues", "topic", "queue_id", "messages", "times_the_mean") == [
        ("orders", 0, 8, 1.6),
        ("orders", 2, 2, 0.4),
        ("payments", 1, 2, 1.0),
    ]


def test_keys_that_look_like_markup_or_commands_to_the_terminal_are_shown_as_text(
    spark: SparkSession, tmp_path: Path
) -> None:
    rows = [
        message(0, keys=["[/red]"]),
        message(1, keys=["one\ntwo\x1b[31m", "</script><script>alert(1)</script>"]),
        message(5, broker_name="broker-b", damage="checksum"),
    ]
    report = hot_keys_report(frame(spark, rows).select(*hot_keys.MESSAGE_COLUMNS))
    finished, shown = run(spark, report, tmp_path, rows)
    assert finished.page is not None
    page = finished.page.read_text()

    assert "[/red]" in shown
    assert "one two [31m" in shown
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert "<dd>3</dd>" in page  # messages read
    assert "有 1 条消息已损坏。" in page


def test_dead_letters_are_counted_by_group_origin_and_reason(
    spark: SparkSession, tmp_path: Path
) -> None:
    def letter(offset: int, reason: str | None, error: str) -> tuple[Any, ...]:
        properties = {"DLQ_ORIGIN_TOPIC": "orders", "ERUCA_DEAD_ERROR": error}
        if reason:
            properties["ERUCA_DEAD_REASON"] = reason
        return message(
            offset, topic="%DLQ%billing", properties=properties, reconsume_times=offset % 3
        )

    rows = [letter(0, "failed", "first"), letter(1, "failed", "second"), letter(2, None, "third")]
    rows += [message(0)]
    finished, shown = run(
        spark,
        dead_letters_report(frame(spark, rows).select(*dead_letters.MESSAGE_COLUMNS)),
        tmp_path,
    )

    columns = ("consumer_group", "origin_topic", "reason", "dead_letters", "last_error")
    assert dicts(finished, "reasons", *columns) == [
        ("billing", "orders", "failed", 2, "second"),
        ("billing", "orders", None, 1, "third"),
    ]
    assert dicts(finished, "attempts", "attempts", "dead_letters") == [(0, 1), (1, 1), (2, 1)]
    assert "second" in shown


def test_latency_is_from_made_to_stored_and_on_to_each_group(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Messages 0 to 9, one a millisecond; a group starts at 2 and commits 5 and 8, out of order."""
    rows = [message(offset, born_at=at(offset - 4)) for offset in range(10)]
    events = [
        event(0, "starts_resolved", 1, group="slow", topics=[["orders", [[0, 2, "latest"]]]], at=1),
        event(1, "offsets_committed", 100, group="slow", offsets=[["orders", 0, 5]]),
        event(2, "offsets_committed", 150, group="slow", offsets=[["orders", 0, 3]]),
        event(3, "locks_released", 200, group="slow", queues=[], offsets=[["orders", 0, 8]]),
        event(4, "deliveries_acked", 50, group="pop", queues=[["orders", 0, [[0, 9], [3, 9]]]]),
        event(5, "deliveries_acked", 60, group="pop", queues=[["orders", 0, [[3, 11]]]]),
        event(6, "group_put", 1, group="idle"),
    ]
    report = latency_report(
        frame(spark, rows).select(*latency.MESSAGE_COLUMNS),
        frame(spark, events).select(*latency.EVENT_COLUMNS),
    )
    finished, _ = run(spark, report, tmp_path)

    assert dicts(finished, "topics", "topic", "messages", "p50_ms", "worst_ms") == [
        ("orders", 10, 4.0, 4.0)
    ]
    assert dicts(finished, "minutes", "messages") == [(10,)]
    columns = ("consumer_group", "messages", "worst_ms", "backlog", "oldest_stored_at")
    zone_free = [(*row[:4], row[4].astimezone(UTC)) for row in dicts(finished, "groups", *columns)]
    assert zone_free == [("pop", 2, 50.0, 8, at(1)), ("slow", 6, 195.0, 2, at(8))]


def test_latency_without_control_records_says_nothing_of_groups(
    spark: SparkSession, tmp_path: Path
) -> None:
    finished, _ = run(spark, latency_report(frame(spark, [message(0)]), None), tmp_path)

    assert set(finished.rows) == {"topics", "minutes"}


def test_transactions_are_folded_from_their_events(spark: SparkSession, tmp_path: Path) -> None:
    def begun(number: int, name: str) -> tuple[Any, ...]:
        return event(number, "transaction_begun", 0, **begin(name))

    def begin(name: str) -> dict[str, Any]:
        return {
            "transaction_id": name,
            "producer_group": "shop",
            "topic": "orders",
            "begun_at": ms_since_epoch(0),
        }

    def ended(number: int, name: str, outcome: str, by: str, ms: int) -> tuple[Any, ...]:
        told = {"outcome": outcome, "by": by, "decided_at": ms_since_epoch(ms), "checks": 1}
        return event(number, "transaction_decided", ms, **begin(name), **told)

    checked = {"number": 2, "checker": "c", "checked_at": ms_since_epoch(30)}
    events = [
        *(begun(number, name) for number, name in enumerate("abcde")),
        event(5, "transaction_checked", 30, transaction_id="c", **checked),
        ended(6, "a", "commit", "producer", 10),
        ended(7, "b", "rollback", "check", 40),
        event(8, "transaction_parked", 50, transaction_id="d", parked_at=50, checks=15),
        ended(9, "begun before the lake", "commit", "producer", 10_000),
    ]
    finished, shown = run(
        spark,
        transactions_report(frame(spark, events).select(*transactions.EVENT_COLUMNS)),
        tmp_path,
    )

    columns = ("transactions", "committed", "rolled_back", "parked", "pending", "decided_by_check")
    assert dicts(finished, "outcomes", *columns) == [(6, 2, 1, 1, 2, 1)]
    assert dicts(finished, "open", "transaction_id", "state", "checks", "age_seconds") == [
        ("c", "pending", 2, 10.0),
        ("d", "parked", 15, 10.0),
        ("e", "pending", 0, 10.0),
    ]
    assert "shop" in shown


def ms_since_epoch(ms: int) -> int:
    return int(BEGAN.timestamp() * 1000) + ms


@pytest.mark.parametrize(
    "make",
    [audit_report, hot_keys_report, dead_letters_report, transactions_report],
)
def test_a_report_on_nothing_is_shown_and_kept(
    spark: SparkSession,
    tmp_path: Path,
    make: Any,  # noqa: ANN401
) -> None:
    finished, shown = run(spark, make(frame(spark, [])), tmp_path)

    assert all(rows == [] for rows in finished.rows.values())
    assert "none" in shown


@pytest.mark.parametrize(("by", "latest"), [("key", [("a", 4), ("b", 3)]), ("sharding_key", [])])
def test_compaction_leaves_the_latest_message_of_each_key(
    spark: SparkSession,
    tmp_path: Path,
    by: KeyColumn,
    latest: list[tuple[str, int]],
) -> None:
    rows = [
        message(0, keys=["a"]),
        message(1, keys=["b", "x"]),
        message(2, keys=["a"]),
        message(3, keys=["b"], stored_at=at(4)),
        message(4, keys=["a"], stored_at=at(4)),
        message(5),
    ]
    path = str(tmp_path / "table")
    for _ in range(2):
        write_compacted(latest_by_key(frame(spark, rows), by), path)

    kept = spark.read.parquet(path).orderBy("compaction_key") if latest else None
    found = [] if kept is None else kept.collect()
    assert [(row["compaction_key"], row["queue_offset"]) for row in found] == latest
