"""Facts about messages and groups in a block, from records that the broker itself writes."""

from __future__ import annotations

from typing import Any

import pytest

from eruca.contract.properties import UNIQ_KEY, encode_properties
from eruca.contract.queries import LifeEventKind as Kind
from eruca.contract.records import NO_HOST, Record, decode_record, encode_record
from eruca.contract.transaction_events import (
    TransactionBegun,
    TransactionChecked,
    TransactionDecided,
    TransactionParked,
)
from eruca_broker.core.records import dead_letters, half_messages, scheduled
from eruca_broker.core.records.scheduled import Destination, Wait
from eruca_broker.core.state import group_events, timers_events
from eruca_broker.core.state import lease_events as leases
from eruca_broker.core.state.events import (
    Event,
    StateSnapshot,
    TopicDeleted,
    TopicPut,
    encode_event,
)
from eruca_query.core.block_columns import BlockColumns
from eruca_query.core.group_facts import (
    GroupFact,
    GroupGone,
    PositionMoved,
    SubscriptionsReplaced,
    TopicGone,
)
from eruca_query.core.life_events import LifeEvent, Place
from eruca_query.core.log_facts import BlockFacts, facts_of

ID = b"7F0000010000A1B20000000100000001"
MESSAGE = Record(
    "orders",
    b"order 17",
    queue_id=3,
    queue_offset=41,
    log_offset=1_000,
    store_timestamp=5_000,
    properties=encode_properties({UNIQ_KEY: ID.decode(), "KEYS": "17"}),
)
RAW = encode_record(MESSAGE)
NOW = 9_000


def facts(*records: bytes) -> BlockFacts:
    """Return what records tell that were stored one after the other."""
    stored, offset = [], 0
    for raw in records:
        record = decode_record(raw, check_crc=False)
        record.log_offset, record.store_timestamp = offset, NOW
        stored.append(encode_record(record))
        offset += len(stored[-1])
    return facts_of(BlockColumns.of(b"".join(stored)))


def events_of(*records: bytes) -> list[tuple[Kind, dict[str, Any]]]:
    return [(event.kind, event.detail) for event in facts(*records).events]


def told(event: Event) -> BlockFacts:
    return facts(encode_event(event, now_ms=NOW, host=NO_HOST))


def life(event: Event) -> list[LifeEvent]:
    return told(event).events


def groups(event: Event) -> list[GroupFact]:
    return told(event).groups


def test_messages_of_users_tell_nothing_more() -> None:
    assert facts(RAW, RAW) == BlockFacts([], [], 0)


def test_a_delayed_message_tells_when_it_is_due_and_where_it_goes() -> None:
    to = Destination("orders", 3)
    by_time = scheduled.waiting(RAW, Wait(deliver_at_ms=60_000), to)
    by_level = scheduled.waiting(RAW, Wait(level=2), to)

    assert events_of(by_time, by_level) == [
        (Kind.DELAYED, {"topic": "orders", "queue_id": 3, "deliver_at_ms": 60_000}),
        (Kind.DELAYED, {"topic": "orders", "queue_id": 3, "deliver_at_ms": NOW + 5_000}),
    ]
    [first, _] = facts(by_time, by_level).events
    assert first.unique_id == ID
    assert first.waited_at == first.log_offset == 0


def test_a_message_that_was_sent_back_tells_by_whom_and_why() -> None:
    waiting = dead_letters.retry_of(
        RAW,
        "billing",
        dead_letters.origin_of(MESSAGE),
        reconsume_times=2,
        wait=Wait(deliver_at_ms=60_000),
        reason="timed_out",
        error="TimeoutError: 3 s",
    )
    again = scheduled.delivered(waiting, Destination("%RETRY%billing", 0))
    why = {
        "group": "billing",
        "attempt": 2,
        "reason": "timed_out",
        "error": "TimeoutError: 3 s",
        "origin_topic": "orders",
        "origin_queue_id": 3,
        "origin_offset": 41,
    }

    assert events_of(waiting, again) == [
        (Kind.SENT_BACK, why | {"deliver_at_ms": 60_000}),
        (Kind.RETRY, why),
    ]


def test_a_dead_letter_tells_why_and_that_it_was_redriven() -> None:
    letter = dead_letters.dead_letter_of(
        RAW,
        "billing",
        dead_letters.origin_of(MESSAGE),
        reconsume_times=16,
        reason="failed",
        error=None,
    )

    [event] = facts(letter).events
    [redriven] = life(timers_events.DeadLettersRedriven("billing", [0], NOW, 400))

    assert event.kind == Kind.DEAD_LETTER
    assert event.detail == {
        "group": "billing",
        "attempts": 16,
        "reason": "failed",
        "origin_topic": "orders",
        "origin_queue_id": 3,
        "origin_offset": 41,
    }
    assert event.place is not None
    assert redriven.place == event.place._replace(queue_offset=0)
    assert redriven.kind == Kind.REDRIVEN


