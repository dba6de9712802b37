"""Leases as a fold: a record is conditional, and where it does not apply it changes nothing."""

from __future__ import annotations

import pytest

from eruca_broker.core.state.group_events import (
    CommittedOffset,
    GroupDeleted,
    GroupEvent,
    GroupSubscribed,
    LocksGranted,
    LocksReleased,
    OffsetsCommitted,
    OffsetsReset,
    QueueKey,
)
from eruca_broker.core.state.lease_events import (
    DeliveriesAcked,
    DeliveriesExtended,
    DeliveriesLeased,
    DeliveriesNacked,
    HeldLease,
    LeasedMessage,
    NackedLease,
    QueueLeaseRefs,
    QueueNacks,
    SnapshotLeases,
    split_leases,
)
from eruca_broker.core.state.leases import HandleState, Leases, Positions, Queue

QUEUE: Queue = ("flights", 0)
FENCE = 100


def leased(offsets: dict[int, int], *, since: int, position: int) -> DeliveriesLeased:
    messages = [LeasedMessage(*one) for one in offsets.items()]
    return DeliveriesLeased("g", "flights", 0, since, position, 60, leased=messages)


def of_queue(*leases: HeldLease) -> list[QueueLeaseRefs]:
    return [QueueLeaseRefs("flights", 0, list(leases))]


def acked(*offsets: int, fence: int = FENCE) -> DeliveriesAcked:
    return DeliveriesAcked("g", of_queue(*(HeldLease(offset, fence) for offset in offsets)))


@pytest.fixture
def positions() -> Positions:
    return {QUEUE: 5}


@pytest.fixture
def leases(positions: Positions) -> Leases:
    """Messages 5, 6 and 7 have been handed out."""
    leases = Leases()
    assert leases.lease(leased({5: 1, 6: 1, 7: 1}, since=5, position=8), FENCE, positions)
    return leases


def judged(leases: Leases, offset: int, fence: int, now_ms: int) -> HandleState:
    known = leases.of_queue("g", QUEUE)
    assert known is not None
    return known.judge(offset, fence, now_ms)


def test_the_committed_offset_stays_at_the_first_unfinished_message(
    leases: Leases, positions: Positions
) -> None:
    seen = [positions[QUEUE]]
    for offset in (6, 5, 7):
        assert leases.ack(acked(offset), positions)
        seen.append(positions[QUEUE])

    assert seen == [5, 5, 7, 8]
    assert leases.of_queue("g", QUEUE) is None
    assert leases.unfinished_count == 0


def test_a_handle_is_valid_until_its_time_then_expired_and_stale_once_it_is_done(
    leases: Leases, positions: Positions
) -> None:
    assert judged(leases, 5, FENCE, 59) is HandleState.VALID
    assert judged(leases, 5, FENCE, 60) is HandleState.EXPIRED
    assert judged(leases, 5, FENCE + 1, 0) is HandleState.STALE

    leases.ack(acked(5), positions)

    assert judged(leases, 5, FENCE, 0) is HandleState.STALE


def test_handed_out_again_the_old_handle_is_stale(leases: Leases, positions: Positions) -> None:
    assert leases.lease(leased({5: 2}, since=8, position=8), 200, positions)

    assert judged(leases, 5, FENCE, 0) is HandleState.STALE
    assert judged(leases, 5, 200, 0) is HandleState.VALID
    assert not leases.ack(acked(5), positions)


def test_extending_keeps_the_handle(leases: Leases, positions: Positions) -> None:
    assert leases.extend(DeliveriesExtended("g", 500, of_queue(HeldLease(6, FENCE))))

    assert judged(leases, 6, FENCE, 499) is HandleState.VALID
    assert judged(leases, 5, FENCE, 499) is HandleState.EXPIRED
    assert leases.ack(acked(6), positions)


def test_a_lease_given_up_is_nobodys_and_comes_when_it_is_due(
    leases: Leases, positions: Positions
) -> None:
    nack = DeliveriesNacked("g", [QueueNacks("flights", 0, [NackedLease(5, FENCE, 90)])])

    assert leases.nack(nack, positions)

    known = leases.of_queue("g", QUEUE)
    assert known is not None
    assert known.unfinished[5] == (1, 0, 90)
    assert known.next_due_at(60) == 90
    assert judged(leases, 5, FENCE, 0) is HandleState.STALE
    assert judged(leases, 5, 0, 0) is HandleState.STALE
    assert not leases.ack(acked(5, fence=0), positions)
    assert positions[QUEUE] == 5


def test_giving_up_for_good_finishes(leases: Leases, positions: Positions) -> None:
    dead = QueueNacks("flights", 0, [NackedLease(6, FENCE, 90)], [HeldLease(5, FENCE)])

    assert leases.nack(DeliveriesNacked("g", [dead]), positions)

    assert positions[QUEUE] == 6
    assert leases.unfinished_count == 2


@pytest.mark.parametrize(
    "event",
    [
        acked(5, 99),
        acked(5, 5),
        DeliveriesAcked("g", [*of_queue(HeldLease(5, FENCE)), QueueLeaseRefs("x", 0, [])][:1] * 2),
        acked(5, fence=0),
        DeliveriesExtended("g", 500, of_queue(HeldLease(5, FENCE), HeldLease(6, 1))),
        DeliveriesNacked(
            "g", [QueueNacks("flights", 0, [NackedLease(5, FENCE, 9)], [HeldLease(5, FENCE)])]
        ),
        DeliveriesAcked("h", of_queue(HeldLease(5, FENCE))),
    ],
)
def test_one_stale_lease_spoils_all(
    leases: Leases,
    positions: Positions,
    event: DeliveriesAcked | DeliveriesExtended | DeliveriesNacked,
) -> None:
    before = list(leases.snapshot())
    match event:
        case DeliveriesAcked():
            happened = leases.ack(event, positions)
        case DeliveriesExtended():
            happened = leases.extend(event)
        case DeliveriesNacked():
            happened = leases.nack(event, positions)

    assert not happened
    assert list(leases.snapshot()) == before
    assert positions == {QUEUE: 5}


