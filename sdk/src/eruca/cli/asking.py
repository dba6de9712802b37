"""Asking before something is done that takes from somebody what they have."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Annotated

import typer

from eruca.cli.command import EXIT_INTERRUPTED

YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


def confirmed(question: str, *, instead: str = "give --yes") -> bool:
    """Ask on the terminal; where there is none, refuse and say what to do *instead*."""
    if sys.stdin is None or not sys.stdin.isatty():  # None where it is closed
        raise typer.BadParameter(f"nobody is there to ask; {instead}")
    with _interruptible():
        return typer.confirm(question, err=True)


@contextmanager
def _interruptible() -> Iterator[None]:
    """Have Ctrl-C end the command at once.

    The event loop's own handler only cancels the command's task, which would notice at its next
    await: once the question has been answered.
    """
    handler = signal.signal(signal.SIGINT, _end)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)


def _end(_number: int, _frame: FrameType | None) -> None:
    raise typer.Exit(EXIT_INTERRUPTED)  # typer takes a KeyboardInterrupt for the answer no
