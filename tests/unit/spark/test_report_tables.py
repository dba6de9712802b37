"""Tables of reports: how their rows are shown."""

from __future__ import annotations

import io
import time
from collections.abc import Iterator
from datetime import datetime

import pytest
from pyspark.sql import Row
from rich.console import Console

from eruca_spark.reports.cells import shown
from eruca_spark.reports.report import show


@pytest.fixture
def tokyo(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Be somewhere else."""
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def table_of(rows: list[Row], *, width: int) -> str:
    file = io.StringIO()
    show(Console(file=file, width=width), "Numbers", list(rows[0].asDict()), rows)
    return file.getvalue()


@pytest.mark.usefixtures("tokyo")
def test_times_are_shown_in_utc_wherever_the_driver_is() -> None:
    collected = datetime.fromtimestamp(1_763_700_000)  # noqa: DTZ006 - as Spark does

    assert shown(collected) == "2025-11-21 04:40:00Z"


def test_numbers_of_a_column_have_fractions_if_one_has() -> None:
    shown_rows = table_of([Row(a=1.0, b=2.0), Row(a=0.5, b=None)], width=40)

    assert [line.split() for line in shown_rows.splitlines()[2:]] == [
        ["a", "b"],
        ["1.00", "2"],
        ["0.50", "-"],
    ]


def test_texts_give_way_to_numbers_where_there_is_little_room() -> None:
    shown_rows = table_of([Row(text="x" * 60, count=12_345_678)], width=30)

    assert "12,345,678" in shown_rows
    assert "xxxxx" in shown_rows
