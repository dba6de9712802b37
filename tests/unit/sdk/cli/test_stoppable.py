"""Signals during a command's blocking work: it ends at its own choice, or the process without it.

The commands are processes, because signals and their handlers are a process's.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
from typing import Final

import pytest

CODES: Final = {signal.SIGINT: 130, signal.SIGTERM: 143}
COMMAND: Final = """
import asyncio, sys, threading, time
from eruca.cli import stoppable as module
from eruca.cli.command import run_guarded
from eruca.cli.session import Session
from eruca.cli.stoppable import stoppable

def work(stop):
    {work}

async def command():
    try:
        await stoppable(work)
    except asyncio.CancelledError:
        print("cancelled", flush=True)
        raise

module.PATIENCE_SECONDS = {patience}
sys.exit(run_guarded(command(), Session()))
"""


def begun(work: str, *, patience: float = 60) -> subprocess.Popen[str]:
    """Start a command whose work says ``working``; return once it has."""
    script = COMMAND.format(work=textwrap.indent(textwrap.dedent(work), "    "), patience=patience)
    process = subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "working\n"
    return process


@pytest.mark.parametrize("number", CODES)
def test_work_ends_at_a_place_of_its_own_choice(number: signal.Signals) -> None:
    with begun('print("working", flush=True); stop.wait(); print("ended", flush=True)') as process:
        process.send_signal(number)
        said, _ = process.communicate()

    assert said.splitlines() == ["ended", "cancelled"]
    assert process.returncode == CODES[number]


@pytest.mark.parametrize("number", CODES)
def test_work_that_does_not_end_is_left(number: signal.Signals) -> None:
    """The interpreter's end would wait for it, or run into it."""
    waiting = 'print("working", flush=True); threading.Event().wait()'
    with begun(waiting, patience=0.1) as process:
        process.send_signal(number)
        said, _ = process.communicate()

    assert said == "cancelled\n"
    assert process.returncode == CODES[number]


def test_a_second_signal_ends_the_process_at_once() -> None:
    waiting = (
        'print("working", flush=True); stop.wait(); print("told", flush=True); time.sleep(600)'
    )
    with begun(waiting) as process:
        process.send_signal(signal.SIGTERM)
        assert process.stdout is not None
        assert process.stdout.readline() == "told\n"
        process.send_signal(signal.SIGINT)

        assert process.wait() == 130


def test_an_error_of_the_work_is_the_commands() -> None:
    with begun('print("working", flush=True); raise OSError(5, "cut", "file")') as process:
        assert process.wait() == 1


@pytest.mark.parametrize("number", CODES)
def test_a_signal_that_the_parent_ignores_leaves_a_command_alone(number: signal.Signals) -> None:
    """A shell starts jobs in the background so: Ctrl-C is meant for another job."""
    work = 'print("working", flush=True); input(); print("ended", flush=True)'
    before = signal.signal(number, signal.SIG_IGN)  # the command inherits it
    try:
        process = begun(work)
    finally:
        signal.signal(number, before)
    with process:
        process.send_signal(number)
        said, _ = process.communicate("go on\n")

    assert (said, process.returncode) == ("ended\n", 0)
