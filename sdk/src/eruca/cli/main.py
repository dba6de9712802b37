"""The script ``eruca``: runs the command line, or explains how to install its dependencies."""

from __future__ import annotations

import io
import os
import signal
import sys
from pathlib import Path
from typing import TextIO

from eruca.cli.installation import INSTALLATION


def run() -> None:
    """Run the command that the arguments name."""
    sys.stdout = sys.stdout or _nowhere()  # None: the caller has closed it
    sys.stderr = sys.stderr or _nowhere()
    for stream in (sys.stdout, sys.stderr):
        # A message may contain any character; those that the terminal cannot encode are escaped.
        if isinstance(stream, io.TextIOWrapper):  # else a test has put something in its place
            stream.reconfigure(errors="backslashreplace")
    try:
        from eruca.cli.app import app
    except ModuleNotFoundError as error:
        if error.name != "typer":
            raise
        sys.exit(f"error: typer is not installed. To fix it: {INSTALLATION}")
    except KeyboardInterrupt:  # importing takes a while; after it, typer handles this
        sys.exit(128 + signal.SIGINT)
    try:
        app()
    except OSError as error:  # from typer's own output: help, and errors in options
        sys.exit(f"error: {error.strerror}")


def _nowhere() -> TextIO:
    return Path(os.devnull).open("w")  # open until the process ends
