"""Epoch tables, and the common part of two logs, over generated histories of a group."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eruca_broker.core.replication.epochs import Epoch, EpochTable
from eruca_broker.core.replication.lineage import (
    ForeignLogError,
    Lineage,
    UncleanCutError,
    check_cut,
    common_end,
)
from support.replication_world import Log, epochs_of, lineage_of

TABLE = EpochTable((Epoch(2, 10), Epoch(3, 20), Epoch(7, 50)))


@st.composite
def two_logs(draw: st.DrawFn) -> tuple[Log, Log]:
    """Draw two logs of one group: a common part, and what different masters wrote behind it."""

    def term(epoch: int) -> Log:
        return tuple((epoch, write) for write in range(draw(st.integers(1, 4))))

    common: Log = tuple((0, write) for write in range(1, draw(st.integers(1, 4))))
    for epoch in range(1, draw(st.integers(1, 4))):
        common += term(epoch)
    common = common[: draw(st.integers(0, len(common)))]
    logs = []
    for epochs in ((11, 13), (12, 14)):
        log = common
        for epoch in epochs[: draw(st.integers(0, 2))]:
            log += term(epoch)
        logs.append(log)
    return logs[0], logs[1]


@given(two_logs())
def test_the_common_end_is_where_two_logs_part(logs: tuple[Log, Log]) -> None:
    first, second = logs
    equal = 0
    while equal < min(len(first), len(second)) and first[equal] == second[equal]:
        equal += 1

    assert common_end(lineage_of(first), lineage_of(second)) == equal
    assert common_end(lineage_of(second), lineage_of(first)) == equal


@given(two_logs())
def test_after_the_cut_a_replica_is_a_prefix_of_its_master(logs: tuple[Log, Log]) -> None:
    master, replica = logs
    cut = replica[: common_end(lineage_of(master), lineage_of(replica))]

    assert master[: len(cut)] == cut
    assert epochs_of(cut) == epochs_of(replica).truncated(len(cut))


def test_an_epoch_that_began_twice_makes_a_log_foreign() -> None:
    other = EpochTable((Epoch(2, 12),))

    with pytest.raises(ForeignLogError, match=r"epoch 2 begins at 12 .* expected 10"):
        common_end(Lineage(TABLE, 60), Lineage(other, 60))


@pytest.mark.parametrize(
    ("offset", "number", "end"),
    [(0, 0, 10), (9, 0, 10), (10, 2, 20), (20, 3, 50), (49, 3, 50), (50, 7, 60), (59, 7, 60)],
)
def test_each_record_belongs_to_the_epoch_that_began_last(
    offset: int, number: int, end: int
) -> None:
    assert TABLE.at(offset) == number
    assert TABLE.end_of(number, 60) == end


def test_an_epoch_without_records_ends_where_a_later_one_begins() -> None:
    assert [TABLE.end_of(number, 60) for number in (1, 5, 9)] == [10, 50, 60]


@pytest.mark.parametrize("number", [0, 2, 7])
def test_a_term_needs_a_new_epoch(number: int) -> None:
    with pytest.raises(AssertionError, match="new epoch"):
        TABLE.begun(Epoch(number, 60))


@pytest.mark.parametrize("epochs", [((3, 10), (2, 20)), ((2, 20), (3, 20)), ((0, 5),)])
def test_a_table_ascends(epochs: tuple[tuple[int, int], ...]) -> None:
    with pytest.raises(AssertionError, match=r"follows|misplaced"):
        EpochTable(tuple(Epoch(*epoch) for epoch in epochs))


def test_a_cut_through_confirmed_records_needs_an_unclean_epoch() -> None:
    check_cut(20, visible_offset=20, master=TABLE)
    check_cut(30, visible_offset=20, master=TABLE)
    with pytest.raises(UncleanCutError, match="continues differently after 15"):
        check_cut(15, visible_offset=20, master=TABLE)
    with pytest.raises(UncleanCutError):  # forced, but long before the cut
        check_cut(15, visible_offset=20, master=EpochTable((Epoch(2, 10, is_unclean=True),)))

    check_cut(15, visible_offset=20, master=TABLE.begun(Epoch(8, 60, is_unclean=True)))
