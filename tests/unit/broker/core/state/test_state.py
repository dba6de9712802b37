"""The state: a fold whose result depends on nothing but the events and their order."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eruca.contract.names import EVENTS_TOPIC
from eruca.contract.records import Host
from eruca_broker.core.state.epoch_events import EpochBegan
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
    DeliveriesAcked,
    DeliveriesExtended,
    DeliveriesLeased,
    DeliveriesNacked,
    HeldLease,
    LeasedMessage,
    NackedLease,
    QueueLeaseRefs,
    QueueNacks,
)
from eruca_broker.core.state.state import BrokerState, with_queue
from eruca_broker.core.state.topic_events import OrderConfig
from support.records import decode_draft

HOST = Host.parse("127.0.0.1", 10911)
names = st.sampled_from(["a", "b", "c"])
commits = st.builds(CommittedOffset, names, st.integers(0, 2), st.integers(0, 99))
groups = st.sampled_from(["g", "h"])
held = st.builds(HeldLease, st.integers(0, 3), st.integers(1, 6))
refs = st.builds(QueueLeaseRefs, st.just("a"), st.just(0), st.lists(held, max_size=2))
leased = st.builds(
    DeliveriesLeased,
    group=groups,
    topic=st.just("a"),
    queue_id=st.just(0),
    from_position=st.integers(0, 2),
    position=st.integers(2, 4),
    visible_at=st.integers(0, 9),
    leased=st.lists(st.builds(LeasedMessage, st.integers(0, 3), st.integers(1, 2)), max_size=2),
    overtaken=st.lists(st.integers(0, 3), max_size=1),
)
nacks = st.builds(
    QueueNacks,
    st.just("a"),
    st.just(0),
    st.lists(st.builds(NackedLease, st.integers(0, 3), st.integers(1, 6), st.integers(0, 9))),
)
events = st.one_of(
    leased,
    st.builds(DeliveriesAcked, groups, st.lists(refs, max_size=2)),
    st.builds(DeliveriesExtended, groups, st.integers(0, 9), st.lists(refs, max_size=2)),
    st.builds(DeliveriesNacked, groups, st.lists(nacks, max_size=1)),
    st.builds(
        TopicPut,
        names,
        st.integers(1, 4),
        st.integers(1, 4),
        st.sampled_from(["rw", "r", "none"]),
        st.booleans(),
        st.none() | st.builds(OrderConfig, st.integers(1, 3), st.just((("a", 4), ("b", 2)))),
    ),
    st.builds(TopicDeleted, names),
    st.integers(1, 9).map(
        lambda epoch: EpochBegan(epoch, 1, "9f2c", f"h{epoch}", 7, begun_at=epoch)
    ),
    st.builds(OffsetsCommitted, groups, st.lists(commits, max_size=3)),
)


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
