"""Every kind of program goes on at the next master: two are killed in a row, one is switched.

All tests judge one run (``support/failover/story.py``): three replicas, two name servers and two
controllers, of which one each is away during the second change.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from itertools import pairwise

import pytest

from support.failover.story import CHANGES, Story, tell
from support.failover.works import Work, texts
from support.forked import forking_clusters


@pytest.fixture(scope="module")
def story() -> Story:
    with forking_clusters():
        return asyncio.run(tell())


def check(work: Work) -> None:
    """Raise what has stopped a program."""
    if work.failure is not None:
        raise AssertionError(f"{type(work).__name__} failed") from work.failure


def test_masters_were_replaced_in_epochs_of_their_own(story: Story) -> None:
    assert len(story.replaced) == CHANGES
    assert story.epochs > CHANGES


def test_an_idempotent_producer_stores_each_message_once_and_fails_nowhere(story: Story) -> None:
    check(story.once)
    places = {(m.queue, m.queue_offset): m.text() for m in story.orders}
    assert Counter(places.values()) == Counter([*story.once.acknowledged])
    for text, result in story.once.acknowledged.items():
        assert places[result.queue, result.queue_offset or 0] == text


def test_any_other_producer_stores_each_message_at_least_once_and_fails_nowhere(
    story: Story,
) -> None:
    check(story.often)
    places = {(m.queue, m.queue_offset): m.text() for m in story.clicks}
    for text, result in story.often.acknowledged.items():
        assert places[result.queue, result.queue_offset or 0] == text
    assert set(places.values()) == story.often.acknowledged.keys()


def test_queues_have_no_gap_and_store_times_do_not_decrease(story: Story) -> None:
    for messages in (story.orders, story.clicks, story.purchases, story.reminders.found):
        by_queue: dict[object, list[tuple[int, int]]] = {}
        for message in messages:
            place = (message.queue_offset, message.stored_at_ms)
            by_queue.setdefault(message.queue, []).append(place)
        for places in by_queue.values():
            assert [offset for offset, _ in places] == list(range(len(places)))
            times = [time for _, time in places]
            assert times == sorted(times)


def test_a_group_handles_every_message_and_commits_none_that_it_has_not(story: Story) -> None:
    check(story.handlers)
    assert story.handlers.handled.keys() == story.once.acknowledged.keys()
    assert story.handlers.passed == []
    ends = Counter(message.queue for message in story.orders)
    assert {q: offset.committed_offset for q, offset in story.committed.items()} == dict(ends)


def test_an_ordered_group_keeps_the_order_of_each_key(story: Story) -> None:
    check(story.accounts)
    for key, numbers in story.accounts.numbers().items():
        first_times = list(dict.fromkeys(numbers))
        assert first_times == list(range(story.accounts.sent[key])), key
        # A message may be handled again, and then the ones after it in their order.
        assert all(after <= before + 1 for before, after in pairwise(numbers))


def test_a_queue_of_an_ordered_group_has_one_holder_at_a_time(story: Story) -> None:
    assert story.accounts.overlaps == []
    assert {handling.member for handling in story.accounts.handled} == {0, 1}


def test_a_transaction_is_decided_once_by_its_producer_or_by_a_check(story: Story) -> None:
    check(story.shop)
    assert Counter(texts(story.purchases)) == Counter(story.shop.done.values())
    assert set(texts(story.purchases)).isdisjoint(story.shop.never.values())
    across = [text for text in story.shop.done.values() if text.startswith("across")]
    assert len(across) == CHANGES
    assert story.shop.checked > 0


def test_a_received_message_is_finished_once_or_redelivered(story: Story) -> None:
    check(story.parcels)
    assert story.parcels.sent == story.parcels.finished | story.parcels.perhaps
    assert story.parcels.again == []


def test_a_handle_of_a_former_master_is_good_and_one_that_is_used_up_changes_nothing(
    story: Story,
) -> None:
    check(story.leases)
    assert story.leases.progress == CHANGES
    assert len(story.leases.stale) == 3 * CHANGES
    assert story.leases.redelivered == []
    assert Counter(story.leases.finished) == Counter([*story.once.acknowledged])


def test_a_delayed_message_is_delivered_once_and_not_early_or_it_is_recalled(story: Story) -> None:
    check(story.reminders)
    delivered = Counter(texts(story.reminders.found))
    assert set(delivered.values()) == {1}
    assert delivered.keys().isdisjoint(story.reminders.recalled)
    assert delivered.keys() >= (
        story.reminders.sent.keys() - story.reminders.recalled - story.reminders.in_doubt
    )
    for message in story.reminders.found:
        due = story.reminders.sent[message.text()].deliver_at
        assert due is not None
        assert message.stored_at >= due


@pytest.mark.parametrize("reader", ["standby_reader", "master_reader"])
def test_a_follower_reads_each_record_of_the_log_once(story: Story, reader: str) -> None:
    check(work := getattr(story, reader))
    assert work.read == story.log[: len(work.read)]
    assert len(work.read) > len(story.orders)


def test_an_export_has_all_that_was_acknowledged_before_and_the_rows_of_its_plan(
    story: Story,
) -> None:
    check(story.exports)
    for export in story.exports.ended:
        assert len(export.texts) == len(set(export.texts)) == export.planned
        assert export.acknowledged <= set(export.texts)


def test_the_query_service_finds_each_message_once(story: Story) -> None:
    assert len(story.found) == 20
