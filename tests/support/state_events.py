"""Strategies for events of the broker's state."""

from __future__ import annotations

from hypothesis import strategies as st

from eruca_broker.core.state.epoch_events import EpochBegan
from eruca_broker.core.state.events import (
    CommittedOffset,
    OffsetsCommitted,
    TopicDeleted,
    TopicPut,
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
from eruca_broker.core.state.topic_events import OrderConfig

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
