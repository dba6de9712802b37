"""The tables of the benchmark beside other systems name the lost rows, and never fail."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from rich.console import Console

from bench.peers.client_process import Measured
from bench.peers.rounds import Cell
from bench.peers.table import save_json, save_markdown, show

WON = Cell("bulk", "async", [(Measured(3_000, 1.0, 0.2, 0.1), Measured(1_000, 1.0, 0.1, 0.1))])
LOST = Cell("one", "fsync", [(Measured(50, 1.0, 0.2, 0.1), Measured(100, 1.0, 0.0, 0.0))])
MEASURED = {"redis": [WON, LOST], "nats": []}
MISSING = {"nats": "`go` is not installed"}


def test_the_terminal_shows_lost_rows_and_why_a_peer_is_missing(
    capsys: pytest.CaptureFixture[str],
) -> None:
    show(Console(width=100), MEASURED, MISSING)

    shown = capsys.readouterr().out
    assert "Eruca is behind in 1 of 2 rows." in shown
    assert "redis, one awaited send in flight, fsync: 0.50" in shown
    assert "nats-py: `go` is not installed" in shown


def test_markdown_has_a_column_for_each_peer_and_lost_rows_in_italics(tmp_path: Path) -> None:
    file = tmp_path / "peers.md"

    save_markdown(file, MEASURED)

    assert file.read_text().splitlines() == [
        "| Eruca / peer | redis | nats |",
        "|---|---|---|",
        "| batches of 1 000 | 3.00 (0.50) | - |",
        "| one awaited send in flight, fsync | *0.50 (?)* | - |",
    ]


def test_json_has_all_figures(tmp_path: Path) -> None:
    file = tmp_path / "peers.json"

    save_json(file, MEASURED, MISSING)

    content = json.loads(file.read_text())
    assert [row["ratio"] for row in content["measured"]["redis"]] == [3.0, 0.5]
    assert content["missing"] == MISSING


def test_the_ratio_is_the_median_of_the_rounds() -> None:
    peer = Measured(100, 1.0)
    rounds = [(Measured(count, 1.0), peer) for count in (90, 200, 900)]

    assert Cell("one", "async", rounds).ratio == 2.0
