"""The script ``eruca``: the command line, or what to install where the SDK is there without it."""

from __future__ import annotations

import io
import os
import signal
import sys
from pathlib import Path
from typing import TextIO

from eruca.cli.installation import INSTALLATION


def run() -> None:
    """Run the command that the command line names."""
    sys.stdout = sys.stdout or _nowhere()  # None: whoever started the command has closed it
    sys.stderr = sys.stderr or _nowhere()
    for stream in (sys.stdout, sys.stderr):
        # A message may hold anything; what the terminal's encoding lacks is shown as an escape.
        if isinstance(stream, io.TextIOWrapper):  # else a test has put something in its place
            stream.reconfigure(errors="backslashreplace")
    try:
        from eruca.cli.app import app
    except ModuleNotFoundError as error:
        if error.name != "typer":
            raise
        sys.exit(f"error: typer is not installed. To mend it: {INSTALLATION}")
    except KeyboardInterrupt:  # importing takes a while; from here on typer sees to it
        sys.exit(128 + signal.SIGINT)
    try:
        app()
    except OSError as error:  # of what typer prints itself: help, and what is wrong with options
        sys.exit(f"error: {error.strerror}")


def _nowhere() -> TextIO:
    return Path(os.devnull).open("w")  # for as long as the process lives
