"""The next message to hand out: redeliveries first, in order, within limits, by sharding key."""

from __future__ import annotations

from collections.abc import Mapping

from eruca_broker.core.consuming.lease_choice import Ahead, Choice, ChoiceLimits, choose
from eruca_broker.core.state.leases import QueueLeases, Unfinished

NOW = 1_000
LIMITS = ChoiceLimits(count_max=3, unfinished_max=10, attempts_max=17)


def chosen(
    queue: QueueLeases,
    ahead: list[int],
    *,
    end: int | None = None,
    limits: ChoiceLimits = LIMITS,
    min_offset: int = 0,
    keys: Mapping[int, str | None] | None = None,
) -> Choice:
    end = (ahead[-1] + 1 if ahead else queue.position) if end is None else end
    return choose(
        queue,
        Ahead(ahead, end),
        limits,
        now_ms=NOW,
        min_offset=min_offset,
        order_key=None if keys is None else lambda offset: keys[offset],
    )


def leased_until(due_at: int, attempt: int = 1) -> Unfinished:
    return Unfinished(attempt, 77, due_at)


def test_new_messages_go_in_order_and_the_position_stands_behind_the_last() -> None:
    choice = chosen(QueueLeases(5), [5, 6, 7, 8])

    assert choice.leased == [(5, 1), (6, 1), (7, 1)]
    assert choice.position == 8


def test_what_the_filter_holds_back_is_passed_over() -> None:
    choice = chosen(QueueLeases(5), [7], end=20)

    assert choice.leased == [(7, 1)]
    assert choice.position == 20


def test_where_nothing_matches_only_the_position_moves() -> None:
    choice = chosen(QueueLeases(5), [], end=20)

    assert choice == Choice(20)


def test_a_lease_that_ran_out_goes_before_new_messages_and_counts_one_more() -> None:
    queue = QueueLeases(7, {5: leased_until(NOW), 6: leased_until(NOW + 1)})

    choice = chosen(queue, [7, 8, 9])

    assert choice.leased == [(5, 2), (7, 1), (8, 1)]


def test_a_message_handed_out_often_enough_is_a_dead_letter() -> None:
    queue = QueueLeases(7, {5: leased_until(NOW, attempt=17), 6: leased_until(NOW, attempt=16)})

    choice = chosen(queue, [])

    assert choice.dead == [5]
    assert choice.leased == [(6, 17)]


def test_more_dead_letters_than_are_asked_for_wait_for_the_next_time() -> None:
    queue = QueueLeases(9, {n: leased_until(0, attempt=17) for n in range(5)})

    assert chosen(queue, []).dead == [0, 1, 2]


def test_what_retention_has_deleted_is_finished_once_it_is_due() -> None:
    queue = QueueLeases(9, {3: leased_until(NOW), 4: leased_until(NOW + 1)})

    choice = chosen(queue, [], min_offset=5)

    assert (choice.gone, choice.leased) == ([3], [])


def test_new_messages_stop_at_too_many_unfinished_but_old_ones_are_redelivered() -> None:
    queue = QueueLeases(4, {n: leased_until(NOW + 1) for n in range(3)} | {3: leased_until(NOW)})

    choice = chosen(queue, [4, 5], limits=ChoiceLimits(3, 5, 17))

    assert choice.leased == [(3, 2), (4, 1)]
    assert choice.is_throttled
    assert choice.position == 5


def test_of_each_sharding_key_one_message_is_out_at_a_time() -> None:
    keys = {0: "a", 1: "a", 2: "b", 3: "a", 4: "c", 5: "c"}

    choice = chosen(QueueLeases(0), [0, 1, 2, 3, 4, 5], keys=keys)

    assert choice.leased == [(0, 1), (2, 1), (4, 1)]
    assert choice.overtaken == [1, 3]
    assert choice.position == 5


def test_overtaken_messages_behind_the_last_one_handed_out_stay_ahead() -> None:
    keys: dict[int, str | None] = dict.fromkeys(range(50), "a")

    choice = chosen(QueueLeases(0), list(keys), keys=keys)

    assert (choice.leased, choice.overtaken, choice.position) == ([(0, 1)], [], 1)
    assert choice.is_blocked


def test_an_overtaken_message_comes_when_its_key_is_free() -> None:
    queue = QueueLeases(3, {1: Unfinished(0, 0, 0), 2: Unfinished(0, 0, 0)})

    choice = chosen(queue, [], keys={1: "a", 2: "a"})

    assert choice.leased == [(1, 1)]
    assert choice.is_blocked


def test_a_message_without_a_key_waits_for_all_before_it_and_all_behind_wait_for_it() -> None:
    keys = {0: "a", 1: None, 2: "b"}

    first = chosen(QueueLeases(0), [0, 1, 2], keys=keys)
    second = chosen(QueueLeases(1), [1, 2], keys=keys)

    assert (first.leased, first.position, first.is_blocked) == ([(0, 1)], 1, True)
    assert (second.leased, second.position, second.is_blocked) == ([(1, 1)], 2, True)


def test_waiting_for_its_delay_a_message_keeps_its_key_and_no_other() -> None:
    queue = QueueLeases(1, {0: Unfinished(1, 0, NOW + 1)})

    choice = chosen(queue, [1, 2], keys={0: "a", 1: "a", 2: "b"})

    assert choice.leased == [(2, 1)]
    assert choice.overtaken == [1]


def test_a_dead_letter_frees_its_key_at_once() -> None:
    queue = QueueLeases(1, {0: leased_until(NOW, attempt=17)})

    choice = chosen(queue, [1], keys={0: "a", 1: "a"})

    assert (choice.dead, choice.leased) == ([0], [(1, 1)])


def test_overtaking_is_bounded_by_what_may_be_unfinished() -> None:
    queue = QueueLeases(1, {0: leased_until(NOW + 1)})
    keys: dict[int, str | None] = {**dict.fromkeys(range(5), "a"), 5: "b"}

    choice = chosen(queue, [1, 2, 3, 4, 5], keys=keys, limits=ChoiceLimits(3, 4, 17))

    assert choice == Choice(1, is_blocked=True, is_throttled=True)
