"""The state machines drawn in the DESIGN pages are those that the code obeys."""

from __future__ import annotations

import re
from collections.abc import Iterator
from enum import StrEnum
from importlib import import_module
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from eruca_chassis.machines import Machine

SERVICES: Final = Path(__file__).parents[2] / "services"
MARK: Final = re.compile(r"^<!-- machine: (\S+) -->\n\n((?:\|.*\n)+)", re.MULTILINE)
MADE: Final = re.compile(r"^(\w+): Final(?:\[.*\])? = Machine\(", re.MULTILINE)
HEAD: Final = ["State", "Event", "Next", "Why"]


class Drawing(NamedTuple):
    """A table of a DESIGN page."""

    of: str  # the machine's full name
    rows: list[list[str]]  # head and rule included


def drawings() -> Iterator[Drawing]:
    for page in sorted(SERVICES.glob("*/src/*/DESIGN.md")):
        for found in MARK.finditer(page.read_text("utf-8")):
            lines = found[2].splitlines()
            yield Drawing(
                found[1], [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines]
            )


def machines_in_code() -> Iterator[str]:
    for path in sorted(SERVICES.glob("*/src/**/*.py")):
        module = ".".join(path.with_suffix("").relative_to(SERVICES).parts[2:])
        for found in MADE.finditer(path.read_text("utf-8")):
            yield f"{module}.{found[1]}"


def machine(name: str) -> Machine[Any, Any]:
    module, _, constant = name.rpartition(".")
    made = getattr(import_module(module), constant)
    assert isinstance(made, Machine)
    return made


@pytest.mark.parametrize("drawing", list(drawings()), ids=lambda drawing: drawing.of)
def test_a_drawing_has_the_transitions_of_its_machine(drawing: Drawing) -> None:
    head, _, *rows = drawing.rows
    assert head == HEAD
    assert [tuple(row[:3]) for row in rows] == [
        (str(state), str(event), str(following))
        for state, event, following in machine(drawing.of).rows
    ]


def test_each_machine_is_drawn_once() -> None:
    made = sorted(machines_in_code())
    assert len(made) >= 4
    assert sorted(drawing.of for drawing in drawings()) == made


@pytest.mark.parametrize("name", list(machines_in_code()))
def test_each_state_and_event_has_a_row(name: str) -> None:
    rows = machine(name).rows
    states: type[StrEnum] = type(rows[0][0])
    events: type[StrEnum] = type(rows[0][1])
    assert {state for row in rows for state in (row[0], row[2])} == set(states)
    assert {row[1] for row in rows} == set(events)
