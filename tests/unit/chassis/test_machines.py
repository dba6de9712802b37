"""A machine knows its rows and nothing else."""

from __future__ import annotations

from enum import StrEnum

import pytest

from eruca_chassis.machines import Machine


class Door(StrEnum):
    SHUT = "shut"
    OPEN = "open"


class Move(StrEnum):
    OPENED = "opened"
    CLOSED = "closed"


DOOR = Machine((Door.SHUT, Move.OPENED, Door.OPEN), (Door.OPEN, Move.CLOSED, Door.SHUT))


def test_an_event_that_has_a_row_leads_to_its_next_state() -> None:
    assert DOOR.after(Door.SHUT, Move.OPENED) is Door.OPEN
    assert DOOR.step(Door.OPEN, Move.CLOSED) is Door.SHUT


def test_an_event_without_a_row_is_not_possible_and_a_defect_for_those_who_were_sure() -> None:
    assert DOOR.after(Door.OPEN, Move.OPENED) is None
    with pytest.raises(AssertionError, match=r"OPENED.*cannot happen in state.*OPEN"):
        DOOR.step(Door.OPEN, Move.OPENED)


def test_two_rows_that_start_alike_are_a_defect() -> None:
    with pytest.raises(AssertionError, match="start alike"):
        Machine((Door.SHUT, Move.OPENED, Door.OPEN), (Door.SHUT, Move.OPENED, Door.SHUT))
