"""The demo as a newcomer runs it: it ends by itself, agrees with the file and leaves nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

ROOT = Path(__file__).parents[2]


def demo(*arguments: str, temporary: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "demo.flights", *arguments],
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(temporary)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_the_demo_agrees_with_the_file_and_leaves_nothing(tmp_path: Path) -> None:
    with demo("--limit=3000", temporary=tmp_path) as process:
        shown, errors = process.communicate(timeout=100)

    assert (process.returncode, errors) == (0, "")
    assert "All numbers agree with the file" in shown
    assert "sending: 3,000 in" in shown
    assert list(tmp_path.iterdir()) == []


def test_kept_data_is_where_it_says(tmp_path: Path) -> None:
    with demo("--limit=10", "--keep", temporary=tmp_path) as process:
        shown, _ = process.communicate(timeout=100)

    [kept] = tmp_path.iterdir()
    assert f"kept in {kept}" in shown.replace("\n", "")
    assert sorted(path.name for path in kept.iterdir()) == ["broker-a", "broker-b", "namesrv-1"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_demo_can_be_stopped_at_any_time(tmp_path: Path, number: signal.Signals) -> None:
    with demo(temporary=tmp_path) as process:
        assert process.stdout is not None
        while "running:" not in (line := process.stdout.readline()):
            assert line, "it ended before it ran"
        children = psutil.Process(process.pid).children()
        process.send_signal(number)
        shown, errors = process.communicate(timeout=100)

    assert (process.returncode, errors) == (130, "")
    assert "stopped" in shown
    assert list(tmp_path.iterdir()) == []
    assert len(children) == 3
    assert not any(child.is_running() for child in children)


def test_a_count_that_is_none_is_refused() -> None:
    with demo("--limit=0", temporary=Path("/tmp")) as process:
        _, errors = process.communicate(timeout=100)

    assert process.returncode == 2
    assert "0 is not at least 1" in errors
