"""Run ``initdb`` once in a test run, and copy its result for each PostgreSQL that tests start.

A new server takes most of a second of computing, and some of waiting for the disk. A copy takes a
tenth of that, and tests start dozens. Forked services copy, too. Services that are started as
programs do not: they test a first start.

The copies do not wait for the disk. Tests kill processes, never the machine, and bytes that a
process has written to a file survive its death.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from fasteners import InterProcessLock  # type: ignore[import-untyped]  # it has no types

from eruca_postgres import embedded

_ORIGINAL: Final = "TESTS_INITDB_ORIGINAL"  # tells the process that forks where it is


def copy_from(original: Path) -> None:
    """Have the servers of this process begin with a copy of *original*, which the first one makes.

    Args:
        original: A directory that all processes of a run use; its parent exists.
    """
    os.environ[_ORIGINAL] = str(original)
    wheel: Any = embedded.postgres_server  # type: ignore[attr-defined]  # not one that it exports
    wheel.initdb = _copying(wheel.initdb, original)


def copy_as_parent() -> None:
    """Do in this process what :func:`copy_from` did in the one that started it, if it did."""
    if _ORIGINAL in os.environ:
        copy_from(Path(os.environ[_ORIGINAL]))


def _copying(initdb: Callable[..., Any], original: Path) -> Callable[..., Any]:
    lock = InterProcessLock(original.with_name(f".{original.name}.lock"))

    def copy_or_make(arguments: list[str], *, pgdata: Path, **more: Any) -> None:  # noqa: ANN401
        with lock:
            if not original.exists():
                initdb(arguments, pgdata=pgdata, **more)
                with (pgdata / "postgresql.conf").open("a") as settings:
                    settings.write("fsync = off\n")
                copying = original.with_name(f".{original.name}.copying")
                _copy(pgdata, copying)
                copying.rename(original)
                return
        _copy(original, pgdata)

    return copy_or_make


def _copy(source: Path, target: Path) -> None:
    """Copy a directory with the owners of its files: the server's user, under root."""
    target.mkdir(exist_ok=True)
    subprocess.run(["cp", "-a", f"{source}/.", target], check=True)
