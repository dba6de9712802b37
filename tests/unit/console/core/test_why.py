"""The reason why a group has not consumed a message."""

from __future__ import annotations

import typing

import pytest

from eruca.contract.queries import GroupProgress, GroupState
from eruca_console.core.why import STATES, reason_of


@pytest.mark.parametrize("state", typing.get_args(GroupState))
def test_each_state_has_a_word_and_a_sentence_of_facts(state: GroupState) -> None:
    progress = GroupProgress(
        group="g",
        broker_name="broker-a",
        topic="orders",
        queue_id=0,
        queue_offset=1_007,
        next_offset=None,
        state=state,
        since=None,
        detail="parked behind key 17",
    )

    reason = reason_of(progress)

    assert STATES[state]
    shown = reason.text % reason.values
    assert "%" not in shown
    assert reason.detail == "parked behind key 17"
    if state in ("past", "not_yet"):
        assert "position in the queue is ?" in shown
        assert "1\u202f007" in shown
