"""Progress bars on stderr if it is a terminal; otherwise nothing."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import TYPE_CHECKING, Self

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    ProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

if TYPE_CHECKING:
    from eruca.cli.sending.row_feed import RowFeed
    from eruca.cli.sending.sending import SendCounts


def progress_bar(done: ProgressColumn) -> Progress:
    """Return progress bars with the column *done* and the remaining time."""
    return _shown(TextColumn("{task.description}"), BarColumn(), done, TimeRemainingColumn())


class SendProgress:
    """Shows how many rows have been read and sent, as a context manager."""

    def __init__(self, feed: RowFeed, topic: str) -> None:
        self._feed = feed
        self._progress = _shown(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[sent]:,} sent, {task.fields[rate]:,.0f}/s"),
            TimeElapsedColumn(),
        )
        self._task = self._progress.add_task(topic, total=feed.size, sent=0, rate=0.0)

    def show(self, counts: SendCounts) -> None:
        """Show the progress."""
        rate = counts.sent / counts.seconds if counts.seconds else 0.0
        self._progress.update(
            self._task, completed=self._feed.position, sent=counts.sent, rate=rate
        )

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
        """Remove the bars."""
        self._progress.stop()


def _shown(*columns: ProgressColumn) -> Progress:
    return Progress(
        *columns,
        console=Console(stderr=True),
        transient=True,
        disable=not sys.stderr.isatty(),
        redirect_stdout=sys.stdout.isatty(),  # piped output must not appear on stderr
    )
