"""A line on a terminal's stderr that shows the progress of a command; nothing elsewhere."""

from __future__ import annotations

import sys
import time
from typing import Final

_WIDTH: Final = 30  # characters of the bar
_SECONDS: Final = 0.1  # between two changes of the line
_MEGA: Final = 1_000_000


class ProgressLine:
    """The progress of one command, in megabytes.

    Attributes:
        total: Bytes of the whole work.
        done: Bytes that are done.
    """

    def __init__(self) -> None:
        self.total = 0
        self.done = 0
        self._begun = time.monotonic()
        self._shown_at = float("-inf")
        self._is_shown = sys.stderr is not None and sys.stderr.isatty()

    def begin(self, total: int) -> None:
        """Note that the whole work has *total* bytes, those that are done included."""
        self.total = total

    def advance(self, size: int) -> None:
        """Note that *size* further bytes are done."""
        self.done += size
        now = time.monotonic()
        if self._is_shown and now - self._shown_at >= _SECONDS:
            self._shown_at = now
            sys.stderr.write(f"\r\x1b[K{self.line(now - self._begun)}")
            sys.stderr.flush()

    def end(self) -> None:
        """Remove the line."""
        if self._is_shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()

    def line(self, seconds: float) -> str:
        """Return the line after *seconds*."""
        ratio = min(self.done / self.total, 1.0) if self.total else 0.0
        bar = "█" * int(ratio * _WIDTH)
        rate = self.done / seconds if seconds > 0 else 0.0
        left = f"{(self.total - self.done) / rate:.0f} s left" if rate else "starting"
        return (
            f"{bar:░<{_WIDTH}} {ratio:4.0%}  {self.done / _MEGA:,.0f} of {self.total / _MEGA:,.0f} "
            f"MB  {left}"
        )
