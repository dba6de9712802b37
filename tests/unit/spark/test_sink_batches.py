"""Batches of a sink: the same rows make the same batches, so that each row is stored once.

The broker here is a model: what it has under each key, and that it refuses other content there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_eruca.sink_batches import Batch, Batches, Lane

LANES = [Lane("orders", None), Lane("orders", 0), Lane("orders", 1), Lane("payments", None)]
Row = tuple[Lane, bytes]
Key = tuple[str, int]
Sharded = tuple[int | None, bytes]  # the hash of its sharding key
rows_of_a_partition = st.lists(
    st.tuples(st.sampled_from(LANES), st.binary(min_size=1, max_size=12)), max_size=60
)


class OtherContentError(Exception):
    """A key is known, for other messages."""


class Broker:
    """A model: the messages under each key."""

    def __init__(self) -> None:
        self.stored: dict[Key, list[bytes]] = {}

    def send(self, batch: Batch) -> None:
        key = batch.lane.topic, batch.number
        if self.stored.setdefault(key, batch.texts) != batch.texts:
            raise OtherContentError

    def count(self) -> Counter[tuple[str, bytes]]:
        return Counter((key[0], text) for key, texts in self.stored.items() for text in texts)


def by_topic(rows: Sequence[Row]) -> Counter[tuple[str, bytes]]:
    return Counter((lane.topic, text) for lane, text in rows)


def over_queues(rows: Sequence[Sharded], count: int) -> list[Row]:
    """Return rows of one topic in the lanes that *count* queues make; their text tells the key."""
    return [
        (Lane("orders", None if hashed is None else hashed % count), b"%r %b" % (hashed, text))
        for hashed, text in rows
    ]


def batches_of(rows: Sequence[Row]) -> Iterator[Batch]:
    batches = Batches(count_max=4, size_max=20, waiting_size_max=30)
    for number, (lane, text) in enumerate(rows):
        yield from batches.add(lane, text, number)
    yield from batches.rest()


@given(rows_of_a_partition)
def test_every_row_is_in_one_batch_and_lanes_keep_their_order(rows: list[Row]) -> None:
    batches = list(batches_of(rows))

    assert sorted(row for batch in batches for row in batch.rows) == list(range(len(rows)))
    for topic in ("orders", "payments"):
        numbers = [batch.number for batch in batches if batch.lane.topic == topic]
        assert numbers == list(range(len(numbers)))
    for lane in LANES:
        its = [batch for batch in batches if batch.lane == lane]
        assert [text for batch in its for text in batch.texts] == [
            text for its_lane, text in rows if its_lane == lane
        ]
    assert all(len(batch.texts) <= 4 for batch in batches)
    assert all(sum(map(len, batch.texts)) <= 20 or len(batch.texts) == 1 for batch in batches)


@given(rows_of_a_partition)
def test_what_waits_is_bounded(rows: list[Row]) -> None:
    batches = Batches(count_max=100, size_max=100, waiting_size_max=30)
    waiting = 0
    for number, (lane, text) in enumerate(rows):
        waiting += len(text)
        waiting -= sum(len(one) for batch in batches.add(lane, text, number) for one in batch.texts)
        assert waiting <= 30


@given(rows_of_a_partition, st.lists(st.integers(0, 40), max_size=4))
def test_attempts_that_are_broken_off_leave_each_row_once(rows: list[Row], ends: list[int]) -> None:
    broker = Broker()
    for end in ends:
        for batch in list(batches_of(rows))[:end]:
            broker.send(batch)
    for batch in batches_of(rows):
        broker.send(batch)

    assert broker.count() == by_topic(rows)


@given(rows_of_a_partition, st.integers(0, 40), st.randoms(use_true_random=False))
def test_rows_in_another_order_are_refused_or_sent_once(
    rows: list[Row], end: int, random: Random
) -> None:
    broker = Broker()
    for batch in list(batches_of(rows))[:end]:
        broker.send(batch)
    shuffled = random.sample(rows, len(rows))
    try:
        for batch in batches_of(shuffled):
            broker.send(batch)
    except OtherContentError:
        assert shuffled != rows
    else:
        assert broker.count() == by_topic(rows)


@given(
    st.lists(st.tuples(st.none() | st.integers(0, 9), st.binary(min_size=1, max_size=9))),
    st.lists(st.tuples(st.integers(1, 8), st.integers(0, 40)), min_size=1, max_size=4),
)
def test_attempts_over_other_queues_are_refused_or_leave_each_row_once(
    rows: list[Sharded], attempts: list[tuple[int, int]]
) -> None:
    broker = Broker()
    for count, end in attempts:
        try:
            for batch in list(batches_of(over_queues(rows, count)))[:end]:
                broker.send(batch)
        except OtherContentError:
            pass
    once = by_topic(over_queues(rows, 1))
    assert broker.count() <= once
    for count, _ in attempts:
        try:
            for batch in batches_of(over_queues(rows, count)):
                broker.send(batch)
        except OtherContentError:
            assert broker.count() <= once
        else:
            assert broker.count() == once


def test_the_only_lane_is_complete_over_other_queues_too() -> None:
    broker = Broker()
    rows: list[Sharded] = [(9, b"a"), (9, b"b"), (9, b"c")]
    for count in (4, 8):
        for batch in batches_of(over_queues(rows, count)):
            broker.send(batch)

    assert broker.count() == by_topic(over_queues(rows, 1))


def test_a_row_larger_than_a_batch_is_alone() -> None:
    [first, second] = batches_of([(LANES[0], b"a"), (LANES[0], b"b" * 50)])

    assert (first.texts, second.texts) == ([b"a"], [b"b" * 50])
    with pytest.raises(AttributeError):
        first.number = 1  # type: ignore[misc]
