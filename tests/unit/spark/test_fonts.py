"""Fonts: whatever a label says is drawn, or said once to be missing."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest

from eruca_spark import fonts
from eruca_spark.charts import Picture
from eruca_spark.fonts import FIRST_CHOICE, fonts_for

LABELS = [
    "订单-付款-成功",
    "注文テスト",
    "주문 결제",
    "مرحبا بالعالم",
    "שלום עולם",
    "नमस्ते",
    "rocket 🚀 ☕️",
    "orders-" + "长" * 60,
    "orders-" + "x" * 120,
    "price $5 and $6_a",
]


def drawn(path: Path) -> Path:
    """Draw a picture of both kinds of charts; every warning is an error."""
    from datetime import UTC, datetime

    picture = Picture("报告: 订单 🚀", 2)
    counts = list(range(1, len(LABELS) + 1))
    picture.bars("热键", LABELS, {"消息": counts}, unit="消息")
    at = [datetime(2026, 11, 21, hour, tzinfo=UTC) for hour in (1, 2)]
    lines = {label: (at, [n, n + 1.0]) for n, label in enumerate(LABELS[:4])}
    picture.lines("延迟", lines, unit="ms")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        picture.save(path)
    return path


def test_labels_of_every_script_are_drawn_without_a_missing_glyph(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert drawn(tmp_path / "a.png").stat().st_size > 0

    assert capfd.readouterr().err == ""


def test_plain_labels_need_no_other_font() -> None:
    assert fonts_for(["orders", "Bestellung für Zürich"]) == ([FIRST_CHOICE], "")


def test_simplified_chinese_comes_before_japanese() -> None:
    assert fonts_for(["订单"]).families == [FIRST_CHOICE, "Noto Sans CJK SC"]


def test_where_no_font_has_a_label_one_warning_says_how_to_install_one(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fonts, "_candidates", lambda: iter(()))

    drawn(tmp_path / "a.png")

    told = capfd.readouterr().err
    assert told.count("\n") == 1
    assert "a.png shows boxes" in told
    assert "pip install './spark[fonts]'" in told


def test_a_character_that_no_font_has_does_not_hide_those_that_some_have() -> None:
    families, missing = fonts_for(["订单 \U0010fffd"])

    assert "Noto Sans CJK SC" in families
    assert missing == "\U0010fffd"
