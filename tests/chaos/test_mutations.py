"""A rule of the product that is broken is found, within seconds, by the schedule that is for it.

A suite that has not found a fault is no evidence of none. The schedules find nothing in the product
as it is, so what they find is the mutation's. Those with an election take longer: ``make chaos
ARGS=--mutations`` runs all.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from chaos.checkers import check
from chaos.mutations import MUTATIONS
from chaos.nemeses import NEMESES
from chaos.report import text_of
from chaos.schedules import SCHEDULES, follow_schedule

pytestmark = pytest.mark.timeout(180)
SHORT = [name for name, schedule in SCHEDULES.items() if not schedule.has_election]


@pytest.mark.parametrize("name", [n for n, one in MUTATIONS.items() if one.schedule in SHORT])
def test_a_broken_rule_is_found(name: str, tmp_path: Path) -> None:
    mutation = MUTATIONS[name]

    history = asyncio.run(follow_schedule(mutation.schedule, tmp_path, mutation=name))

    verdicts = check(history)
    print(text_of(history, verdicts))  # noqa: T201 - of a failure
    found = {checker for checker, anomalies in verdicts.items() if anomalies}
    assert found & set(mutation.checkers)


@pytest.mark.parametrize("name", SHORT)
def test_a_schedule_finds_nothing_in_the_product(name: str, tmp_path: Path) -> None:
    history = asyncio.run(follow_schedule(name, tmp_path))

    verdicts = check(history)
    print(text_of(history, verdicts))  # noqa: T201 - of a failure
    assert {checker: found for checker, found in verdicts.items() if found} == {}


def test_each_schedule_shows_a_broken_rule() -> None:
    assert {mutation.schedule for mutation in MUTATIONS.values()} == SCHEDULES.keys()


def test_the_readme_has_each_fault_and_each_mutation() -> None:
    text = (Path(__file__).parent / "README.md").read_text()

    assert [name for name in NEMESES if f"`{name}`" not in text] == []
    rows = [f"| {name} | {one.schedule} | " for name, one in MUTATIONS.items()]
    assert [row for row in rows if row not in text] == []
