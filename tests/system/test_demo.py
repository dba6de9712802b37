"""The demo as a newcomer runs it: it ends by itself, agrees with the file and leaves nothing."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import psutil
import pytest

from support.postgres import reachable_directory
from support.spark_classes import QUICK_JAVA, archive_classes

ROOT = Path(__file__).parents[2]

WITHIN_SECONDS = 500  # machines that run tests are busy


@pytest.fixture(scope="module", autouse=True)
def _classes() -> None:
    archive_classes()


@pytest.fixture
def temporary() -> Iterator[Path]:
    """Return a directory for temporary files, PostgreSQL's among them."""
    with reachable_directory() as directory:
        yield directory


def demo(*arguments: str, temporary: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "demo.flights", *arguments],
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(temporary), "SPARK_SUBMIT_OPTS": QUICK_JAVA},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def until_shown(text: str, process: subprocess.Popen[str]) -> list[str]:
    """Return the lines that the demo shows, up to the one with *text*."""
    assert process.stdout is not None
    lines: list[str] = []
    while text not in (line := process.stdout.readline()):
        assert line, f"it ended before: {process.communicate()}"
        lines.append(line.rstrip("\n"))
    return lines


def test_the_demo_agrees_with_the_file_and_leaves_nothing(temporary: Path) -> None:
    with demo("--limit=3000", temporary=temporary) as process:
        shown, errors = process.communicate(timeout=WITHIN_SECONDS)

    assert (process.returncode, errors) == (0, "")
    assert "All numbers agree with the file" in shown
    assert "sending: 3,000 in" in shown
    assert "tickets: 600 in" in shown
    assert "boarding: 600 in" in shown
    assert "The life of a ticket that the checker asked about" in shown
    assert "3,000 messages exported" in shown
    assert "flights were acknowledged: 0 of them are lost" in " ".join(shown.split())
    assert list(temporary.iterdir()) == []


def test_a_kept_cluster_runs_with_what_it_did_in_its_console_until_it_is_stopped(
    temporary: Path,
) -> None:
    with demo("--limit=10", "--keep", temporary=temporary) as process:
        lines = until_shown("runs until Ctrl-C", process)
        links = re.findall(r"^  (http://127\.0\.0\.1:\d+/\S*)", "\n".join(lines), re.MULTILINE)
        answers = [httpx.get(link, trust_env=False, timeout=WITHIN_SECONDS) for link in links]
        process.send_signal(signal.SIGTERM)
        shown, _ = process.communicate(timeout=WITHIN_SECONDS)

    assert process.returncode == 0, shown
    assert len(links) >= 5
    assert [answer.status_code for answer in answers] == [httpx.codes.OK] * len(links)
    assert "flights" in answers[1].text
    [kept] = temporary.iterdir()
    assert f"kept in {kept}" in shown.replace("\n", "")
    names = {path.name for path in kept.iterdir() if not path.name.startswith(".")}
    brokers = {"broker-a", "broker-a-2", "broker-b", "broker-b-2"}
    assert names == {*brokers, "lake", "lock", "namesrv-1", "postgres"}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_demo_can_be_stopped_at_any_time(temporary: Path, number: signal.Signals) -> None:
    with demo(temporary=temporary) as process:
        until_shown("running:", process)
        children = psutil.Process(process.pid).children()
        process.send_signal(number)
        shown, errors = process.communicate(timeout=WITHIN_SECONDS)

    assert (process.returncode, errors) == (130, "")
    assert "stopped" in shown
    assert list(temporary.iterdir()) == []
    assert len(children) == 9
    assert not any(child.is_running() for child in children)


def test_a_count_that_is_none_is_refused() -> None:
    with demo("--limit=0", temporary=Path("/tmp")) as process:
        _, errors = process.communicate(timeout=WITHIN_SECONDS)

    assert process.returncode == 2
    assert "expected at least 1, found 0" in errors
