"""The same answer without the console: a page's request as curl, as Python and as a command."""

from __future__ import annotations

import shlex
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Recipe:
    """Texts to copy, each of which gets what a page shows.

    Attributes:
        curl: A command for a shell; $ERUCA_API_KEY stands for the key.
        python: A program for the SDK.
        cli: A command of ``eruca``; empty: there is none.
    """

    curl: str
    python: str
    cli: str = ""


def curl(url: str, *, has_key: bool) -> str:
    """Return the command that gets *url*."""
    key = ' -u ":$ERUCA_API_KEY"' if has_key else ""
    return f"curl{key} {shlex.quote(url)}"


def python(namesrv_urls: str, *lines: str) -> str:
    """Return a program around *lines*, which use ``client``."""
    body = "\n".join(f"    {line}" for line in lines)
    return f"import eruca\n\nwith eruca.Client({namesrv_urls!r}) as client:\n{body}\n"


def cli(*words: str) -> str:
    """Return a command of ``eruca`` with its words quoted."""
    return shlex.join(("eruca", *words))
