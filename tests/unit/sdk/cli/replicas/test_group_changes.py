"""An operator's changes of a broker group: each keeps what is confirmed, or says so."""

from __future__ import annotations

import pytest

from eruca.cli.replicas.group_changes import (
    check_successor,
    elected,
    missing_bytes,
    repaired,
    without,
)
from eruca.contract.errors import ConflictError, NotFoundError
from support.group_rows import group, name, replica, status


@pytest.mark.parametrize(
    ("in_sync", "to", "refusal"),
    [
        ((1, 2), 1, "replica 1 of .* is the master already|replica 1 is the master"),
        ((1, 2), 3, "replica 3 of broker-a is not in sync"),
        ((1,), None, "no other replica of broker-a is in sync"),
    ],
)
def test_only_another_replica_in_sync_may_take_over(
    in_sync: tuple[int, ...], to: int | None, refusal: str
) -> None:
    with pytest.raises(ConflictError, match=refusal):
        check_successor(group(in_sync=in_sync), to)


@pytest.mark.parametrize("to", [2, None])
def test_a_replica_in_sync_may_take_over(to: int | None) -> None:
    check_successor(group(), to)


def test_an_unknown_replica_is_named_with_those_that_exist() -> None:
    with pytest.raises(NotFoundError, match=r"broker-a has no replica 9 \(its replicas: 1, 2, 3"):
        check_successor(group(), 9)


def test_a_removed_replica_leaves_the_set_and_the_list() -> None:
    row = without(group(), 2, {})

    assert row.in_sync == [name(1)]
    assert [one.replica_id for one in row.replicas] == [1, 3]
    assert (row.epoch, row.master) == (7, name(1))


def test_a_replica_that_runs_is_not_removed_for_it_would_join_again() -> None:
    with pytest.raises(ConflictError, match="replica 2 of broker-a still runs"):
        without(group(), 2, {2: status(2)})


def test_the_master_is_not_removed() -> None:
    with pytest.raises(ConflictError, match="replica 1 is the master"):
        without(group(), 1, {})


def test_a_replica_outside_the_set_is_elected_uncleanly_and_alone() -> None:
    row = elected(group(), 3, {3: status(3, last_epoch=6)})

    assert (row.epoch, row.master, row.in_sync) == (8, name(3), [name(3)])
    assert row.unclean
    assert "the loss was accepted" in row.reason


def test_a_member_of_the_set_is_elected_cleanly_for_it_lacks_nothing() -> None:
    row = elected(group(), 2, {2: status(2)})

    assert (row.epoch, row.master, row.in_sync) == (8, name(2), [name(1), name(2)])
    assert not row.unclean


def test_a_store_that_may_have_lost_records_is_no_member_under_its_new_uid() -> None:
    row = elected(group(), 2, {2: status(2, uid="newer", former_uids=["uid-2"])})

    assert row.unclean
    assert row.master == name(2, "newer")
    assert row.master in row.in_sync
    assert name(2, "newer") in [name(one.replica_id, one.uid) for one in row.replicas]


def test_nobody_is_elected_below_an_epoch_of_its_log() -> None:
    """Rule 13: a row is never accepted whose epoch is not beyond the log's last."""
    assert elected(group(epoch=3), 3, {3: status(3, last_epoch=7)}).epoch == 8


def test_nobody_is_elected_below_an_epoch_of_another_log_or_cleanly_then() -> None:
    row = elected(group(epoch=7), 2, {2: status(2, last_epoch=7), 3: status(3, last_epoch=8)})

    assert (row.epoch, row.unclean) == (9, True)
    assert [member.replica_id for member in row.in_sync] == [2]


def test_nobody_is_elected_while_the_master_answers() -> None:
    with pytest.raises(ConflictError, match="hand over without loss: eruca broker switch"):
        elected(group(), 2, {1: status(1, role="master"), 2: status(2)})


def test_a_replica_that_does_not_answer_is_not_elected() -> None:
    with pytest.raises(ConflictError, match=r"replica 3 .* does not answer at http://127.0.0.1"):
        elected(group(), 3, {2: status(2)})


def test_a_replica_lacks_what_any_replica_knows_to_be_confirmed() -> None:
    behind = status(3, end=600, confirmed=700)

    assert missing_bytes(behind, [behind]) == 100
    assert missing_bytes(behind, [behind, status(2)]) == 400
    assert missing_bytes(status(2), [behind]) == 0


