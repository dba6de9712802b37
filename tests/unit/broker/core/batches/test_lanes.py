"""The table of lanes: what may follow what."""

from __future__ import annotations

import pytest

from eruca.contract.errors import LaneGapError
from eruca.contract.wire import LanePosition
from eruca_broker.core.batches.lanes import Lanes

LANE = b"a lane.."


def at(epoch: int, sequence: int, lane: bytes = LANE) -> LanePosition:
    return LanePosition(lane, epoch, sequence)


def accepted(*positions: LanePosition, count_max: int = 10) -> Lanes:
    lanes = Lanes(count_max)
    for position in positions:
        lanes.check(position)
        lanes.accept(position)
    return lanes


def test_sequences_follow_one_another() -> None:
    lanes = accepted(at(1, 0), at(1, 1), at(1, 2))

    lanes.check(at(1, 3))
    for wrong in (at(1, 2), at(1, 4), at(1, 0)):
        with pytest.raises(LaneGapError, match="expected sequence 3"):
            lanes.check(wrong)


def test_an_unknown_lane_begins_with_sequence_0() -> None:
    lanes = accepted()

    lanes.check(at(7, 0))
    with pytest.raises(LaneGapError, match="expected sequence 0"):
        lanes.check(at(7, 1))


def test_a_later_epoch_begins_with_sequence_0_and_shuts_out_earlier_ones() -> None:
    lanes = accepted(at(1, 0), at(1, 1))
    with pytest.raises(LaneGapError, match="epoch 2 is new"):
        lanes.check(at(2, 2))
    lanes.check(at(2, 0))
    lanes.accept(at(2, 0))

    for late in (at(1, 2), at(1, 0)):
        with pytest.raises(LaneGapError, match="expected epoch 2 or a later one"):
            lanes.check(late)
    lanes.check(at(2, 1))


def test_nothing_follows_in_an_epoch_of_which_a_batch_was_taken_back() -> None:
    lanes = accepted(at(1, 0), at(1, 1))
    lanes.close(at(1, 1))

    for later in (at(1, 1), at(1, 2)):
        with pytest.raises(LaneGapError, match="ended with a refused batch"):
            lanes.check(later)
    lanes.check(at(2, 0))


def test_what_was_taken_back_of_an_earlier_epoch_closes_no_later_one() -> None:
    lanes = accepted(at(1, 0), at(2, 0))
    lanes.close(at(1, 0))

    lanes.check(at(2, 1))


def test_the_lane_used_longest_ago_is_forgotten() -> None:
    lanes = accepted(at(1, 0), at(1, 0, b"another."), at(1, 1), count_max=2)
    lanes.accept(at(1, 0, b"a third."))

    assert len(lanes) == 2
    lanes.check(at(1, 2))
    with pytest.raises(LaneGapError, match="expected sequence 0"):
        lanes.check(at(1, 1, b"another."))
