"""Exports to tables by the command line, as tests run them."""

from __future__ import annotations

import signal
import subprocess
from random import Random
from typing import Any

from support.command_line import ERUCA, Eruca
from support.export_service import ExportService
from support.tables import LocalTable
from support.waiting import wait_until

NOWHERE = "http://127.0.0.1:1"  # the query service is given instead


def words_of(service: ExportService, table: LocalTable, topic: str = "orders") -> list[str]:
    given = ["export", topic, "--to", table.target, "--query", service.url]
    for name, value in table.options.items():
        given += ["--table-option", f"{name}={value}"]
    return given


def exported(
    service: ExportService, table: LocalTable, *more: str, topic: str = "orders"
) -> dict[str, Any]:
    done: dict[str, Any] = Eruca(NOWHERE).json(*words_of(service, table, topic), *more)
    return done


def failed(service: ExportService, table: LocalTable, *more: str, code: int = 1) -> str:
    done = Eruca(NOWHERE)(*words_of(service, table), *more, code=code)
    return " ".join(done.stderr.split())


def run_export(
    service: ExportService, table: LocalTable, *more: str
) -> subprocess.CompletedProcess[str]:
    """Export by a process of its own, whose libraries read this one's environment."""
    return subprocess.run(
        [str(ERUCA), *words_of(service, table), *more], capture_output=True, text=True, check=False
    )


def offsets(sizes: dict[int, int], topic: str = "orders") -> list[tuple[str, str, int, int]]:
    return sorted((topic, "broker-a", q, n) for q, size in sizes.items() for n in range(size))


def end_an_export(
    service: ExportService, table: LocalTable, stop: signal.Signals, random: Random
) -> None:
    """Start an export and end it at a random request for rows, or a random time after it."""
    command = [str(ERUCA), *words_of(service, table), "--rows-per-batch", "300"]
    asked = len(service.requests) + random.randrange(3, 9)
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        wait_until(lambda: len(service.requests) >= asked or process.poll() is not None)
        try:
            process.wait(random.uniform(0, 0.1))
        except subprocess.TimeoutExpired:
            process.send_signal(stop)
        _, said = process.communicate()
    # At its very end, a signal ends the interpreter as if nothing had handled it.
    assert process.returncode in (128 + stop, -stop, 0), said
    assert b"Traceback" not in said
