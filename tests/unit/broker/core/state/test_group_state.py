"""Groups as a fold: whatever happens, a snapshot tells all of it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eruca.contract.records import Host
from eruca_broker.core.state.events import Event, decode_event, encode_event
from eruca_broker.core.state.group_events import (
    CommittedOffset,
    CustomizedDelays,
    ExponentialDelays,
    GroupDeleted,
    GroupPut,
    GroupSettings,
    GroupSubscribed,
    LocksGranted,
    LocksReleased,
    MemberReplaced,
    MembershipBegan,
    OffsetsCommitted,
    OffsetsReset,
    QueueKey,
    QueueStart,
    StartsResolved,
    Subscribed,
    TopicStarts,
)
from eruca_broker.core.state.group_state import REPLACED_MAX, LockOwner
from eruca_broker.core.state.lease_events import DeliveriesLeased, LeasedMessage
from eruca_broker.core.state.state import BrokerState
from eruca_broker.core.state.topic_events import TopicDeleted, TopicPut
from support.records import decode_draft

HOST = Host.parse("127.0.0.1", 10911)
groups = st.sampled_from(["g", "h"])
clients = st.sampled_from(["a", "b"])
topics = st.sampled_from(["t", "u"])
queue_ids = st.integers(0, 2)
commits = st.lists(st.builds(CommittedOffset, topics, queue_ids, st.integers(0, 99)), max_size=3)
keys = st.lists(st.builds(QueueKey, topics, queue_ids), max_size=3)
policies = st.one_of(
    st.none(),
    st.builds(CustomizedDelays, st.tuples(st.floats(0, 9))),
    st.builds(ExponentialDelays, st.just(1.0), st.just(2.0), st.just(60.0)),
)
starts = st.builds(
    QueueStart, queue_ids, st.integers(0, 9), st.sampled_from(["earliest", "latest", "added"])
)
subscriptions = st.builds(Subscribed, topics, st.sampled_from(["*", "x" * 2_000]), st.just("tag"))
group_events: st.SearchStrategy[Event] = st.one_of(
    st.builds(
        GroupPut,
        groups,
        st.builds(
            GroupSettings,
            start=st.sampled_from(["earliest", "latest", 17]),
            retry_policy=policies,
            ordered=st.booleans(),
        ),
        st.integers(1, 9),
    ),
    st.builds(GroupDeleted, groups),
    st.builds(GroupSubscribed, groups, st.lists(subscriptions, max_size=3).map(tuple)),
    st.builds(
        StartsResolved,
        groups,
        st.lists(st.builds(TopicStarts, topics, st.lists(starts, max_size=3)), max_size=2),
        st.integers(1, 9),
    ),
    st.builds(LocksGranted, groups, clients, clients, st.just(30.0), keys),
    st.builds(
        LocksReleased, groups, keys, st.sampled_from(["released", "left", "expired"]), commits
    ),
    st.builds(MemberReplaced, groups, clients, clients, clients, st.just(30.0)),
    st.builds(OffsetsCommitted, groups, commits),
    st.builds(OffsetsReset, groups, commits),
    st.builds(MembershipBegan),
    st.builds(TopicDeleted, topics),
)


def folded(*history: Event) -> BrokerState:
    state = BrokerState()
    for log_offset, event in enumerate(history, 1):
        state.apply(event, log_offset)
    return state


@given(group_events)
def test_an_event_survives_the_log(event: Event) -> None:
    assert decode_event(decode_draft(encode_event(event, now_ms=1, host=HOST)).body) == event


@given(history=st.lists(group_events, max_size=30), items_max=st.sampled_from([1, 3, 10_000]))
def test_a_snapshot_tells_everything_about_groups(history: list[Event], items_max: int) -> None:
    state = folded(*history)

    other = BrokerState()
    for part in state.snapshot([], items_max=items_max):
        other.apply(part, 1_000)

    assert dict(other.groups) == dict(state.groups)
    assert other.runs == state.runs


@given(history=st.lists(group_events, max_size=20), later=st.lists(group_events, max_size=5))
def test_a_copy_changes_by_itself(history: list[Event], later: list[Event]) -> None:
    state, same = folded(*history), folded(*history)
    copy = state.copy()

    for log_offset, event in enumerate(later, 100):
        copy.apply(event, log_offset)

    assert dict(state.groups) == dict(same.groups)


@given(st.lists(group_events, max_size=30))
def test_a_queue_s_tokens_only_grow_until_it_is_forgotten(history: list[Event]) -> None:
    state = BrokerState()
    latest: dict[object, int] = {}
    for log_offset, event in enumerate(history, 1):
        state.apply(event, log_offset)
        for group in state.groups.values():
            for queue, lock in group.locks.items():
                assert lock.token >= latest.get((group.name, queue), 0)
                latest[group.name, queue] = lock.token


@pytest.mark.parametrize(
    "late",
    [
        OffsetsCommitted("g", [CommittedOffset("t", 0, 3)]),
        LocksGranted("g", "a", "1", 30.0, [QueueKey("t", 0)]),
        StartsResolved("g", [TopicStarts("t", [QueueStart(0, 3, "latest")])], 1),
        DeliveriesLeased("g", "t", 0, 0, 1, 9, [LeasedMessage(0, 1)]),
    ],
    ids=["commit", "lock", "start", "lease"],
)
def test_what_was_recorded_after_a_topic_was_deleted_says_nothing_of_its_successor(
    late: Event,
) -> None:
    put = TopicPut("t", 1, 1, "rw")
    state = folded(GroupPut("g", GroupSettings(), 1), put, TopicDeleted("t"), late, put)

    group = state.groups["g"]
    assert (group.offsets, group.locks, group.starts) == ({}, {}, {})
    assert state.leases.of_queue("g", ("t", 0)) is None


def test_a_group_that_is_only_named_has_the_default_settings() -> None:
    group = folded(OffsetsCommitted("g", [CommittedOffset("t", 0, 3)])).groups["g"]

    assert (group.settings, group.created_at_ms) == (GroupSettings(), None)


def test_a_group_s_creation_is_the_first_put() -> None:
    put = GroupPut("g", GroupSettings(), 5)
    group = folded(put, GroupPut("g", GroupSettings(ordered=True), 9)).groups["g"]

    assert (group.created_at_ms, group.settings.ordered) == (5, True)


def test_a_position_is_what_was_committed_or_else_the_start() -> None:
    started = StartsResolved("g", [TopicStarts("t", [QueueStart(0, 7, "latest")])], 1)
    moved = StartsResolved("g", [TopicStarts("t", [QueueStart(0, 9, "added")])], 2)

    assert folded(started, moved).groups["g"].position(("t", 0)) == 7
    assert folded(started).groups["g"].position(("t", 1)) is None
    committed = folded(started, OffsetsCommitted("g", [CommittedOffset("t", 0, 0)]))
    assert committed.groups["g"].position(("t", 0)) == 0


def test_a_reset_renews_the_token_of_a_lock_and_makes_none() -> None:
    granted = LocksGranted("g", "a", "1", 30.0, [QueueKey("t", 0)])
    reset = OffsetsReset("g", [CommittedOffset("t", 0, 1), CommittedOffset("t", 1, 1)])

    group = folded(granted, reset).groups["g"]

    assert {queue: lock.token for queue, lock in group.locks.items()} == {("t", 0): 2}
    assert group.locks["t", 0].owner == LockOwner("a", "1", 30.0)


def test_a_successor_has_the_locks_and_the_one_before_is_remembered() -> None:
    granted = LocksGranted("g", "a", "1", 30.0, [QueueKey("t", 0)])
    others = LocksGranted("g", "b", "1", 30.0, [QueueKey("t", 1)])

    group = folded(granted, others, MemberReplaced("g", "a", "1", "2", 20.0)).groups["g"]

    assert (group.locks["t", 0].owner, group.locks["t", 0].token) == (LockOwner("a", "2", 20.0), 3)
    assert group.locks["t", 1].token == 2
    assert list(group.replaced) == [("a", "1")]
    assert list(group.locks_of("a")) == [("t", 0)]


def test_only_the_latest_of_those_replaced_are_remembered() -> None:
    history = [MemberReplaced("g", "a", f"{n}", f"{n + 1}", 30.0) for n in range(100)]

    replaced = folded(*history).groups["g"].replaced

    assert len(replaced) == REPLACED_MAX
    assert ("a", "99") in replaced


def test_a_deleted_topic_takes_positions_and_locks_but_not_that_it_was_met() -> None:
    group = folded(
        StartsResolved("g", [TopicStarts("t", [QueueStart(0, 7, "latest")])], 1),
        LocksGranted("g", "a", "1", 30.0, [QueueKey("t", 0)]),
        OffsetsCommitted("g", [CommittedOffset("t", 0, 9)]),
        TopicDeleted("t"),
    ).groups["g"]

    assert (group.locks, group.starts, group.offsets) == ({}, {}, {})
    assert group.met == {"t": 1}
