"""A stream's offsets: batches join without a gap, and stay what they are when replayed."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_eruca.errors import DataLossError, SourceError
from pyspark_eruca.ranges import Held, Queue, Range
from pyspark_eruca.stream_offsets import batch_ranges, next_offset

FIRST, SECOND, THIRD = (Queue("orders", "broker-a", number) for number in range(3))


def held(**sizes: tuple[int, int]) -> dict[Queue, Held]:
    """Return queues ``q0``, ``q1`` … by their least and largest offsets."""
    return {
        Queue("orders", "broker-a", int(name[1:])): Held(least, most, least, most)
        for name, (least, most) in sizes.items()
    }


def following(
    start: dict[str, Any],
    now: dict[Queue, Held],
    *,
    rows_max: int | None = None,
    fail: bool = True,
    latest: bool = False,
) -> dict[str, Any]:
    return next_offset(
        start,
        now,
        begin=lambda _, one: one.max_offset if latest else one.min_offset,
        rows_max=rows_max,
        fail_on_data_loss=fail,
    )


def test_the_first_batch_says_where_its_queues_began() -> None:
    offset = following({}, held(q0=(5, 20), q1=(0, 0)))

    assert offset == {
        "first": {FIRST.text: 5, SECOND.text: 0},
        "next": {FIRST.text: 20, SECOND.text: 0},
    }
    assert batch_ranges({}, offset) == [Range(FIRST, 5, 20)]


def test_a_batch_replayed_is_the_same_though_retention_has_gone_on() -> None:
    logged = json.loads(json.dumps(following({}, held(q0=(5, 20)))))

    assert batch_ranges({}, logged) == [Range(FIRST, 5, 20)]


def test_nothing_new_is_the_same_offset_again() -> None:
    offset = following({}, held(q0=(0, 20)))

    assert following(offset, held(q0=(0, 20))) is offset


def test_latest_means_the_end_as_it_was_at_first_even_of_an_empty_queue() -> None:
    offset = following({}, held(q0=(0, 20), q1=(0, 0)), latest=True)

    assert batch_ranges({}, offset) == []
    later = following(offset, held(q0=(0, 21), q1=(0, 3)), latest=True)
    assert batch_ranges(offset, later) == [Range(FIRST, 20, 21), Range(SECOND, 0, 3)]


def test_a_queue_that_comes_later_is_read_whole() -> None:
    offset = following({}, held(q0=(0, 20)), latest=True)
    later = following(offset, held(q0=(0, 20), q1=(4, 9)), latest=True)

    assert batch_ranges(offset, later) == [Range(SECOND, 4, 9)]
    assert later["next"][FIRST.text] == 20


def test_a_queue_that_is_not_there_for_a_while_is_not_forgotten() -> None:
    offset = following({}, held(q0=(0, 20), q1=(0, 10)))
    without = following(offset, held(q0=(0, 25)))

    assert without["next"] == {FIRST.text: 25, SECOND.text: 10}
    assert batch_ranges(without, following(without, held(q1=(0, 11)))) == [Range(SECOND, 10, 11)]


def test_offsets_never_go_back_and_a_topic_made_anew_waits_until_it_has_grown() -> None:
    offset = following({}, held(q0=(0, 20)))

    assert following(offset, held(q0=(0, 7))) is offset
    assert batch_ranges(offset, following(offset, held(q0=(0, 22)))) == [Range(FIRST, 20, 22)]


def test_retention_that_was_faster_is_an_error() -> None:
    offset = following({}, held(q0=(0, 20)))

    with pytest.raises(DataLossError, match=r"orders/broker-a/0: messages 20 to 29 .* deleted"):
        following(offset, held(q0=(30, 40)))


def test_retention_that_was_faster_is_passed_over_if_that_is_allowed() -> None:
    offset = following({}, held(q0=(0, 20)))
    later = following(offset, held(q0=(30, 40)), fail=False)

    assert batch_ranges(offset, later) == [Range(FIRST, 30, 40)]
    assert batch_ranges(later, following(later, held(q0=(30, 50)))) == [Range(FIRST, 40, 50)]


def test_an_offset_that_does_not_say_where_a_queue_began_is_refused() -> None:
    with pytest.raises(SourceError, match="does not say where"):
        batch_ranges({}, {"first": {}, "next": {FIRST.text: 3}})


@given(
    growths=st.lists(
        st.dictionaries(st.sampled_from([FIRST, SECOND, THIRD]), st.integers(0, 20)), max_size=6
    ),
    rows_max=st.integers(3, 40),
)
def test_batches_hold_each_message_once_however_queues_grow(
    growths: list[dict[Queue, int]], rows_max: int
) -> None:
    sizes: dict[Queue, int] = {}
    offset: dict[str, Any] = {}
    seen: dict[Queue, int] = {}
    still: list[dict[Queue, int]] = [{}] * (6 * 3 * 20 // rows_max + 1)
    for growth in [*growths, *still]:
        for queue, rows in growth.items():
            sizes[queue] = sizes.get(queue, 0) + rows
        now = {queue: Held(0, size, 0, size) for queue, size in sizes.items()}
        later = following(offset, now, rows_max=rows_max)
        batch = batch_ranges(offset, later)
        assert sum(one.rows for one in batch) <= rows_max
        for one in batch:
            assert one.start == seen.get(one.queue, 0)
            seen[one.queue] = one.end
        offset = json.loads(json.dumps(later))

    assert seen == {queue: size for queue, size in sizes.items() if size}