def test_a_half_message_tells_whose_it_is_and_what_became_of_it() -> None:
    half = half_messages.half_message(
        RAW, Destination("orders", 3), transaction_id=ID.decode(), producer_group="p"
    )
    again = half_messages.carried(half, 2)

    assert events_of(half, again) == [
        (Kind.HALF, {"producer_group": "p", "topic": "orders", "queue_id": 3}),
        (Kind.HALF_CARRIED, {"producer_group": "p", "topic": "orders", "queue_id": 3}),
    ]
    begun = TransactionBegun(ID.decode(), "p", "orders", 3, NOW, None, 0)
    checked = TransactionChecked(ID.decode(), 1, "checker", NOW)
    decided = TransactionDecided(
        ID.decode(), "commit", "check", NOW, "p", "orders", 3, NOW, 1, 0, check_number=1
    )
    parked = TransactionParked(ID.decode(), 15, "checker", NOW, 0)
    assert life(begun) == []
    for event, kind, detail in (
        (checked, Kind.CHECKED, {"number": 1, "checker": "checker"}),
        (
            decided,
            Kind.DECIDED,
            {"outcome": "commit", "by": "check", "checks": 1, "check_number": 1},
        ),
        (parked, Kind.PARKED, {"checks": 15, "checker": "checker"}),
    ):
        [only] = life(event)
        assert (only.kind, only.detail, only.unique_id) == (kind, detail, ID)


def test_a_recalled_message_is_known_by_where_it_waited() -> None:
    assert [
        (event.kind, event.waited_at) for event in life(timers_events.TimersCancelled([7, 900]))
    ] == [(Kind.RECALLED, 7), (Kind.RECALLED, 900)]


def test_deliveries_are_told_of_each_message() -> None:
    leased = leases.DeliveriesLeased(
        "g", "orders", 3, 0, 2, 60_000, leased=[leases.LeasedMessage(41, 2)], finished=[40]
    )
    one = [leases.QueueLeaseRefs("orders", 3, [leases.HeldLease(41, 5)])]
    acked = leases.DeliveriesAcked("g", one)
    extended = leases.DeliveriesExtended("g", 70_000, one)
    nacked = leases.DeliveriesNacked(
        "g",
        [
            leases.QueueNacks(
                "orders", 3, [leases.NackedLease(41, 5, 80_000)], [leases.HeldLease(42, 5)]
            )
        ],
    )

    place = Place("orders", 3, 41)
    group = {"group": "g"}
    for event, expected in (
        (
            leased,
            [
                (Kind.LEASED, group | {"attempt": 2, "visible_at_ms": 60_000}, place),
                (Kind.LEASE_EXPIRED, group, Place("orders", 3, 40)),
            ],
        ),
        (acked, [(Kind.ACKED, group, place)]),
        (extended, [(Kind.EXTENDED, group | {"visible_at_ms": 70_000}, place)]),
        (
            nacked,
            [
                (Kind.NACKED, group | {"due_at_ms": 80_000}, place),
                (Kind.NACKED, group | {"is_dead": True}, Place("orders", 3, 42)),
            ],
        ),
    ):
        assert [(one.kind, one.detail, one.place) for one in life(event)] == expected
    assert groups(leased) == [PositionMoved(0, NOW, "g", "orders", 3, 2, "deliveries")]


@pytest.mark.parametrize(
    ("event", "source"),
    [
        (
            group_events.OffsetsCommitted("g", [group_events.CommittedOffset("t", 1, 8)]),
            "committed",
        ),
        (group_events.OffsetsReset("g", [group_events.CommittedOffset("t", 1, 8)]), "reset"),
        (
            group_events.LocksReleased(
                "g", [], "released", [group_events.CommittedOffset("t", 1, 8)]
            ),
            "committed",
        ),
        (
            group_events.StartsResolved(
                "g",
                [group_events.TopicStarts("t", [group_events.QueueStart(1, 8, "latest")])],
                NOW,
            ),
            "start",
        ),
        (
            StateSnapshot(
                1,
                1,
                groups=[group_events.GroupOffsets("g", [group_events.CommittedOffset("t", 1, 8)])],
            ),
            "snapshot",
        ),
    ],
)
def test_positions_are_told_with_how_they_came_about(event: Event, source: str) -> None:
    assert groups(event) == [PositionMoved(0, NOW, "g", "t", 1, 8, source)]  # type: ignore[arg-type]


def test_subscriptions_and_ends_are_told() -> None:
    subscribed = group_events.Subscribed("t", "a || b", "tag")

    assert groups(group_events.GroupSubscribed("g", (subscribed,))) == [
        SubscriptionsReplaced("g", (("t", "a || b", "tag"),))
    ]
    snapshot = StateSnapshot(
        1, 1, subscriptions=[group_events.SnapshotSubscription("g", subscribed)]
    )
    assert groups(snapshot) == [
        SubscriptionsReplaced("g", (("t", "a || b", "tag"),), is_whole=False)
    ]
    assert groups(group_events.GroupDeleted("g")) == [GroupGone("g")]
    assert groups(TopicDeleted("t")) == [TopicGone("t", 0)]


def test_what_is_not_looked_at_is_passed_over_and_what_cannot_be_read_is_counted() -> None:
    known = encode_event(TopicPut("t", 1, 1, "rw"), now_ms=NOW, host=NO_HOST)
    newer = decode_record(known, check_crc=False)
    newer.properties = encode_properties({"TAGS": "written_by_a_newer_broker"})
    damaged = decode_record(known, check_crc=False)
    damaged.body, damaged.body_crc = b"{", None
    damaged.properties = encode_properties({"TAGS": "group_deleted"})

    assert facts(known, encode_record(newer)) == BlockFacts([], [], 0)
    assert facts(encode_record(damaged), RAW) == BlockFacts([], [], 1)
