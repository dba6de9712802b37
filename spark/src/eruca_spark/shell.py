"""The parts that every command of ``eruca-spark`` has: a session, Ctrl-C, texts."""

from __future__ import annotations

import os
import select
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

from eruca_spark.command_options import settings_of
from eruca_spark.outcomes import INTERRUPTED
from eruca_spark.session import spark_session

MASTERS: Final = ("local", "spark://", "yarn", "k8s://")
_LOOK_SECONDS: Final = 0.2  # after Ctrl-C, until jobs are cancelled
FILE_WIDTH: Final = 160  # of tables that are written to a file or a pipe


class Interruption:
    """The memory that Ctrl-C was pressed; the second one ends the command at once.

    The handler raises no exception, and takes no lock: it runs between any two steps of the main
    thread, which may hold a lock, or be about to start a thread.
    """

    def __init__(self) -> None:
        self._is_set = False
        self._pipe = os.pipe()

    def is_set(self) -> bool:
        """Tell whether Ctrl-C was pressed."""
        return self._is_set

    def wait(self, seconds: float) -> bool:
        """Return after *seconds*, or once Ctrl-C is pressed; tell whether it was."""
        select.select([self._pipe[0]], [], [], seconds)
        return self._is_set

    def note(self, number: int, frame: FrameType | None) -> None:
        """Be the signal's handler."""
        if self._is_set:
            os._exit(INTERRUPTED)
        self._is_set = True
        os.write(self._pipe[1], b"\0")

    def close(self) -> None:
        """Release what the wait needs."""
        for end in self._pipe:
            os.close(end)


@contextmanager
def interruption() -> Iterator[Interruption]:
    """Record the first Ctrl-C in the block without interrupting Spark.

    Ctrl-C remains ignored if the parent ignores it: it is meant for another job then.
    """
    interrupted = Interruption()
    before = signal.getsignal(signal.SIGINT)
    if before is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, interrupted.note)
    try:
        yield interrupted
    finally:
        signal.signal(signal.SIGINT, before)
        interrupted.close()


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
    """Yield the session of a command; refuse an invalid master before Spark starts.

    Ctrl-C cancels Spark's jobs. The error of a cancelled job becomes a KeyboardInterrupt here.
    """
    with (
        interruption() as interrupted,
        interruptible_session(name, master, conf, settings) as spark,
        _cancelled_by(interrupted, spark),
    ):
        yield spark


@contextmanager
def interruptible_session(
    name: str,
    master: str | None,
    conf: list[str] | None,
    settings: Mapping[str, str] | None = None,
) -> Iterator[SparkSession]:
    """Yield the session of a command, with the present handler of Ctrl-C, which Spark replaces."""
    check_master(master)
    chosen = {**(settings or {}), **settings_of(conf)}
    handler = signal.getsignal(signal.SIGINT)
    with spark_session(f"eruca {name}", master, chosen) as spark:
        signal.signal(signal.SIGINT, handler)
        yield spark


@contextmanager
def _cancelled_by(interrupted: Interruption, spark: SparkSession) -> Iterator[None]:
    """Cancel Spark's jobs after Ctrl-C in the block, later ones of the block included."""
    is_over = threading.Event()

    def cancel() -> None:
        while not is_over.wait(_LOOK_SECONDS):
            if interrupted.is_set():
                spark.sparkContext.cancelAllJobs()

    cancelling = threading.Thread(target=cancel, name="cancel jobs", daemon=True)
    cancelling.start()
    try:
        yield
    except Exception as error:
        if interrupted.is_set():
            raise KeyboardInterrupt from error
        raise
    finally:
        is_over.set()
        cancelling.join()


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
