"""The command line as tests use it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import IO, Any, Final

import pytest
from typer.testing import CliRunner, Result

from eruca.cli.app import app
from support.patience import PATIENCE_SECONDS

ERUCA: Final = Path(sys.executable).with_name("eruca")
STOPS: Final = pytest.mark.parametrize(
    ("stop", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=["ctrl_c", "sigterm"]
)
"""Signals that end a command, and its exit code then."""


class Eruca:
    """Runs the command: in this process, which is faster, or as one of its own."""

    def __init__(self, namesrv_url: str) -> None:
        self.environment = {"ERUCA_NAMESRV_URLS": namesrv_url}

    def __call__(self, *arguments: str, code: int = 0) -> Result:
        done = CliRunner().invoke(app, arguments, env=self.environment)
        assert done.exit_code == code, done.output
        return done

    def json(self, *arguments: str) -> Any:  # noqa: ANN401 - a JSON value may be anything
        return json.loads(self(*arguments, "--output=json").stdout)

    def piped(self, stdin: str, *arguments: str, code: int = 0) -> str:
        """Run it as a process that reads *stdin*; return what it said on stderr."""
        with self.start(*arguments) as process:
            _, errors = process.communicate(stdin, timeout=PATIENCE_SECONDS)
        assert process.returncode == code, errors
        assert "Traceback" not in errors
        return errors

    def start(
        self,
        *arguments: str,
        stdin: int = subprocess.PIPE,
        stdout: int | IO[str] = subprocess.PIPE,
    ) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [ERUCA, *arguments],
            env={**os.environ, **self.environment, "PYTHONUNBUFFERED": "1"},
            stdin=stdin,
            stdout=stdout,
            stderr=subprocess.PIPE,
            text=True,
        )

    def bodies(self, topic: str, *options: str) -> list[str]:
        """Return what a topic holds, each queue's in order."""
        shown = self("tail", topic, "--start=earliest", "--no-follow", "-ojson", *options).stdout
        return [json.loads(line)["body"]["text"] for line in shown.splitlines()]
