"""A check from its grant to its end, as a table.

A check **is open** while nobody has taken it and it is still worth sending. The next check closes
it, and so does the decision. An answer counts even if it comes for a closed check, and a decisive
answer replaces an ``unknown`` one. The check **is forwarding** until the broker has confirmed or
refused that.

:data:`CHECK` is the table. Checks are rows, and the statements that change them are built from it
(:mod:`eruca_txn_checker.projection.check_columns`): an event changes no row in whose state it is
impossible.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from eruca_chassis.machines import Machine


class CheckState(StrEnum):
    """The state of a check."""

    NOT_GRANTED = "not granted"  # no row
    OPEN = "open"
    CLOSED = "closed"  # without an answer
    ASKED = "asked"
    UNKNOWN = "unknown"  # the answer
    FORWARDING = "forwarding"
    FORWARDED = "forwarded"


class CheckEvent(StrEnum):
    """An event that changes the state of a check."""

    GRANTED = "granted"
    GRANTED_LATE = "granted, and over"
    PUT_OFF = "put off"
    TAKEN = "taken"
    GIVEN_BACK = "given back"
    WITHDRAWN = "withdrawn"
    OVER = "over"
    UNDECIDED = "answered: unknown"
    DECIDED = "answered: commit or rollback"
    CONFIRMED = "broker accepts or refuses"


CHECK: Final = Machine(
    (CheckState.NOT_GRANTED, CheckEvent.GRANTED, CheckState.OPEN),
    (CheckState.NOT_GRANTED, CheckEvent.GRANTED_LATE, CheckState.CLOSED),
    (CheckState.OPEN, CheckEvent.PUT_OFF, CheckState.OPEN),
    (CheckState.OPEN, CheckEvent.TAKEN, CheckState.ASKED),
    (CheckState.OPEN, CheckEvent.OVER, CheckState.CLOSED),
    (CheckState.OPEN, CheckEvent.UNDECIDED, CheckState.UNKNOWN),
    (CheckState.OPEN, CheckEvent.DECIDED, CheckState.FORWARDING),
    (CheckState.CLOSED, CheckEvent.UNDECIDED, CheckState.UNKNOWN),
    (CheckState.CLOSED, CheckEvent.DECIDED, CheckState.FORWARDING),
    (CheckState.ASKED, CheckEvent.GIVEN_BACK, CheckState.OPEN),
    (CheckState.ASKED, CheckEvent.WITHDRAWN, CheckState.CLOSED),
    (CheckState.ASKED, CheckEvent.UNDECIDED, CheckState.UNKNOWN),
    (CheckState.ASKED, CheckEvent.DECIDED, CheckState.FORWARDING),
    (CheckState.UNKNOWN, CheckEvent.UNDECIDED, CheckState.UNKNOWN),
    (CheckState.UNKNOWN, CheckEvent.DECIDED, CheckState.FORWARDING),
    (CheckState.FORWARDING, CheckEvent.CONFIRMED, CheckState.FORWARDED),
)


def states_before(event: CheckEvent) -> list[CheckState]:
    """Return the states in which *event* is possible."""
    return [state for state, possible, _ in CHECK.rows if possible is event]


def state_after(event: CheckEvent) -> CheckState:
    """Return the state after *event*, which is the same whatever the state before."""
    [state] = {following for _, possible, following in CHECK.rows if possible is event}
    return state
