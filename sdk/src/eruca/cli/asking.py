"""Ask for confirmation before a command that destroys or moves something."""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Annotated, Final

import typer

YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]

_LINE_SIZE_MAX: Final = 4_096  # bytes; a terminal's longest line
_ANSWERS: Final = {"y": True, "yes": True, "n": False, "no": False, "": False}


async def confirmed(question: str, *, instead: str = "give --yes") -> bool:
    """Ask on the terminal; without a terminal, refuse with *instead* as the instruction.

    Ctrl-C and SIGTERM end the command meanwhile, because the event loop waits for the answer.
    """
    if sys.stdin is None or not sys.stdin.isatty():  # None: it is closed
        raise typer.BadParameter(
            f"cannot ask for confirmation, because stdin is not a terminal; {instead}"
        )
    while True:
        typer.echo(f"{question} [y/N]: ", nl=False, err=True)
        answer = _ANSWERS.get((await _line()).strip().lower())
        if answer is not None:
            return answer
        typer.echo("error: expected y or n", err=True)


async def _line() -> str:
    """Return the next line of the terminal.

    Raises:
        typer.Abort: There is none: Ctrl-D.
    """
    loop, terminal = asyncio.get_running_loop(), sys.stdin.fileno()
    is_there = asyncio.Event()
    try:
        loop.add_reader(terminal, is_there.set)
    except NotImplementedError:  # the event loop of Windows waits for sockets alone
        text: str = await asyncio.to_thread(sys.stdin.readline)
        if not text:
            raise typer.Abort from None
        return text
    try:
        await is_there.wait()
    finally:
        loop.remove_reader(terminal)
    line = os.read(terminal, _LINE_SIZE_MAX)
    if not line:
        raise typer.Abort
    return line.decode(errors="replace")
