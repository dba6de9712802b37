"""The progress of a command: a line that says how much is done, and how long the rest takes."""

from __future__ import annotations

import io
import sys

import pytest

from eruca_chassis.progress import ProgressLine


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_the_line_says_how_much_is_done_and_how_long_the_rest_takes() -> None:
    progress = ProgressLine()
    progress.begin(8_000_000)
    progress.advance(2_000_000)

    line = progress.line(4.0)

    assert line == "███████" + "░" * 23 + "  25%  2 of 8 MB  12 s left"
    progress.begin(1_000_000)
    assert "100%" in progress.line(4.0), "there was less to do than expected"
    assert ProgressLine().line(0.0).endswith("starting")


def test_a_terminal_shows_the_line_and_loses_it_at_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    progress = ProgressLine()
    progress.begin(2_000_000)
    progress.advance(2_000_000)
    assert "2 of 2 MB" in terminal.getvalue()
    progress.end()
    assert terminal.getvalue().endswith("\r\x1b[K")


def test_a_file_gets_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    file = io.StringIO()
    monkeypatch.setattr(sys, "stderr", file)
    progress = ProgressLine()
    progress.begin(1)
    progress.advance(1)
    progress.end()
    assert file.getvalue() == ""
