"""Positions outside of a queue: read on where the policy says, or say what is missing."""

from __future__ import annotations

import pytest

from eruca.contract.errors import OffsetOutOfRangeError
from eruca.contract.wire import PullStatus
from eruca.core.consuming.pull_positions import OutOfRangePolicy, offset_after_miss
from eruca.core.messages.message_queue import MessageQueue

QUEUE = MessageQueue("orders", "broker-a", 3)


@pytest.mark.parametrize("status", [PullStatus.OFFSET_TOO_SMALL, PullStatus.OFFSET_TOO_LARGE])
@pytest.mark.parametrize(("policy", "offset"), [("earliest", 100), ("latest", 200)])
def test_a_policy_says_where_to_read_on(
    status: PullStatus, policy: OutOfRangePolicy, offset: int
) -> None:
    assert offset_after_miss(policy, status, QUEUE, 7, min_offset=100, max_offset=200) == offset


@pytest.mark.parametrize(
    ("status", "offset", "why"),
    [
        (PullStatus.OFFSET_TOO_SMALL, 7, "retention has deleted 93 messages from 7 on"),
        (PullStatus.OFFSET_TOO_LARGE, 300, "ends at 200, before offset 300"),
    ],
)
def test_otherwise_the_error_says_what_is_missing(
    status: PullStatus, offset: int, why: str
) -> None:
    with pytest.raises(OffsetOutOfRangeError, match=why) as refused:
        offset_after_miss("error", status, QUEUE, offset, min_offset=100, max_offset=200)

    assert (refused.value.min_offset, refused.value.max_offset) == (100, 200)
