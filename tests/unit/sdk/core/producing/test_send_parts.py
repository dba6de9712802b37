"""Parting and placing: every message in one batch, within the limits, its result in its place."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eruca.contract.errors import (
    PartialSendError,
    SendFailedError,
    TransportError,
    ValidationError,
)
from eruca.contract.messages import BatchReceipt
from eruca.contract.records import NO_HOST
from eruca.core.messages.message import Message
from eruca.core.messages.message_queue import MessageQueue
from eruca.core.producing.batching import Batching
from eruca.core.producing.send_parts import SendPart, part_alike, part_by_queue, results_in_order
from eruca.core.producing.send_result import StoredBatch

QUEUES = [None, MessageQueue("orders", "a", 0), MessageQueue("orders", "b", 1)]

bodies = st.lists(st.integers(1, 2_000).map(bytes), max_size=60)
limits = st.builds(Batching, count_max=st.integers(1, 20), bytes_max=st.integers(1, 5_000))


def check(parts: list[SendPart], messages: list[Message], chosen: Batching) -> None:
    indexes = [index for part in parts for index in part.indexes]
    assert sorted(indexes) == list(range(len(messages)))
    for part in parts:
        assert part.messages == [messages[index] for index in part.indexes]
        assert list(part.indexes) == sorted(part.indexes)
        assert part.size == sum(message.size_estimate() for message in part.messages)
        assert 1 <= len(part.messages) <= chosen.count_max
        assert part.size <= chosen.bytes_max or len(part.messages) == 1


@given(sizes=bodies, chosen=limits)
def test_messages_that_are_alike_fill_one_batch_after_another(
    sizes: list[bytes], chosen: Batching
) -> None:
    messages = [Message("orders", body) for body in sizes]

    parts = part_alike(messages, None, chosen)

    check(parts, messages, chosen)
    for part, following in pairwise(parts):
        full = len(part.messages) == chosen.count_max
        assert full or part.size + following.messages[0].size_estimate() > chosen.bytes_max


@given(sizes=bodies, chosen=limits, data=st.data())
def test_messages_are_parted_by_queue_and_stay_in_order(
    sizes: list[bytes], chosen: Batching, data: st.DataObject
) -> None:
    messages = [Message("orders", body) for body in sizes]
    queues = [data.draw(st.sampled_from(QUEUES)) for _ in messages]

    parts = part_by_queue(messages, queues, chosen)

    check(parts, messages, chosen)
    for queue in QUEUES:
        of_queue = [index for part in parts if part.queue == queue for index in part.indexes]
        assert of_queue == [index for index, q in enumerate(queues) if q == queue]


@given(sizes=bodies, chosen=limits)
def test_both_ways_agree_where_both_apply(sizes: list[bytes], chosen: Batching) -> None:
    messages = [Message("orders", body) for body in sizes]
    alike = part_alike(messages, QUEUES[1], chosen)
    by_queue = part_by_queue(messages, [QUEUES[1]] * len(messages), chosen)

    assert [list(part.indexes) for part in alike] == [part.indexes for part in by_queue]


def part(*indexes: int) -> SendPart:
    made = SendPart("orders", None)
    made.indexes = list(indexes)
    return made


def stored(*numbers: int) -> StoredBatch:
    receipt = BatchReceipt(
        queue_id=0,
        queue_offset=0,
        log_offset=0,
        count=len(numbers),
        stored_at_ms=0,
        durability="written",
    )
    queue = MessageQueue("orders", "a", 0)
    return StoredBatch(list(map(str, numbers)), queue, receipt, bytes(4 * len(numbers)), NO_HOST)


def test_results_come_in_the_callers_order() -> None:
    ordered = results_in_order([part(0, 3), part(1, 2)], [stored(0, 3), stored(1, 2)])

    assert [result.message_id for result in ordered] == ["0", "1", "2", "3"]
    assert results_in_order([], []) == []


def test_a_batch_that_failed_leaves_its_error_in_the_place_of_its_messages() -> None:
    error = TransportError("cut")
    with pytest.raises(PartialSendError, match="2 of 4 messages were not sent: cut") as partial:
        results_in_order([part(0, 3), part(1, 2)], [error, stored(1, 2)])

    assert partial.value.outcomes == [error, *stored(1, 2).results(), error]
    assert partial.value.failed_indexes == [0, 3]


def test_if_all_batches_failed_the_error_is_the_first_ones() -> None:
    with pytest.raises(TransportError, match="first"):
        results_in_order([part(0), part(1)], [TransportError("first"), TransportError("second")])


def test_if_one_of_them_may_be_stored_all_the_same_that_is_what_is_told() -> None:
    """Or one would take the refusal of another for the whole, and send all of them again."""
    refused, lost = ValidationError("refused"), SendFailedError("3 attempts failed")

    with pytest.raises(SendFailedError):
        results_in_order([part(0), part(1)], [refused, lost])
