"""The state: a fold whose result depends on nothing but the events and their order."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eruca.contract.names import EVENTS_TOPIC
from eruca.contract.records import Host
from eruca_broker.core.state.events import (
    CommittedOffset,
    Event,
    OffsetsCommitted,
    StateSnapshot,
    TopicDeleted,
    TopicPut,
    UnknownEventError,
    decode_event,
    encode_event,
)
from eruca_broker.core.state.lease_events import (
    DeliveriesLeased,
    LeasedMessage,
)
from eruca_broker.core.state.state import BrokerState, with_queue
from support.records import decode_draft
from support.state_events import events

HOST = Host.parse("127.0.0.1", 10911)


def folded(history: list[Event]) -> BrokerState:
    state = BrokerState()
    for log_offset, event in enumerate(history, 1):
        state.apply(event, log_offset)
    return state


def view(state: BrokerState) -> object:
    offsets = {group: dict(state.group_offsets(group)) for group in state.groups}
    leases = sorted(state.leases.snapshot(), key=lambda piece: piece.group)
    committed = {group: known for group, known in offsets.items() if known}
    return state.topics, committed, leases, state.epochs, state.store_hosts


@given(events)
def test_an_event_survives_the_log(event: Event) -> None:
    record = decode_draft(encode_event(event, now_ms=17, host=HOST))

    assert decode_event(record.body) == event
    assert record.topic == EVENTS_TOPIC


@given(history=st.lists(events), later=st.lists(events))
def test_a_snapshot_stands_for_everything_before_it(
    history: list[Event], later: list[Event]
) -> None:
    whole = folded(history)
    snapshot = whole.snapshot([("a", 0, 7)])
    from_snapshot = BrokerState()
    for part in snapshot:
        from_snapshot.apply(part, 1_000)
    assert view(from_snapshot) == view(whole)
    assert from_snapshot.queue_ends == {("a", 0): 7}

    for log_offset, event in enumerate(later, 1_001):
        whole.apply(event, log_offset)
        from_snapshot.apply(event, log_offset)

    assert view(from_snapshot) == view(whole)


def test_a_large_state_makes_several_parts_and_only_the_last_one_counts() -> None:
    state = folded([TopicPut(f"t{n}", 1, 1, "rw") for n in range(12_000)])
    state.apply(
        OffsetsCommitted("g", [CommittedOffset(f"t{n}", 0, n) for n in range(12_000)]), 99_999
    )
    parts = state.snapshot([])
    assert len(parts) == 4

    other = BrokerState()
    for part in parts[:-1]:
        other.apply(part, 1)
    assert set(other.topics) == {EVENTS_TOPIC}
    other.apply(parts[-1], 1)

    assert view(other) == view(state)


def test_a_snapshot_whose_beginning_is_lost_is_no_snapshot() -> None:
    state = folded([TopicPut("a", 1, 1, "rw")])

    state.apply(StateSnapshot(part=2, parts=2), 5)

    assert "a" in state.topics


def test_deleting_a_topic_forgets_its_offsets_and_its_queues() -> None:
    state = folded(
        [
            StateSnapshot(1, 1),
            TopicPut("a", 1, 1, "rw"),
            OffsetsCommitted("g", [CommittedOffset("a", 0, 5), CommittedOffset("b", 0, 6)]),
            TopicDeleted("a"),
        ]
    )

    assert "a" not in state.topics
    assert state.group_offsets("g") == {("b", 0): 6}


def test_changing_a_topic_keeps_when_it_was_created() -> None:
    state = folded([TopicPut("a", 1, 1, "rw"), TopicPut("a", 2, 3, "r", ordered=True)])

    topic = state.topics["a"]
    assert (topic.created_at, topic.write_queue_count, topic.ordered) == (1, 3, True)
    assert topic.is_readable
    assert not topic.is_writable


def test_offsets_may_go_backwards() -> None:
    state = folded([OffsetsCommitted("g", [CommittedOffset("a", 0, offset)]) for offset in (9, 4)])

    assert state.committed_offset("g", "a", 0) == 4
    assert state.committed_offset("g", "a", 1) is None
    assert state.committed_offset("h", "a", 0) is None


def test_the_version_is_where_the_topics_last_changed() -> None:
    state = folded([TopicPut("a", 1, 1, "rw"), OffsetsCommitted("g", [])])

    assert state.version == 1


def test_a_topic_grows_to_hold_a_queue() -> None:
    topic = folded([TopicPut("a", 1, 2, "rw")]).topics["a"]

    assert with_queue(topic, 4).read_queue_count == with_queue(topic, 4).write_queue_count == 5
    assert with_queue(topic, 0) == topic


@pytest.mark.parametrize("body", [b"", b"{}", b'{"event": "from the future"}', b"\xff"])
def test_an_unreadable_event_is_said_to_be_one(body: bytes) -> None:
    with pytest.raises(UnknownEventError):
        decode_event(body)


def test_leases_are_of_groups_that_are_there() -> None:
    lease = DeliveriesLeased("g", "a", 0, 5, 6, 99, [LeasedMessage(5, 1)])
    commit = OffsetsCommitted("g", [CommittedOffset("a", 0, 5)])

    assert folded([lease]).leases.unfinished_count == 0
    assert folded([commit, lease]).leases.unfinished_count == 1
    assert folded([commit, lease, commit]).leases.unfinished_count == 0
    assert folded([commit, lease, TopicDeleted("a")]).leases.unfinished_count == 0
    assert folded([commit, lease]).committed_offset("g", "a", 0) == 5
