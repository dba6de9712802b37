"""The benchmarks against other systems leave no process behind, whatever ends them."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

ROOT = Path(__file__).parents[3]
END_SECONDS_MAX = 60

DAEMON = "import os, signal; print(os.getpid(), flush=True); signal.pause()"

# A server that starts a daemon, which leaves its group and its session.
SERVER = f"""
import os, signal, subprocess, sys
subprocess.Popen([sys.executable, "-c", {DAEMON!r}], start_new_session=True)
print(os.getpid(), flush=True)
signal.pause()
"""

BENCHMARK = f"""
import signal, sys
from pathlib import Path
from bench.peers.children import nothing_left_behind
from interop.processes import Child

with (
    nothing_left_behind(),
    Child("a server", [sys.executable, "-c", {SERVER!r}], Path(sys.argv[1])) as child,
):
    child.wait_until(lambda: child.log.read_text().count("\\n") == 2)
    print(*child.log.read_text().split(), flush=True)
    if sys.argv[2] == "failure":
        raise OSError("the disk is full")
    signal.pause()
"""


@pytest.mark.parametrize(
    ("end", "exit_code"),
    [("SIGINT", -signal.SIGINT), ("SIGTERM", 128 + signal.SIGTERM), ("failure", 1)],
)
def test_no_process_outlives_the_benchmark(tmp_path: Path, end: str, exit_code: int) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", BENCHMARK, str(tmp_path / "log"), end],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as benchmark:
        assert benchmark.stdout is not None
        pids = [int(pid) for pid in benchmark.stdout.readline().split()]
        if end != "failure":
            benchmark.send_signal(signal.Signals[end])

        assert benchmark.wait(END_SECONDS_MAX) == exit_code
    assert len(pids) == 2
    assert not any(psutil.pid_exists(pid) for pid in pids)
