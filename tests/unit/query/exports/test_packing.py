"""Packing: every message of every range in exactly one partition, none too large."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eruca.contract.exports import ExportRange
from eruca.contract.limits import EXPORT_RANGE_COUNT_MAX
from eruca_query.exports.packing import QueueWish, partitions_of

RANGES = st.lists(st.tuples(st.integers(0, 50), st.integers(0, 60)), min_size=0, max_size=12).map(
    lambda spans: [
        ExportRange(broker_name="a", queue_id=n, from_offset=start, to_offset=start + size)
        for n, (start, size) in enumerate(spans)
    ]
)


def offsets(ranges: list[ExportRange]) -> list[tuple[int, int]]:
    return [(r.queue_id, n) for r in ranges for n in range(r.from_offset, r.to_offset)]


@given(RANGES, st.integers(1, 100))
def test_every_message_is_in_one_partition_in_order(
    ranges: list[ExportRange], partition_rows: int
) -> None:
    partitions = partitions_of(ranges, partition_rows)

    assert [place for p in partitions for place in offsets(p.ranges)] == offsets(ranges)
    assert [p.index for p in partitions] == list(range(len(partitions)))
    assert all(a_range.rows > 0 for p in partitions for a_range in p.ranges)


@given(RANGES, st.integers(1, 100))
def test_partitions_are_as_few_as_possible_and_about_alike(
    ranges: list[ExportRange], partition_rows: int
) -> None:
    sizes = [p.rows for p in partitions_of(ranges, partition_rows)]

    rows = sum(a_range.rows for a_range in ranges)
    assert len(sizes) == -(-rows // partition_rows)
    assert all(size <= partition_rows for size in sizes)
    assert len(set(sizes[:-1])) <= 1
    assert sizes == [] or sizes[-1] > 0


def test_a_partition_has_no_more_ranges_than_a_request_may_have() -> None:
    ranges = [
        ExportRange(broker_name="a", queue_id=n, from_offset=0, to_offset=1)
        for n in range(EXPORT_RANGE_COUNT_MAX + 1)
    ]

    partitions = partitions_of(ranges, 1_000)

    assert [len(p.ranges) for p in partitions] == [EXPORT_RANGE_COUNT_MAX, 1]


@pytest.mark.parametrize(
    ("start", "from_offset", "to_offset", "taken", "missing"),
    [
        (None, None, None, (10, 90), 0),
        (40, None, None, (40, 90), 0),
        (90, None, None, (90, 90), 0),
        (95, None, None, (95, 95), 0),
        (3, None, None, (10, 90), 7),
        (3, 10, None, (10, 90), 7),
        (3, 11, None, (11, 90), 0),
        (None, 20, 30, (20, 30), 0),
        (25, 20, 30, (25, 30), 0),
        (35, 20, 30, (35, 35), 0),
        (None, None, 5, (10, 10), 0),
        (None, 90, None, (90, 90), 0),
    ],
)
def test_what_is_taken_of_a_queue(
    start: int | None,
    from_offset: int | None,
    to_offset: int | None,
    taken: tuple[int, int],
    missing: int,
) -> None:
    wish = QueueWish("a", 0, 10, 90, start, from_offset, to_offset)

    queue = wish.taken()

    assert (queue.from_offset, queue.to_offset) == taken
    assert (queue.min_offset, queue.max_offset, queue.missing_rows) == (10, 90, missing)
