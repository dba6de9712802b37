"""Asking before something is done that takes from somebody what they have."""

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
    """Ask on the terminal; where there is none, refuse and say what to do *instead*."""
    if sys.stdin is None or not sys.stdin.isatty():  # None where it is closed
        raise typer.BadParameter(f"nobody is there to ask; {instead}")
    with _interruptible():
        return typer.confirm(question, err=True)


@contextmanager
def _interruptible() -> Iterator[None]:
    """Have Ctrl-C, or SIGTERM, end the command at once.

    The event loop's own handler only cancels the command's task, which would notice at its next
    await: once the question has been answered.
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
    )  # typer takes a KeyboardInterrupt for the answer no
