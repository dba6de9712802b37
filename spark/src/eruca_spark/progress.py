"""Show Spark's progress on the terminal: a bar of its tasks, or of an export's rows."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from pyspark.sql import SparkSession
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)

_LOOK_SECONDS: Final = 0.5
_JOIN_SECONDS: Final = 5.0


@contextmanager
def shown_tasks(spark: SparkSession, console: Console, text: str) -> Iterator[None]:
    """Show the number of finished tasks of the running stages, until the block ends."""
    if not console.is_terminal:
        console.print(f"{text} …")
        yield
        return
    is_over = threading.Event()
    with _bar(console) as progress:
        bar = progress.add_task(text, total=None)
        thread = threading.Thread(
            target=_follow, args=(spark, progress, bar, is_over), name="progress", daemon=True
        )
        thread.start()
        try:
            yield
        finally:
            is_over.set()
            thread.join(_JOIN_SECONDS)


def _follow(spark: SparkSession, progress: Progress, bar: TaskID, is_over: threading.Event) -> None:
    tracker = spark.sparkContext.statusTracker()
    while not is_over.wait(_LOOK_SECONDS):
        stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
        total = sum(stage.numTasks for stage in stages if stage is not None)
        done = sum(stage.numCompletedTasks for stage in stages if stage is not None)
        progress.update(bar, total=total or None, completed=done)


class RowsBar:
    """A bar of an export's rows; without a terminal, a line for each batch."""

    def __init__(self, console: Console, total: int, *, is_quiet: bool = False) -> None:
        self._is_quiet = is_quiet
        self._console = console
        self._total = total
        self._shown = 0
        self._progress = _bar(console) if console.is_terminal and not is_quiet else None
        self._bar: TaskID | None = None

    def __enter__(self) -> RowsBar:
        """Start to show the bar."""
        if self._progress is not None:
            self._progress.start()
            self._bar = self._progress.add_task("exporting", total=self._total or None)
        return self

    def __exit__(self, *_: object) -> None:
        """Stop updating the bar."""
        if self._progress is not None:
            self._progress.stop()

    def show(self, rows: int) -> None:
        """Show *rows* as the number of written rows."""
        if self._progress is not None and self._bar is not None:
            total = max(self._total, rows) or None
            self._progress.update(self._bar, completed=rows, total=total)
        elif rows != self._shown and not self._is_quiet:
            self._console.print(f"{rows:,} of {max(self._total, rows):,} messages exported")
        self._shown = rows


def _bar(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
    )
