"""The recorded duration of each test module, and the order that follows from it.

Several processes share the tests. Each takes the next module when it has finished one, so the
longest modules must come first. Otherwise one process works alone at the end. The seconds are in
``tests/durations.json``; ``make test ARGS=--record-durations`` writes it. A module that is not in
the file may be long, so it comes before all others.

Modules that start a Java compute all the time, and most others wait. The two kinds take turns, so
that processors neither idle nor have more to do than they can.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import zip_longest
from pathlib import Path
from typing import Final

import pytest
from xdist.scheduler import LoadScopeScheduling

TESTS: Final = Path(__file__).parents[1]
RECORD: Final = TESTS / "durations.json"
ONE_SPARK_SESSION: Final = frozenset(
    f"spark/test_{name}.py" for name in ("export", "stream", "reports", "table")
)
"""Modules that share a Spark session, which takes seconds to start: one process runs them all."""

STARTING_JAVA: Final = ("spark", "system/test_demo.py")
"""How the names of units begin whose tests start a Java."""


def module_of(node_id: str) -> str:
    """Return the path below ``tests`` of the module that the test is in."""
    return node_id.partition("::")[0].removeprefix("tests/")


def unit_of(node_id: str) -> str:
    """Return the unit of work of a test: all tests of a unit run in one process."""
    module = module_of(node_id)
    return "spark" if module in ONE_SPARK_SESSION else module


def recorded() -> dict[str, float]:
    """Return the recorded seconds of each module."""
    seconds: dict[str, float] = json.loads(RECORD.read_text())
    return seconds


def units_longest_first(seconds: Mapping[str, float]) -> dict[str, float]:
    """Return the seconds of each unit, those of the longest first."""
    units: dict[str, float] = defaultdict(float)
    for module, duration in seconds.items():
        units[unit_of(module)] += duration
    return dict(sorted(units.items(), key=lambda unit: -unit[1]))


def alternating(units: Iterable[str]) -> Iterator[str]:
    """Yield the units, those that start a Java and those that do not by turns, each in order."""
    ordered = list(units)
    java = [unit for unit in ordered if unit.startswith(STARTING_JAVA)]
    others = [unit for unit in ordered if not unit.startswith(STARTING_JAVA)]
    for pair in zip_longest(java, others):
        yield from filter(None, pair)


def place_in(units: Iterable[str]) -> Callable[[str], int]:
    """Return the function from a test's id to the place of its unit; an unknown one is first."""
    places = {unit: place for place, unit in enumerate(units)}
    return lambda node_id: places.get(unit_of(node_id), -1)


class UnitScheduling(LoadScopeScheduling):  # type: ignore[misc] # it has no type hints
    """Hand out the tests unit by unit, in the order in which they were collected."""

    def _split_scope(self, nodeid: str) -> str:
        return unit_of(nodeid)


class DurationRecorder:
    """Add up the seconds of each module, and write them at the end of the run.

    A module that did not run keeps its old value; one that no longer exists is dropped.
    """

    def __init__(self) -> None:
        self._seconds: dict[str, float] = defaultdict(float)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count one phase of a test."""
        self._seconds[module_of(report.nodeid)] += report.duration

    def pytest_sessionfinish(self) -> None:
        """Write the record: whole seconds of every module."""
        merged = (recorded() if RECORD.exists() else {}) | self._seconds
        kept = {
            module: round(duration)
            for module, duration in sorted(merged.items())
            if (TESTS / module).exists()
        }
        RECORD.write_text(json.dumps(kept, indent=1) + "\n")
