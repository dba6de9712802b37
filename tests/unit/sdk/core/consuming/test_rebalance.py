"""Shares: everyone comes to the same result, and stays with what it has while it knows little."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from eruca.core.allocation import AllocationError, AllocationFault, Averagely, ByConfig
from eruca.core.consuming.rebalance import TopicView, changes, coordinator_of, share_of
from eruca.core.messages.message_queue import MessageQueue

QUEUES = tuple(
    MessageQueue("orders", name, number) for name in ("broker-b", "broker-a") for number in (1, 0)
)


def share(
    client_id: str, client_ids: tuple[str, ...] | None, *current: MessageQueue
) -> set[object]:
    view = TopicView("orders", QUEUES, client_ids)
    return set(share_of(Averagely(), client_id, view, current))


def test_the_coordinator_is_the_broker_with_the_smallest_name() -> None:
    assert coordinator_of(QUEUES) == "broker-a"
    assert coordinator_of(()) is None


def test_the_members_shares_cover_the_topic_and_stay_apart() -> None:
    members = ("c", "a", "b")

    shares = [share(member, members) for member in members]

    assert set().union(*shares) == set(QUEUES)
    assert sum(map(len, shares)) == len(QUEUES)


@pytest.mark.parametrize("client_ids", [None, (), ("other",)])
def test_who_is_not_known_to_be_a_member_stays_with_what_it_has(
    client_ids: tuple[str, ...] | None,
) -> None:
    of_another_topic = MessageQueue("payments", "broker-a", 0)

    assert share("me", client_ids, QUEUES[2], of_another_topic) == {QUEUES[2]}


def test_where_queues_are_configured_the_members_share_the_retries() -> None:
    retries = tuple(queue._replace(topic="%RETRY%billing") for queue in QUEUES)
    view = TopicView("%RETRY%billing", retries, ("a", "b"))
    configured = ByConfig(QUEUES[:1])

    shares = [share_of(configured, member, view, ()) for member in ("a", "b")]

    assert [len(share) for share in shares] == [2, 2]
    assert shares[0] | shares[1] == set(retries)
    orders = TopicView("orders", QUEUES, ("a", "b"))
    assert share_of(configured, "a", orders, ()) == {QUEUES[0]}


def test_a_strategy_without_an_answer_says_so() -> None:
    class Clueless(Averagely):
        def share(
            self, queues: Sequence[MessageQueue], members: Sequence[str], member: str
        ) -> list[MessageQueue]:
            raise AllocationError(AllocationFault.QUEUE_ROOM_UNKNOWN, "where is it?")

    view = TopicView("orders", QUEUES, ("me",))

    with pytest.raises(AllocationError):
        share_of(Clueless(), "me", view, ())


def test_changes_lead_from_what_is_held_to_what_should_be() -> None:
    assert changes(QUEUES[:3], QUEUES[2:]) == (frozenset(QUEUES[:2]), frozenset(QUEUES[3:]))
