"""Ask for confirmation before a command that destroys or moves something."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Annotated, Final

import typer

from eruca.cli.command import EXIT_INTERRUPTED, EXIT_TERMINATED

_EXIT_CODES: Final = {signal.SIGINT: EXIT_INTERRUPTED, signal.SIGTERM: EXIT_TERMINATED}

YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


def confirmed(question: str, *, instead: str = "give --yes") -> bool:
    """Ask on the terminal; without a terminal, refuse with *instead* as the instruction."""
    if sys.stdin is None or not sys.stdin.isatty():  # None: it is closed
        raise typer.BadParameter(
            f"cannot ask for confirmation, because stdin is not a terminal; {instead}"
        )
    with _interruptible():
        return typer.confirm(question, err=True)


@contextmanager
def _interruptible() -> Iterator[None]:
    """End the command at once on Ctrl-C or SIGTERM.

    The event loop's own handler only cancels the command's task. The task would notice that at its
    next await, after the question was answered.
    """
    handlers = {number: signal.signal(number, _end) for number in _EXIT_CODES}
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


def _end(number: int, _frame: FrameType | None) -> None:
    raise typer.Exit(
        _EXIT_CODES[signal.Signals(number)]
    )  # typer treats a KeyboardInterrupt as the answer no
