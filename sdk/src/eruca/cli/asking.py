"""Asking before something is done that takes from somebody what they have."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


def confirmed(question: str, *, instead: str = "give --yes") -> bool:
    """Ask on the terminal; where there is none, refuse and say what to do *instead*."""
    if sys.stdin is None or not sys.stdin.isatty():  # None where it is closed
        raise typer.BadParameter(f"nobody is there to ask; {instead}")
    return typer.confirm(question, err=True)