@pytest.mark.parametrize(
    "event",
    [
        leased({8: 1}, since=7, position=9),  # the queue stands elsewhere
        leased({8: 1}, since=8, position=7),
        leased({5: 3}, since=8, position=8),  # one attempt has been left out
        leased({5: 1}, since=8, position=8),  # somebody else was faster
        leased({9: 1}, since=8, position=9),  # lies behind the new position
        leased({4: 2}, since=8, position=8),  # was done long ago
        DeliveriesLeased("g", "flights", 0, 8, 8, 60, finished=[4]),
        DeliveriesLeased("g", "flights", 0, 8, 8, 60, [LeasedMessage(5, 2)], finished=[5]),
        DeliveriesLeased("g", "flights", 0, 8, 9, 60, [LeasedMessage(8, 1)], overtaken=[8]),
    ],
)
def test_what_was_decided_upon_something_else_hands_nothing_out(
    leases: Leases, positions: Positions, event: DeliveriesLeased
) -> None:
    before = list(leases.snapshot())

    assert not leases.lease(event, 300, positions)

    assert list(leases.snapshot()) == before


def test_a_queue_that_was_moved_meanwhile_hands_nothing_out() -> None:
    positions = {QUEUE: 3}

    assert not Leases().lease(leased({5: 1}, since=5, position=6), FENCE, positions)
    assert positions == {QUEUE: 3}


def test_a_group_that_never_stood_anywhere_begins_with_its_first_lease() -> None:
    positions: Positions = {}

    assert Leases().lease(leased({5: 1}, since=5, position=6), FENCE, positions)
    assert positions == {QUEUE: 5}


def test_passing_over_leaves_nothing_but_the_committed_offset(positions: Positions) -> None:
    leases = Leases()

    assert leases.lease(leased({}, since=5, position=40), FENCE, positions)

    assert positions == {QUEUE: 40}
    assert leases.of_queue("g", QUEUE) is None


def test_unfinished_messages_stay_in_order_whatever_is_parked(positions: Positions) -> None:
    leases = Leases()
    event = DeliveriesLeased(
        "g", "flights", 0, 5, 10, 60, [LeasedMessage(5, 1), LeasedMessage(9, 1)], overtaken=[8, 6]
    )

    assert leases.lease(event, FENCE, positions)

    known = leases.of_queue("g", QUEUE)
    assert known is not None
    assert list(known.unfinished) == [5, 6, 8, 9]


COMMIT = CommittedOffset("flights", 0, 6)
KEY = QueueKey("flights", 0)


@pytest.mark.parametrize(
    "event",
    [
        OffsetsCommitted("g", [COMMIT]),
        OffsetsReset("g", [COMMIT]),
        LocksGranted("g", "member", "1", 30.0, [KEY]),
        LocksReleased("g", [KEY], "released", [COMMIT]),
        GroupDeleted("g"),
    ],
)
def test_a_group_that_is_moved_or_a_queue_that_is_taken_ends_its_leases(
    leases: Leases, event: GroupEvent
) -> None:
    leases.give_way(event)

    assert list(leases.of_group("g")) == []
    assert leases.unfinished_count == 0


@pytest.mark.parametrize(
    "event",
    [
        OffsetsReset("h", [COMMIT]),
        OffsetsCommitted("g", [CommittedOffset("flights", 1, 6)]),
        LocksReleased("g", [KEY], "expired"),
        GroupSubscribed("g", ()),
    ],
)
def test_what_does_not_concern_a_queue_ends_no_lease(leases: Leases, event: GroupEvent) -> None:
    leases.give_way(event)

    assert leases.unfinished_count == 3


def test_a_deleted_topic_ends_every_groups_leases_in_it(leases: Leases) -> None:
    leases.forget_topic("flights")

    assert leases.unfinished_count == 0


def test_forgetting_what_is_not_there_is_harmless(leases: Leases) -> None:
    leases.forget_queue("g", ("flights", 9))
    leases.forget_queue("h", QUEUE)
    leases.forget_topic("other")

    assert leases.unfinished_count == 3


@pytest.mark.parametrize("items_max", [1, 2, 100])
def test_a_snapshot_in_pieces_restores_the_same(leases: Leases, items_max: int) -> None:
    restored = Leases()
    for piece in split_leases(leases.snapshot(), items_max=items_max):
        assert isinstance(piece, SnapshotLeases)
        restored.restore(piece)

    assert list(restored.snapshot()) == list(leases.snapshot())
    assert restored.unfinished_count == leases.unfinished_count


def test_a_copy_changes_by_itself(leases: Leases, positions: Positions) -> None:
    copied = leases.copy()

    copied.ack(acked(5), dict(positions))

    assert leases.unfinished_count == 3
    assert copied.unfinished_count == 2


def test_nothing_is_handed_out_of_a_queue_that_a_member_has_locked(positions: Positions) -> None:
    leases = Leases()
    event = leased({5: 1}, since=5, position=6)

    assert not leases.apply(event, FENCE, positions, {QUEUE})
    assert leases.apply(event, FENCE, positions, {("flights", 1)})
