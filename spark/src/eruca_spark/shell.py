"""The parts that every command of ``eruca-spark`` has: a session, Ctrl-C, texts."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import FrameType
from typing import Final

import typer
from pyspark.sql import SparkSession
from rich.console import Console

from eruca_spark.command_options import pairs_of
from eruca_spark.session import spark_session

MASTERS: Final = ("local", "spark://", "yarn", "k8s://")
FILE_WIDTH: Final = 160  # of tables that are written to a file or a pipe


@contextmanager
def interruption() -> Iterator[threading.Event]:
    """Record the first Ctrl-C without interrupting Spark; yield the event that tells it.

    The second one ends the command at once.
    """
    interrupted = threading.Event()

    def note(number: int, frame: FrameType | None) -> None:
        interrupted.set()
        signal.signal(signal.SIGINT, before)

    before = signal.signal(signal.SIGINT, note)
    try:
        yield interrupted
    finally:
        signal.signal(signal.SIGINT, before)


def check_master(master: str | None) -> None:
    """Refuse an invalid master, with which Spark would fail with a stack trace."""
    if master is not None and not master.startswith(MASTERS):
        raise typer.BadParameter(
            "--master: expected a value that begins with one of"
            f" {', '.join(MASTERS)}; found {master}"
        )


@contextmanager
def command_session(
    name: str,
    master: str | None,
    conf: list[str] | None,
    settings: Mapping[str, str] | None = None,
) -> Iterator[SparkSession]:
    """Yield the session of a command; refuse an invalid master before Spark starts."""
    check_master(master)
    chosen = {**(settings or {}), **pairs_of(conf, "--conf")}
    with spark_session(f"eruca {name}", master, chosen) as spark:
        yield spark


@contextmanager
def interruptible_session(
    name: str, master: str | None, conf: list[str] | None
) -> Iterator[SparkSession]:
    """Yield the session of a command, with the handler of Ctrl-C, which Spark replaces."""
    handler = signal.getsignal(signal.SIGINT)
    with command_session(name, master, conf) as spark:
        signal.signal(signal.SIGINT, handler)
        yield spark


def output_console() -> Console:
    """Return the console for results."""
    # Names and paths must not be parsed as markup, and a row must stay on one line everywhere.
    width = None if sys.stdout.isatty() or "COLUMNS" in os.environ else FILE_WIDTH
    return Console(highlight=False, markup=False, soft_wrap=True, width=width)


def progress_console(output: str) -> Console:
    """Return the console for progress and results; for JSON on stdout it is stderr."""
    return error_console() if output == "json" else output_console()


def counted(count: int, noun: str, plural: str | None = None) -> str:
    """Return a number with its noun."""
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"


def error_console() -> Console:
    """Return the console for errors."""
    return Console(stderr=True, highlight=False, markup=False, soft_wrap=True)
