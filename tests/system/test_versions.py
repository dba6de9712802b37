"""Every command says its name and version, and refuses arguments that it does not know."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Final

import pytest

from support.patience import PATIENCE_SECONDS

BIN = Path(sys.executable).parent
MODULE = (sys.executable, "-m")
COMMANDS: Final[dict[str, tuple[str | Path, ...]]] = {
    "eruca": (BIN / "eruca",),
    "eruca-local": (BIN / "eruca-local",),
    "eruca-spark": (BIN / "eruca-spark",),
    "eruca-broker": (BIN / "eruca-broker",),
    "eruca-console": (BIN / "eruca-console",),
    "eruca-controller": (BIN / "eruca-controller",),
    "eruca-namesrv": (BIN / "eruca-namesrv",),
    "eruca-query": (BIN / "eruca-query",),
    "eruca-txn-checker": (BIN / "eruca-txn-checker",),
    "python -m eruca": (*MODULE, "eruca"),
    "python -m eruca_broker": (*MODULE, "eruca_broker"),
    "python -m eruca_console": (*MODULE, "eruca_console"),
    "python -m eruca_controller": (*MODULE, "eruca_controller"),
    "python -m eruca_deploy.local": (*MODULE, "eruca_deploy.local"),
    "python -m eruca_namesrv": (*MODULE, "eruca_namesrv"),
    "python -m eruca_postgres": (*MODULE, "eruca_postgres"),
    "python -m eruca_query": (*MODULE, "eruca_query"),
    "python -m eruca_spark": (*MODULE, "eruca_spark"),
    "python -m eruca_txn_checker": (*MODULE, "eruca_txn_checker"),
}
NAMES = {"python -m eruca_deploy.local": "eruca-local"}
INVALID_SETTINGS = {
    f"ERUCA_{service}_PORT": "none"
    for service in ("BROKER", "CONSOLE", "CONTROLLER", "NAMESRV", "QUERY", "TXN_CHECKER")
}


def ran(command: str, directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMANDS[command], *arguments],
        capture_output=True,
        cwd=directory,
        env={**os.environ, **INVALID_SETTINGS, "XDG_DATA_HOME": str(directory)},
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )


@pytest.mark.parametrize("command", COMMANDS)
def test_the_version_is_printed_whatever_the_settings_are(command: str, tmp_path: Path) -> None:
    name = NAMES.get(command) or command.removeprefix("python -m ").replace("_", "-")

    done = ran(command, tmp_path, "--version")

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"{name} {version('eruca')}\n"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", COMMANDS)
def test_an_unknown_argument_is_refused_with_a_hint(command: str, tmp_path: Path) -> None:
    done = ran(command, tmp_path, "--verison")

    assert done.returncode == 2
    assert done.stdout == ""
    assert "--help" in done.stderr or "-h" in done.stderr
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []
