"""The script ``eruca``: the command line, or what to install where the SDK is there without it."""

from __future__ import annotations

import io
import sys

from eruca.cli.installation import INSTALLATION


def run() -> None:
    """Run the command that the command line names."""
    for stream in (sys.stdout, sys.stderr):
        # A message may hold anything; what the terminal's encoding lacks is shown as an escape.
        if isinstance(stream, io.TextIOWrapper):  # None where it is closed
            stream.reconfigure(errors="backslashreplace")
    try:
        from eruca.cli.app import app
    except ModuleNotFoundError as error:
        if error.name != "typer":
            raise
        sys.exit(f"error: typer is not installed. To mend it: {INSTALLATION}")
    app()
