"""Slow members: those whose handlers take a multiple of the others' time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from eruca.contract.groups import Member, MemberHandling, MemberList
from eruca.core.consuming.slow_members import latest_members, slow_members

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
QUICK, SLOW = 0.02, 0.5


def member(
    client_id: str, mean: float | None = QUICK, running: float = 0.0, seen: float = 0.0
) -> Member:
    handling = None
    if mean is not None:
        handling = MemberHandling(
            covered_seconds=60.0,
            message_count=10,
            call_count=10,
            busy_seconds=10 * mean,
            longest_running_seconds=running,
        )
    return Member(
        client_id=client_id,
        incarnation="1",
        address="",
        message_model="clustering",
        consume_type="push",
        is_static=False,
        subscriptions=[],
        joined_at=NOON,
        last_seen_at=NOON + timedelta(seconds=seen),
        session_seconds=30,
        locks=[],
        handling=handling,
    )


@pytest.mark.parametrize(
    ("members", "slow"),
    [
        ([member("a"), member("b"), member("c", SLOW)], ["c"]),
        ([member("a"), member("b", running=40.0)], ["b"]),
        ([member("a"), member("b", SLOW), member("c"), member("d"), member("e", 3)], ["e", "b"]),
        ([member("a", SLOW), member("b", SLOW)], []),
        ([member("a", SLOW)], []),
        ([member("a", SLOW), member("b", None)], []),
        ([member("a", 0.0001), member("b", 0.004)], []),
        ([], []),
    ],
    ids=["mean", "running", "two", "alike", "alone", "others unknown", "noise", "nobody"],
)
def test_a_slow_member_takes_a_multiple_of_the_others_time(
    members: list[Member], slow: list[str]
) -> None:
    assert slow_members({one.client_id: one for one in members}) == slow


def test_a_member_is_as_the_broker_knows_it_that_heard_of_it_last() -> None:
    def seen_by(*members: Member) -> MemberList:
        return MemberList(group="g", generation=1, subscription_version=1, members=list(members))

    old, new = member("a", QUICK, seen=1), member("a", SLOW, seen=2)

    for lists in ([seen_by(old), seen_by(new)], [seen_by(new), seen_by(old)]):
        assert latest_members(lists) == {"a": new}
