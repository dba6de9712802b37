"""Ordered queues: what waits, what was taken, and what comes back."""

from __future__ import annotations

import pytest

from eruca.core.consuming.ordered_queue import OrderedQueue
from support.queued import QueuedMessage, filled, offsets_of, queued


def ordered(*offsets: int) -> OrderedQueue[QueuedMessage]:
    messages = queued(*offsets)
    queue = OrderedQueue(filled(messages))
    queue.add(messages)
    return queue


def test_messages_are_taken_in_order() -> None:
    queue = ordered(1, 2, 3)

    assert offsets_of(queue.take(2, now=0.0)) == [1, 2]
    assert queue.ready_at() == 0.0
    assert offsets_of(queue.take(2, now=0.0)) == [3]
    assert queue.ready_at() is None


def test_a_commit_covers_a_batch_and_everything_taken_before_it() -> None:
    queue = ordered(1, 2, 3)
    queue.take(1, now=0.0)
    batch = queue.take(1, now=0.0)
    assert queue.held.commit_offset == 1

    assert queue.commit(batch) == 20
    assert queue.held.commit_offset == 3


def test_a_commit_leaves_what_was_taken_after_its_batch() -> None:
    queue = ordered(1, 2, 3)
    first = queue.take(2, now=0.0)
    second = queue.take(1, now=0.0)

    assert queue.commit(first) == 20

    assert queue.held.commit_offset == 3
    queue.put_back(second)
    assert offsets_of(queue.waiting) == [3]


def test_what_was_taken_last_goes_back_in_front() -> None:
    queue = ordered(1, 2, 3)
    queue.take(1, now=0.0)
    batch = queue.take(1, now=0.0)

    queue.put_back(batch)

    assert offsets_of(queue.uncommitted) == [1]
    assert offsets_of(queue.waiting) == [2, 3]


def test_only_what_was_taken_last_goes_back() -> None:
    queue = ordered(1, 2)
    first = queue.take(1, now=0.0)
    queue.take(1, now=0.0)

    with pytest.raises(AssertionError):
        queue.put_back(first)


def test_a_rollback_brings_back_everything_taken() -> None:
    queue = ordered(1, 2, 3)
    queue.take(1, now=0.0)
    queue.take(1, now=0.0)

    queue.roll_back()

    assert offsets_of(queue.take(3, now=0.0)) == [1, 2, 3]


def test_what_is_discarded_does_not_come_back() -> None:
    queue = ordered(1, 2, 3)
    batch = queue.take(2, now=0.0)
    queue.put_back(batch)

    assert queue.discard(batch[:1]) == 10

    assert offsets_of(queue.waiting) == [2, 3]
    assert queue.held.commit_offset == 2