def test_a_row_behind_a_running_master_is_raised_beyond_its_term_rule_13() -> None:
    """Within its term the row would have a lower number than the lost one: it would be refused."""
    statuses = {
        1: status(1, known_epoch=7, known_number=30),
        2: status(2, role="master", in_sync=[name(2), name(3)]),
        3: status(3, end=900),
    }

    row = repaired("broker-a", group(epoch=4), group().replicas, statuses, accepts_loss=False)

    assert (row.epoch, row.master, row.in_sync) == (8, name(2), [name(2), name(3)])
    assert not row.unclean


def test_a_running_master_whose_term_is_over_is_not_raised_rule_13() -> None:
    """Somebody knows epoch 8: its master, which does not answer, may have confirmed more."""
    statuses = {
        1: status(1, known_epoch=8, known_number=30),
        2: status(2, role="master", in_sync=[name(2), name(3)]),
    }
    before = group(epoch=4)

    with pytest.raises(ConflictError, match="replicas that do not answer: 3"):
        repaired("broker-a", before, before.replicas, statuses, accepts_loss=False)


def test_without_a_master_the_longest_log_of_the_latest_epoch_goes_on_rule_13() -> None:
    """The row's own set is not asked: it is as old as the row."""
    statuses = {
        1: status(1, last_epoch=6, end=5_000),
        2: status(2, end=900),
        3: status(3, end=1_000),
    }

    row = repaired("broker-a", group(epoch=4), group().replicas, statuses, accepts_loss=False)

    assert (row.epoch, row.master, row.in_sync) == (8, name(3), [name(3)])
    assert not row.unclean


def test_a_row_that_a_replica_knows_to_be_older_is_raised_too_rule_13() -> None:
    """The arbiter was restored within one epoch, and the master is gone."""
    statuses = {
        1: status(1, last_epoch=7, end=900, known_epoch=7, known_number=9),
        2: status(2, last_epoch=7, end=1_000, known_epoch=7, known_number=12),
    }
    present = [replica(1), replica(2)]

    row = repaired("broker-a", group(epoch=7, number=9), present, statuses, accepts_loss=False)

    assert (row.epoch, row.master, row.in_sync) == (8, name(2), [name(2)])
    assert elected(group(epoch=7, number=9), 2, statuses).unclean
    with pytest.raises(ConflictError, match="the arbiter is not behind"):
        repaired("broker-a", group(epoch=7, number=12), present, statuses, accepts_loss=False)


def test_a_replica_that_does_not_report_may_hold_more() -> None:
    statuses = {2: status(2), 3: status(3)}
    before = group(epoch=4)

    with pytest.raises(ConflictError, match="replicas that do not answer: 1"):
        repaired("broker-a", before, before.replicas, statuses, accepts_loss=False)
    assert repaired("broker-a", before, before.replicas, statuses, accepts_loss=True).unclean


def test_the_longest_log_that_may_have_lost_records_is_not_taken_unasked() -> None:
    statuses = {1: status(1, end=10), 2: status(2, former_uids=["older"]), 3: status(3, end=10)}

    with pytest.raises(ConflictError, match="may have lost records"):
        repaired("broker-a", group(epoch=4), group().replicas, statuses, accepts_loss=False)


def test_a_row_that_is_lost_is_made_again_from_the_logs() -> None:
    statuses = {1: status(1), 2: status(2, end=900)}

    row = repaired("broker-a", None, [replica(1), replica(2)], statuses, accepts_loss=False)

    assert (row.epoch, row.master) == (8, name(1))
    assert [one.replica_id for one in row.replicas] == [1, 2]


def test_a_row_that_is_not_behind_is_left_alone() -> None:
    statuses = {1: status(1)}

    with pytest.raises(ConflictError, match="the arbiter is not behind"):
        repaired("broker-a", group(epoch=7), group().replicas, statuses, accepts_loss=True)
    with pytest.raises(ConflictError, match="the arbiter is not behind"):
        repaired("broker-a", None, [replica(1)], {1: status(1, last_epoch=0)}, accepts_loss=True)


def test_nothing_is_repaired_without_a_replica() -> None:
    with pytest.raises(ConflictError, match="no replica of broker-a answers"):
        repaired("broker-a", group(epoch=4), group().replicas, {}, accepts_loss=True)
