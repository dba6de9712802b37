"""Child processes of ``make interop``: none outlives its start's failure."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from interop.processes import Child, ChildError


def a_child(log: Path, code: str) -> Child:
    return Child("a child", [sys.executable, "-c", code], log)


def pid_of(child: Child) -> int:
    child.wait_until(lambda: child.tail.endswith("\n"))
    return int(child.tail)


_WAITS = "import os, signal; print(os.getpid(), flush=True); signal.pause()"


@pytest.mark.parametrize("failure", [False, OSError("refused")])
def test_a_child_that_does_not_become_ready_is_killed(
    tmp_path: Path, failure: bool | OSError
) -> None:
    child = a_child(tmp_path / "log", _WAITS)
    pid = pid_of(child)

    def is_ready() -> bool:
        if isinstance(failure, OSError):
            raise failure
        return failure

    with pytest.raises((ChildError, OSError)):
        child.started(is_ready, seconds_max=0)

    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_child_that_ends_before_it_is_ready_says_what_it_has_logged(tmp_path: Path) -> None:
    child = a_child(tmp_path / "log", "raise SystemExit('no such port')")

    with pytest.raises(ChildError, match=r"ended with 1: no such port"):
        child.started(lambda: False)


def test_a_child_that_becomes_ready_runs_until_its_context_ends(tmp_path: Path) -> None:
    with a_child(tmp_path / "log", _WAITS).started(lambda: True) as child:
        pid = pid_of(child)
        os.kill(pid, 0)

    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
