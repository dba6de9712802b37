"""Columns of a topic's volume."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from eruca.contract.queries import MessageCount, MessageCounts
from eruca_console.core.histogram import HEIGHT, columns_of, sliding, total_of

NOW = datetime(2026, 11, 21, 8, 0, 30, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


def counted(*counts: int | None) -> MessageCounts:
    return MessageCounts(
        since=NOW,
        until=NOW + len(counts) * MINUTE,
        width_ms=60_000,
        counts=[
            MessageCount(start=NOW + index * MINUTE, count=count)
            for index, count in enumerate(counts)
        ],
        read_model=[],
        incomplete=[],
    )


@given(st.integers(0, 10**6), st.sampled_from([15, 60, 360, 1440]))
def test_a_sliding_time_holds_the_present_and_moves_by_whole_columns(
    seconds: int, minutes: int
) -> None:
    now, span = NOW + timedelta(seconds=seconds), timedelta(minutes=minutes)

    since, until = sliding(now, span)

    assert until - since == span
    assert since < now < until
    assert until - now <= span / 60
    assert sliding(until - timedelta(microseconds=1), span) == (since, until)


def test_the_highest_column_has_the_whole_height_and_a_low_one_can_be_seen() -> None:
    columns = columns_of(counted(0, 1, 1_000_000))

    assert [column.height for column in columns] == [0.0, 1.5, HEIGHT]
    assert columns[0].end == columns[1].start
    assert total_of(columns) == 1_000_001


def test_an_unknown_column_is_no_empty_one_and_makes_the_total_unknown() -> None:
    columns = columns_of(counted(None, 3))

    assert [column.height for column in columns] == [HEIGHT, HEIGHT]
    assert total_of(columns) is None


def test_the_last_column_ends_with_the_time() -> None:
    short = counted(1, 2).model_copy(update={"until": NOW + MINUTE * 1.5})

    assert columns_of(short)[-1].end == NOW + MINUTE * 1.5
