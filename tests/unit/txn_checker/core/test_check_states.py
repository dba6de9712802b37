"""A check's states: whatever happens, it is asked once at a time, and its answer is kept."""

from __future__ import annotations

import pytest

from eruca_txn_checker.core.check_states import (
    CHECK,
    CheckEvent,
    CheckState,
    state_after,
    states_before,
)

ANSWERED = {CheckState.UNKNOWN, CheckState.FORWARDING, CheckState.FORWARDED}
DECIDED = {CheckState.FORWARDING, CheckState.FORWARDED}


@pytest.mark.parametrize("event", CheckEvent)
def test_an_event_leads_to_one_state_from_wherever_it_is_possible(event: CheckEvent) -> None:
    for state in CheckState:
        following = CHECK.after(state, event)
        assert (following is not None) == (state in states_before(event))
        assert following in (None, state_after(event))


def test_only_an_open_check_is_taken_and_only_an_asked_one_is_opened_again() -> None:
    assert states_before(CheckEvent.TAKEN) == [CheckState.OPEN]
    opens = {state for state, _, following in CHECK.rows if following is CheckState.OPEN}
    assert opens == {CheckState.NOT_GRANTED, CheckState.OPEN, CheckState.ASKED}


def test_an_answer_is_never_lost_and_a_decisive_one_never_replaced() -> None:
    for state, event, following in CHECK.rows:
        assert state not in ANSWERED or following in ANSWERED
        assert state not in DECIDED or event is CheckEvent.CONFIRMED


def test_a_forwarded_check_is_final() -> None:
    assert all(state is not CheckState.FORWARDED for state, _, _ in CHECK.rows)
