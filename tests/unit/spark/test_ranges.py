"""Ranges are shared out so that each message is in one share, and shares are alike."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eruca.exporting.errors import OptionError
from eruca.exporting.ranges import Queue, Range, pack, share_out

ORDERS = Queue("orders", "broker-a", 0)

queues = st.builds(
    Queue,
    st.sampled_from(["orders", "payments"]),
    st.sampled_from(["broker-a", "broker-b"]),
    st.integers(0, 5),
)
ranges = st.dictionaries(queues, st.tuples(st.integers(0, 50), st.integers(0, 300))).map(
    lambda found: [Range(queue, start, start + rows) for queue, (start, rows) in found.items()]
)


@given(ranges, st.integers(1, 200), st.integers(1, 4))
def test_shares_hold_each_message_once_and_in_order(
    todo: list[Range], partition_rows: int, ranges_max: int
) -> None:
    shares = pack(todo, partition_rows, ranges_max=ranges_max)

    pieces = sorted(piece for share in shares for piece in share)
    joined: list[Range] = []
    for piece in pieces:
        if joined and joined[-1].queue == piece.queue and joined[-1].end == piece.start:
            joined[-1] = joined[-1]._replace(end=piece.end)
        else:
            joined.append(piece)
    assert joined == sorted(one for one in todo if one.rows)


@given(ranges, st.integers(1, 200), st.integers(1, 4))
def test_no_share_is_too_large_or_of_two_topics(
    todo: list[Range], partition_rows: int, ranges_max: int
) -> None:
    for share in pack(todo, partition_rows, ranges_max=ranges_max):
        assert 0 < sum(piece.rows for piece in share) <= partition_rows
        assert len(share) <= ranges_max
        assert len({piece.queue.topic for piece in share}) == 1


def test_shares_are_alike_rather_than_full_but_for_one() -> None:
    shares = pack([Range(ORDERS, 0, 1_100)], 500)

    assert [share[0].rows for share in shares] == [367, 367, 366]


def test_nothing_makes_no_share() -> None:
    assert pack([], 100) == []
    assert pack([Range(ORDERS, 7, 7)], 100) == []


@given(st.dictionaries(queues, st.integers(0, 1_000)), st.integers(1, 2_000))
def test_a_limit_is_used_up_and_not_exceeded(available: dict[Queue, int], rows_max: int) -> None:
    shares = share_out(available, rows_max)

    assert sum(shares.values()) == min(rows_max, sum(available.values()))
    assert all(0 <= shares[queue] <= available[queue] for queue in available)


def test_all_queues_move_at_the_same_pace() -> None:
    small, large = ORDERS, ORDERS._replace(queue_id=1)

    assert share_out({small: 100, large: 900}, 100) == {small: 10, large: 90}


def test_a_queue_is_written_as_it_is_read() -> None:
    queue = Queue("%DLQ%billing", "room@broker-a.1", 17)

    assert Queue.parse(queue.text) == queue


@pytest.mark.parametrize("text", ["orders/0", "orders/broker-a/x", "a/b/1/2", "", "orders/b/-1"])
def test_what_names_no_queue_is_refused(text: str) -> None:
    with pytest.raises(OptionError, match="TOPIC/BROKER/QUEUE"):
        Queue.parse(text)
