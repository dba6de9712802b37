"""The state of one message in each group, from the log's tail."""

from __future__ import annotations

from eruca_query.core.found_messages import FoundMessage
from eruca_query.core.group_facts import (
    GroupFact,
    PositionMoved,
    SubscriptionsReplaced,
    TopicGone,
)
from eruca_query.core.group_standing import Standings

MESSAGE = FoundMessage(
    broker_name="broker-a",
    store_host=None,
    log_offset=100,
    topic="orders",
    queue_id=0,
    queue_offset=0,
    stored_ms=1_000,
    born_ms=1_000,
    size=200,
    unique_id="17",
    tag=b"a",
    keys=b"",
)


def states(*facts: GroupFact) -> dict[str, str]:
    standings = Standings(MESSAGE)
    standings.put("billing", next_offset=1, filter="*", since_ms=2_000)
    standings.put("audit", next_offset=1, since_ms=2_000)
    standings.apply(facts)
    return {its.group: its.state for its in standings.progress([], now_ms=9_000)}


def test_what_a_group_subscribes_to_outlives_a_topic_and_its_position_does_not() -> None:
    moved = PositionMoved(300, 3_000, "audit", "orders", 0, 0, "start")

    assert states(TopicGone("orders", 50)) == {"billing": "unknown"}
    assert states(TopicGone("orders", 50), moved) == {"billing": "unknown", "audit": "not_yet"}


def test_who_subscribes_to_something_else_has_to_do_with_a_message_only_by_its_position() -> None:
    others = SubscriptionsReplaced("billing", (("payments", "*", "tag"),))

    assert states(others) == {"billing": "past", "audit": "past"}
    assert states(TopicGone("orders", 50), others) == {}


def test_a_piece_of_a_snapshot_takes_no_subscription_away() -> None:
    piece = SubscriptionsReplaced("billing", (("payments", "*", "tag"),), is_whole=False)

    assert states(TopicGone("orders", 50), piece) == {"billing": "unknown"}
