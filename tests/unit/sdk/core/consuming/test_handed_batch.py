"""The batch in hand: messages that are handed out and those that are done are distinguished."""

from __future__ import annotations

import pytest

from eruca.core.consuming.handed_batch import HandedBatch
from eruca.core.messages.message_queue import MessageQueue
from eruca.core.messages.received_message import ReceivedMessage

A, B = MessageQueue("orders", "a", 0), MessageQueue("orders", "b", 0)


@pytest.fixture
def batch() -> HandedBatch:
    """A batch of a5, b7, a6, b8."""
    batch = HandedBatch()
    places = [(A, 5), (B, 7), (A, 6), (B, 8)]
    batch.replace([ReceivedMessage(queue, offset, b"", 0, 0) for queue, offset in places])
    return batch


def test_nothing_is_in_hand_at_first() -> None:
    batch = HandedBatch()

    assert not batch.has_unread
    assert batch.first_offsets_from(0) == {}


def test_a_poll_hands_out_everything_and_is_done_with_nothing(batch: HandedBatch) -> None:
    assert len(batch.hand_out_all()) == 4
    assert (batch.handed_count, batch.done_count, batch.unread) == (4, 0, [])


def test_asking_for_the_next_message_says_that_the_one_before_is_done_with(
    batch: HandedBatch,
) -> None:
    assert [batch.hand_out_one().queue_offset for _ in range(3)] == [5, 7, 6]
    assert (batch.handed_count, batch.done_count) == (3, 2)
    assert [message.queue_offset for message in batch.unread] == [8]
    batch.finish_handed()
    assert batch.done_count == 3


@pytest.mark.parametrize(
    ("count", "offsets"),
    [(0, {A: 5, B: 7}), (1, {A: 6, B: 7}), (2, {A: 6, B: 8}), (3, {B: 8}), (4, {})],
)
def test_the_first_offset_that_is_not_covered_is_known_for_each_queue(
    batch: HandedBatch, count: int, offsets: dict[MessageQueue, int]
) -> None:
    assert batch.first_offsets_from(count) == offsets


def test_what_has_not_been_handed_out_of_a_queue_can_be_withdrawn(batch: HandedBatch) -> None:
    batch.hand_out_one()

    assert [message.queue_offset for message in batch.withdraw({A})] == [6]
    assert (batch.handed_count, batch.done_count) == (1, 0)
    assert batch.first_offsets_from(0) == {A: 5, B: 7}  # a5 is in hand, and not done with
    assert [batch.hand_out_one().queue_offset for _ in range(2)] == [7, 8]
    assert not batch.has_unread


def test_messages_of_a_queue_that_was_sought_elsewhere_are_dropped(batch: HandedBatch) -> None:
    for _ in range(3):
        batch.hand_out_one()

    batch.forget({A})

    assert [message.queue for message in batch.messages] == [B, B]
    assert (batch.handed_count, batch.done_count) == (1, 1)
    assert batch.hand_out_one().queue_offset == 8
