"""Versions of a row, and the rules of its changes: rule 2 of the module, and repeated requests."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eruca.contract.broker_groups import BrokerGroupPut
from eruca.contract.errors import ConflictError, StaleEpochError
from eruca_controller.core.rows import (
    GroupRow,
    content_of,
    content_of_removal,
    put_row,
    removed_row,
)
from support.controllers import group

NOW = datetime(2026, 11, 21, 8, tzinfo=UTC)


def put(*args: Any, **named: Any) -> BrokerGroupPut:  # noqa: ANN401
    return BrokerGroupPut.model_validate(group(*args, **named))


def row(before: GroupRow | None, *args: Any, **named: Any) -> GroupRow:  # noqa: ANN401
    return put_row("broker-a", before, put(*args, **named), NOW)


def test_the_number_grows_with_each_change_also_through_a_removal() -> None:
    first = row(None)
    second = row(first, 2)
    removed = removed_row(second, "me", "gone", NOW)
    again = row(removed, 1)

    rows = [first, second, removed, again]
    assert [one.number for one in rows] == [1, 2, 3, 4]
    assert [one.kind for one in rows] == ["created", "changed", "removed", "created"]
    assert [one.previous for one in rows] == [None, *(one.version for one in rows[:3])]
    assert len({one.version for one in rows}) == 4
    assert removed.change().epoch == 2


@pytest.mark.parametrize(("epoch", "master"), [(5, 1), (6, 1), (6, 2), (9, 2)])
def test_a_later_epoch_may_have_another_master(epoch: int, master: int) -> None:
    changed = row(row(None, 5), epoch, master)

    assert (changed.group.epoch, changed.group.master.replica_id) == (epoch, master)


def test_rule_2_the_epoch_never_decreases() -> None:
    with pytest.raises(StaleEpochError, match="expected epoch 5 or later, found 4") as refused:
        row(row(None, 5), 4)

    assert refused.value.errors[0]["pointer"] == "/body/epoch"


def test_rule_2_an_epoch_has_one_master() -> None:
    with pytest.raises(ConflictError, match=r"expected master 1 \(store-1\) in epoch 5") as refused:
        row(row(None, 5), 5, 2)

    assert refused.value.errors[0]["pointer"] == "/body/master"


def test_rule_2_the_same_replica_with_another_store_is_another_master() -> None:
    wiped = {"replica_id": 1, "uid": "wiped"}
    before = row(None, 5)

    changed = BrokerGroupPut.model_validate(group(5) | {"master": wiped, "in_sync": [wiped]})

    with pytest.raises(ConflictError):
        put_row("broker-a", before, changed, NOW)


def test_a_change_is_recognized_as_the_result_of_the_same_request_only() -> None:
    first = row(None)
    changed = row(first, 2, by="replica 1")

    assert changed.is_result_of("changed", content_of(put(2, by="replica 1")))
    assert not changed.is_result_of("changed", content_of(put(2, by="replica 2")))
    assert not changed.is_result_of("created", content_of(put(2, by="replica 1")))
    removed = removed_row(changed, "me", None, NOW)
    assert removed.is_result_of("removed", content_of_removal("me", None))
    assert not removed.is_result_of("removed", content_of_removal(None, "me"))


def test_the_same_change_of_another_version_is_another_version() -> None:
    first = row(None)
    one, other = row(first, 2), row(first, 2, reason="another")

    assert row(one, 3).version != row(other, 3).version


def test_a_store_that_went_back_in_time_gives_out_no_version_again() -> None:
    """A version read before the restore is unknown after it, although its number is not."""
    first = row(None)
    lost = row(row(first, 2), 3)

    after_restore = row(row(first, 2), 4)

    assert after_restore.number == lost.number
    assert after_restore.version != lost.version


@given(
    epochs=st.lists(st.integers(1, 5), min_size=1, max_size=6),
    masters=st.lists(st.integers(1, 3), min_size=6, max_size=6),
)
def test_no_epoch_ever_has_two_masters_and_rows_survive_being_stored(
    epochs: list[int], masters: list[int]
) -> None:
    current: GroupRow | None = None
    terms: dict[int, int] = {}
    for epoch, master in zip(epochs, masters, strict=False):
        try:
            changed = row(current, epoch, master, in_sync=[1, 2, 3])
        except (StaleEpochError, ConflictError):
            continue
        assert current is None or changed.group.epoch >= current.group.epoch
        assert terms.setdefault(epoch, master) == master
        assert GroupRow.from_text(changed.to_text()) == changed
        current = changed


def test_a_stored_row_may_have_members_of_a_later_version() -> None:
    text = row(None).to_text()
    later = text.replace('"number": 1', '"number": 1, "colour": "green"', 1).replace(
        '"min_in_sync": 1', '"min_in_sync": 1, "quorum": 2'
    )

    assert later.count("green") == later.count("quorum") == 1
    assert GroupRow.from_text(later) == row(None)
