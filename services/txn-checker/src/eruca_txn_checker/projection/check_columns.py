"""A check's state in the columns of its row: as a condition, and as values.

A statement that records an event of the table :data:`~eruca_txn_checker.core.check_states.CHECK`
takes both from here: the rows that it may change, and what they become.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, Final

from sqlalchemy import ColumnElement, and_, not_, or_

from eruca_txn_checker.core.check_states import (
    CheckEvent,
    CheckState,
    state_after,
    states_before,
)
from eruca_txn_checker.projection.tables import checks

_NOBODY: Final = {"asked": None, "asked_ms": None, "answer_until_ms": None}
_IS: Final[Mapping[CheckState, ColumnElement[bool]]] = {
    CheckState.OPEN: checks.c.is_open,
    CheckState.CLOSED: and_(
        not_(checks.c.is_open), checks.c.asked.is_(None), checks.c.answer.is_(None)
    ),
    CheckState.ASKED: and_(
        not_(checks.c.is_open), checks.c.asked.is_not(None), checks.c.answer.is_(None)
    ),
    CheckState.UNKNOWN: checks.c.answer == "unknown",
    CheckState.FORWARDING: checks.c.is_forwarding,
    CheckState.FORWARDED: and_(checks.c.answer != "unknown", not_(checks.c.is_forwarding)),
}
_VALUES: Final[Mapping[CheckState, Mapping[str, Any]]] = {
    CheckState.OPEN: {"is_open": True, **_NOBODY},
    CheckState.CLOSED: {"is_open": False, **_NOBODY},
    CheckState.ASKED: {"is_open": False},  # and whom, and when
    CheckState.UNKNOWN: {"is_open": False, "is_forwarding": False},  # and the answer
    CheckState.FORWARDING: {"is_open": False, "is_forwarding": True},  # and the answer
    CheckState.FORWARDED: {"is_forwarding": False},
}
assert _IS.keys() == _VALUES.keys() == set(CheckState) - {CheckState.NOT_GRANTED}


def is_in(state: CheckState) -> ColumnElement[bool]:
    """Return the condition that a row is in *state*."""
    return _IS[state]


@cache
def may(event: CheckEvent) -> ColumnElement[bool]:
    """Return the condition that *event* is possible in a row's state."""
    return or_(*(_IS[state] for state in states_before(event)))


@cache
def becomes(event: CheckEvent) -> Mapping[str, Any]:
    """Return what *event* makes of the columns that tell a row's state."""
    return _VALUES[state_after(event)]
