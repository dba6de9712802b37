"""A fold over what concerns one group, or one transaction, gives the state of the whole fold."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from eruca.contract.hashing import tags_code
from eruca.contract.records import Host
from eruca.contract.transaction_events import (
    TransactionBegun,
    TransactionChecked,
    TransactionDecided,
)
from eruca_broker.core.state.events import Event, encode_event, event_tag
from eruca_broker.core.state.group_events import (
    GroupDeleted,
    GroupPut,
    GroupSettings,
    LocksGranted,
    QueueKey,
)
from eruca_broker.core.state.past import About, about_group, about_transaction
from eruca_broker.core.state.state import BrokerState
from support.state_events import events, groups, names

locks = st.builds(
    LocksGranted,
    groups,
    st.sampled_from(["one", "two"]),
    st.just("run"),
    st.just(30.0),
    st.lists(st.builds(QueueKey, names, st.integers(0, 2)), max_size=2),
)
all_events = st.one_of(
    events,
    locks,
    st.builds(GroupPut, groups, st.builds(GroupSettings), st.integers(1, 9)),
    st.builds(GroupDeleted, groups),
)
ids = st.sampled_from(["t", "u"])
HOST = Host.parse("127.0.0.1", 10911)


def begun(transaction_id: str) -> Event:
    return TransactionBegun(
        transaction_id=transaction_id,
        producer_group="shop",
        topic="a",
        queue_id=0,
        begun_at=1,
        immunity_ms=None,
        group_size=9,
    )


def decided(transaction_id: str) -> Event:
    return TransactionDecided(
        transaction_id, "commit", "producer", 3, "shop", "a", 0, 1, checks=0, group_size=9
    )


def checked(transaction_id: str) -> Event:
    return TransactionChecked(transaction_id, number=1, checker="c", checked_at=2)


def fold(state: BrokerState, event: Event, log_offset: int, about: About) -> None:
    """Fold an event as it stands in the log, if it may concern *about*."""
    record = encode_event(event, now_ms=17, host=HOST)
    if about.may_concern(record, tags_code(event_tag(event))):
        part = about.part(event)
        if part is not None:
            state.apply(part, log_offset)
    else:
        assert about.part(event) is None


@given(before=st.lists(all_events), after=st.lists(all_events), group=groups)
def test_a_group_has_the_state_of_the_whole_fold(
    before: list[Event], after: list[Event], group: str
) -> None:
    whole, own = BrokerState(), BrokerState()
    for log_offset, event in enumerate(before, 1):
        whole.apply(event, log_offset)
    log_offset = len(before)
    for event in (*whole.snapshot([("a", 0, 7)], items_max=3), *after):
        log_offset += 1
        whole.apply(event, log_offset)
        fold(own, event, log_offset, about_group(group))

    assert own.groups.get(group) == whole.groups.get(group)
    assert set(own.groups) <= {group}
    assert [one for one in own.leases.snapshot() if one.group == group] == [
        one for one in whole.leases.snapshot() if one.group == group
    ]


@given(
    before=st.lists(st.one_of(ids.map(begun), ids.map(decided), ids.map(checked), all_events)),
    after=st.lists(st.one_of(ids.map(begun), ids.map(decided), ids.map(checked), all_events)),
)
def test_a_transaction_has_the_state_of_the_whole_fold(
    before: list[Event], after: list[Event]
) -> None:
    whole, own = BrokerState(), BrokerState()
    for log_offset, event in enumerate(before, 1):
        whole.apply(event, log_offset)
    log_offset = len(before)
    for event in (*whole.snapshot([]), *after):
        log_offset += 1
        whole.apply(event, log_offset)
        fold(own, event, log_offset, about_transaction("t"))

    assert own.transactions.get("t") == whole.transactions.get("t")
    assert own.transactions.get("u") is None
    assert not own.groups
