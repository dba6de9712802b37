"""The harness itself: a run with a broker that nothing harms has no anomaly.

Every client is at work, and every question of the final phase is asked. So what a checker finds in
another run is not the harness's.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from chaos.checkers import check
from chaos.cluster import Shape
from chaos.history import History
from chaos.report import counts_of, page_of, text_of
from chaos.run import Plan, run

pytestmark = pytest.mark.timeout(240)
EVERY_OPERATION = {
    *("send", "pull", "begin", "decide", "ask", "recall"),
    *("heartbeat", "lock", "commit", "committed", "deliver", "ack"),
    *("create-topic", "topic", "status", "queue", "log", "drain", "rebuild", "handle"),
}


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, History]:
    """Return the directory and the history of a run without faults."""
    directory = tmp_path_factory.mktemp("chaos")
    shape = Shape(brokers=("broker-a",), replicas=1, controllers=0)
    return directory, asyncio.run(run(Plan(seed=1, seconds=6.0, shape=shape), directory))


def test_a_run_without_faults_has_no_anomaly(sound: tuple[Path, History]) -> None:
    _, history = sound

    assert {name: found for name, found in check(history).items() if found} == {}


def test_every_operation_was_done(sound: tuple[Path, History]) -> None:
    _, history = sound

    assert {op for op, counts in counts_of(history).items() if counts["ok"]} >= EVERY_OPERATION


def test_the_history_is_judged_again_from_its_file(sound: tuple[Path, History]) -> None:
    directory, history = sound
    read = History.read(directory / "history.jsonl")

    assert len(read.operations) == len(history.operations)
    assert text_of(read, check(read)) == text_of(history, check(history))
    assert "broker-a" in page_of(read, check(read))
