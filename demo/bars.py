"""Progress bars on a terminal; elsewhere one line for each phase."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn


class Bars:
    """Shows the progress of each phase, as a context manager."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._progress = Progress(
            TextColumn("{task.description:<10}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=console,
            disable=not console.is_terminal,
        )

    def add(self, name: str, total: int) -> Callable[[int], None]:
        """Begin a phase; return a function to call with the number done, up to *total*."""
        started_at = time.perf_counter()
        task = self._progress.add_task(name, total=total)
        is_over = False

        def show(done: int) -> None:
            nonlocal is_over
            self._progress.update(task, completed=done)
            if done == total and not is_over and not self._console.is_terminal:
                is_over = True
                seconds = time.perf_counter() - started_at
                self._console.print(f"{name}: {done:,} in {seconds:.1f} s")

        return show

    def __enter__(self) -> Self:
        """Show the bars."""
        self._progress.start()
        return self

    def __exit__(
        self,
        _type: type[BaseException] | None,
        _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        """Leave the bars on the screen as they are."""
        self._progress.stop()
