"""The epochs of the log: the fold, its snapshots, and its limits (rule 2)."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import given

from eruca_broker.core.replication.epochs import Epoch, EpochTable
from eruca_broker.core.state.epoch_events import EpochBegan
from eruca_broker.core.state.epochs_state import LogEpochs
from eruca_broker.core.state.state import BrokerState

hosts = st.sampled_from(["10.0.0.1:1", "10.0.0.2:1", "10.0.0.3:1"])
terms = st.lists(st.tuples(st.integers(1, 9), hosts, st.booleans()), max_size=12)

Terms = list[tuple[int, str, bool]]


def began(
    epoch: int, begun_at: int, host: str = "10.0.0.1:1", *, unclean: bool = False
) -> EpochBegan:
    return EpochBegan(epoch, 1, "9f2c51d07ab3e846", host, 0, unclean, begun_at)


def folded(some: Terms) -> LogEpochs:
    """Fold terms, each 10 bytes behind the last one."""
    epochs = LogEpochs()
    for number, (epoch, host, unclean) in enumerate(some, 1):
        epochs.apply(began(epoch, 10 * number, host, unclean=unclean))
    return epochs


@given(terms)
def test_the_table_has_each_epoch_that_ascended(some: Terms) -> None:
    expected: list[Epoch] = []
    for number, (epoch, _, unclean) in enumerate(some, 1):
        if epoch > max((known.number for known in expected), default=0):
            expected.append(Epoch(epoch, 10 * number, unclean))

    assert folded(some).table == EpochTable(tuple(expected))
    assert folded(some).last == folded(some).table.last


@given(terms, st.integers(0, 140))
def test_retention_forgets_epochs_without_records(some: Terms, min_offset: int) -> None:
    epochs, whole = folded(some), folded(some).table

    epochs.forget_before(min_offset)

    assert set(epochs.table) <= set(whole)
    for offset in range(min_offset, 140):
        assert epochs.table.at(offset) == whole.at(offset)
    if later := list(epochs.table)[1:]:
        assert later[0].begun_at > min_offset


def test_the_store_hosts_are_those_of_the_log_s_masters() -> None:
    epochs = folded([(1, "a", False), (2, "b", False), (3, "a", False), (4, "c", False)])
    whole = epochs.store_hosts

    epochs.forget_before(35)

    assert (whole, epochs.store_hosts) == (("a", "b", "c"), ("a", "c"))


@given(terms, terms)
def test_a_copy_changes_by_itself(some: Terms, later: Terms) -> None:
    epochs, same = folded(some), folded(some)
    copied = epochs.copy()
    assert copied.table == epochs.table

    for number, (epoch, host, unclean) in enumerate(later, 1):
        copied.apply(began(epoch, 1_000 + number, host, unclean=unclean))
    copied.forget_before(2_000)

    assert list(epochs) == list(same)
    assert epochs.table == same.table


def test_ten_thousand_epochs_fit_into_a_snapshot() -> None:
    state = BrokerState()
    for epoch in range(1, 10_001):
        state.apply(began(epoch, 300 * epoch), 300 * epoch)
    assert len(state.epochs.epochs) == 10_000

    other = BrokerState()
    for part in state.snapshot([], items_max=32):
        other.apply(part, 4_000_000)
    assert other.epochs == state.epochs

    other.log_epochs.forget_before(2_999_700)
    assert list(other.epochs) == [Epoch(9_999, 2_999_700), Epoch(10_000, 3_000_000)]
