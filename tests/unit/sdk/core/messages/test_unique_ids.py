"""Unique ids: no two alike, whatever the clock, the month and the processes do."""

from __future__ import annotations

from datetime import UTC, datetime

from hypothesis import given, settings
from hypothesis import strategies as st

from eruca.contract.message_ids import decode_unique_id
from eruca.core.messages.unique_ids import UniqueIds
from support.rocketmq_rules import unique_id_time_ms

NOW = 1_700_000_000_123
ADDRESS = bytes((192, 168, 0, 1))


def test_an_id_says_who_made_it_and_when() -> None:
    text = UniqueIds(ADDRESS, 77, 41).next(NOW, 4_711)

    decoded = decode_unique_id(text)
    assert decoded.address == ADDRESS
    assert decoded.process_id == 4_711
    assert decoded.instance == 77
    assert decoded.counter == 42
    assert unique_id_time_ms(text, NOW + 1) == NOW


def test_a_v6_address_makes_a_longer_id() -> None:
    assert len(UniqueIds(bytes(16), 1).next(NOW, 1)) == 56


@settings(max_examples=50)
@given(st.lists(st.tuples(st.integers(-3, 3), st.integers(0, 40)), max_size=30), st.booleans())
def test_no_two_ids_are_alike_while_the_clock_goes_to_and_fro(
    steps: list[tuple[int, int]], one_by_one: bool
) -> None:
    ids, now, made = UniqueIds(ADDRESS, 1, 65_520), NOW, []

    for step, count in steps:
        now += step
        if one_by_one:
            made += [ids.next(now, 1) for _ in range(count)]
        else:
            made += ids.take(count, now, 1)

    assert len(set(made)) == len(made) == sum(count for _, count in steps)


def test_more_ids_than_the_counter_holds_in_one_millisecond_are_still_unique() -> None:
    ids = UniqueIds(ADDRESS, 1)

    taken = [*ids.take(40_000, NOW, 1), *ids.take(40_000, NOW, 1), *ids.take(65_536, NOW, 1)]
    made = [*taken, *(ids.next(NOW, 1) for _ in range(70_000))]

    assert len(set(made)) == 215_536


@given(st.integers(0, 65_535), st.integers(0, 300))
def test_a_range_of_ids_gives_each_of_them_in_every_way(counter: int, count: int) -> None:
    one_by_one = UniqueIds(ADDRESS, 1, counter)
    expected = [one_by_one.next(NOW, 1) for _ in range(count)]

    taken = UniqueIds(ADDRESS, 1, counter).take(count, NOW, 1)

    assert list(taken) == [taken[index] for index in range(count)] == expected
    assert taken[1:-1] == expected[1:-1]
    assert taken.digits == "".join(text.removeprefix(taken.head) for text in expected)


def test_the_same_moment_of_two_months_gives_different_ids() -> None:
    january = int(datetime(2025, 1, 2, tzinfo=UTC).timestamp() * 1000)
    february = int(datetime(2025, 2, 2, tzinfo=UTC).timestamp() * 1000)
    ids = UniqueIds(ADDRESS, 1)

    one, other = ids.take(65_536, january, 1), ids.take(65_536, february, 1)

    assert not set(one) & set(other)
    assert unique_id_time_ms(other[0], february + 1) == february


def test_the_last_and_the_first_moment_of_a_month_are_told_apart() -> None:
    february = int(datetime(2025, 2, 1, tzinfo=UTC).timestamp() * 1000)
    ids = UniqueIds(ADDRESS, 1)

    for now in (february - 1, february):
        assert unique_id_time_ms(ids.next(now, 1), now + 1) == now


def test_another_day_of_the_month_keeps_the_instance() -> None:
    ids = UniqueIds(ADDRESS, 5)

    made = [ids.next(NOW, 1), ids.next(NOW + 86_400_000, 1)]

    assert [decode_unique_id(text).instance for text in made] == [5, 5]


def test_after_a_fork_parent_and_child_differ() -> None:
    parent, child = UniqueIds(ADDRESS, 1), UniqueIds(ADDRESS, 1)
    parent.next(NOW, 1_000)
    child.next(NOW, 1_000)

    assert parent.next(NOW, 1_000) != child.next(NOW, 1_001)


def test_process_ids_that_agree_in_16_bits_differ_too() -> None:
    assert UniqueIds(ADDRESS, 1).next(NOW, 7) != UniqueIds(ADDRESS, 1).next(NOW, 7 + 65_536)


def test_taking_none_makes_none() -> None:
    assert list(UniqueIds(ADDRESS, 1).take(0, NOW, 1)) == []
