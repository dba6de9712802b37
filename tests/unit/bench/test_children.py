"""The benchmarks leave no process behind, whatever ends them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from support.waiting import wait_until

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
import os, signal, sys
from pathlib import Path
from bench.children import nothing_left_behind
from interop.processes import Child

with (
    nothing_left_behind(),
    Child("a server", [sys.executable, "-c", {SERVER!r}], Path(sys.argv[1])) as child,
):
    child.wait_until(lambda: child.log.read_text().count("\\n") == 2)
    print(os.getpid(), *child.log.read_text().split(), flush=True)
    if sys.argv[2] == "failure":
        raise OSError("the disk is full")
    signal.pause()
"""


@pytest.mark.parametrize(
    ("end", "exit_code"),
    [
        ("SIGINT", 128 + signal.SIGINT),
        ("SIGTERM", 128 + signal.SIGTERM),
        ("SIGHUP", 128 + signal.SIGHUP),
        ("failure", 1),
    ],
)
def test_no_process_outlives_the_benchmark(tmp_path: Path, end: str, exit_code: int) -> None:
    with begun(tmp_path, end) as benchmark:
        pids = pids_of(benchmark)
        if end != "failure":
            benchmark.send_signal(signal.Signals[end])

        assert benchmark.wait(END_SECONDS_MAX) == exit_code
    assert len(pids) == 3
    assert not any(psutil.pid_exists(pid) for pid in pids)


def test_no_process_outlives_a_benchmark_whose_work_is_killed(tmp_path: Path) -> None:
    with begun(tmp_path, "kill") as benchmark:
        work, *others = pids_of(benchmark)
        os.kill(work, signal.SIGKILL)

        assert benchmark.wait(END_SECONDS_MAX) == 128 + signal.SIGKILL
    assert not any(psutil.pid_exists(pid) for pid in (work, *others))


def test_no_process_outlives_a_benchmark_that_is_killed(tmp_path: Path) -> None:
    with begun(tmp_path, "kill") as benchmark:
        processes = [psutil.Process(pid) for pid in pids_of(benchmark)]
        benchmark.kill()

        _, alive = psutil.wait_procs(processes, timeout=END_SECONDS_MAX)
    assert not alive


def test_ctrl_z_stops_the_work_too_until_it_goes_on(tmp_path: Path) -> None:
    with begun(tmp_path, "SIGTERM") as benchmark:
        work, *_ = pids_of(benchmark)
        both = [psutil.Process(benchmark.pid), psutil.Process(work)]
        for _ in range(2):
            benchmark.send_signal(signal.SIGTSTP)
            wait_until(lambda: all(it.status() == psutil.STATUS_STOPPED for it in both))
            benchmark.send_signal(signal.SIGCONT)
            wait_until(lambda: all(it.status() != psutil.STATUS_STOPPED for it in both))

        benchmark.send_signal(signal.SIGTERM)
        assert benchmark.wait(END_SECONDS_MAX) == 128 + signal.SIGTERM


def test_no_process_outlives_a_benchmark_that_is_killed_while_it_is_stopped(tmp_path: Path) -> None:
    with begun(tmp_path, "kill") as benchmark:
        processes = [psutil.Process(pid) for pid in pids_of(benchmark)]
        benchmark.send_signal(signal.SIGTSTP)
        wait_until(lambda: processes[0].status() == psutil.STATUS_STOPPED)
        benchmark.kill()

        _, alive = psutil.wait_procs(processes, timeout=END_SECONDS_MAX)
    assert not alive


def begun(directory: Path, end: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", BENCHMARK, str(directory / "log"), end],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        process_group=0,  # as a shell's job: the kernel ignores Ctrl-Z where no shell waits
    )


def pids_of(benchmark: subprocess.Popen[str]) -> list[int]:
    """Return the ids of the work, of its server, and of the server's daemon."""
    assert benchmark.stdout is not None
    return [int(pid) for pid in benchmark.stdout.readline().split()]
