"""Positions of the log's readers: valid at any replica, unless the records before them differ."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eruca_broker.core.replication.epochs import Epoch, EpochTable
from eruca_broker.core.replication.log_positions import (
    Standing,
    epoch_before,
    epoch_end,
    may_be_of_epoch,
    standing_of,
)

EPOCHS = EpochTable((Epoch(7, 100), Epoch(8, 300, is_unclean=True)))
END = 400


def standing(epoch: int, log_offset: int, epochs: EpochTable = EPOCHS, end: int = END) -> Standing:
    return standing_of(epochs, end, epoch=epoch, log_offset=log_offset)


@pytest.mark.parametrize(
    ("epoch", "log_offset"), [(0, 0), (0, 100), (7, 101), (7, 300), (8, 301), (8, 400)]
)
def test_rule_12_a_position_is_current_if_its_epoch_wrote_the_record_before_it(
    epoch: int, log_offset: int
) -> None:
    assert standing(epoch, log_offset) is Standing.CURRENT


@pytest.mark.parametrize(
    ("epoch", "log_offset"), [(7, 301), (7, 500), (8, 300), (0, 101), (6, 200)]
)
def test_rule_12_a_position_behind_which_another_epoch_wrote_is_stale(
    epoch: int, log_offset: int
) -> None:
    assert standing(epoch, log_offset) is Standing.STALE


@pytest.mark.parametrize(("epoch", "log_offset"), [(8, 401), (9, 350), (9, 500)])
def test_a_replica_that_has_not_copied_so_far_is_behind_the_position(
    epoch: int, log_offset: int
) -> None:
    assert standing(epoch, log_offset) is Standing.AHEAD


def test_a_position_at_the_beginning_has_no_record_before_it() -> None:
    assert standing(3, 0) is Standing.CURRENT


def test_an_epoch_that_retention_has_forgotten_is_not_questioned() -> None:
    left = EpochTable((Epoch(8, 300),))

    assert standing(7, 300, left) is Standing.CURRENT
    assert standing(7, 301, left) is Standing.STALE


def test_a_log_without_replicas_has_epoch_0() -> None:
    none = EpochTable()

    assert standing(0, 400, none) is Standing.CURRENT
    assert standing(0, 401, none) is Standing.AHEAD
    assert epoch_before(none, 400) == 0
    assert epoch_end(none, 0) is None


@pytest.mark.parametrize(("log_offset", "end"), [(0, 100), (100, 300), (299, 300), (300, None)])
def test_an_epoch_ends_where_the_next_one_begins(log_offset: int, end: int | None) -> None:
    assert epoch_end(EPOCHS, log_offset) == end


@given(
    begun=st.lists(st.integers(0, 50), unique=True, max_size=5).map(sorted), end=st.integers(0, 60)
)
def test_rule_12_in_a_clean_history_every_position_that_was_shown_stays_valid(
    begun: list[int], end: int
) -> None:
    """A replica has a beginning of the master's log; positions come from any longer beginning."""
    whole = EpochTable(tuple(Epoch(number, at) for number, at in enumerate(begun, 1)))
    here = whole.truncated(end)
    for log_offset in range(61):
        shown = standing_of(here, end, epoch=epoch_before(whole, log_offset), log_offset=log_offset)

        assert shown is (Standing.CURRENT if log_offset <= end else Standing.AHEAD)


@pytest.mark.parametrize(
    ("log_offset", "epoch", "is_it"),
    [
        (150, 2, True),
        (150, 3, False),  # of a log whose end was lost
        (250, 4, True),
        (250, 2, False),
        (250, 5, False),
        (50, 0, True),
        (50, 1, True),  # retention has forgotten epoch 1: nobody can tell
        (50, 2, False),
    ],
)
def test_a_token_names_a_record_by_its_epoch_too(
    log_offset: int, epoch: int, *, is_it: bool
) -> None:
    """Rule 12."""
    table = EpochTable((Epoch(2, 100), Epoch(4, 200, is_unclean=True)))
    assert may_be_of_epoch(table, log_offset, epoch) is is_it


def test_without_replicas_every_token_is_of_epoch_0() -> None:
    assert may_be_of_epoch(EpochTable(), 150, 0)
    assert not may_be_of_epoch(EpochTable(), 150, 3)
