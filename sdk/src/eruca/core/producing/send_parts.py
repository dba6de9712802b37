"""Split many messages into batches, and return their results in the caller's order.

Messages that must go to one queue form batches of their own, in order. The rest of each topic forms
batches for any queue. Batches are as full as the limits allow.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import Self

from eruca.contract.errors import ErucaError, PartialSendError, SendFailedError
from eruca.core.messages.message import Message, size_estimates
from eruca.core.messages.message_queue import MessageQueue
from eruca.core.producing.batching import Batching
from eruca.core.producing.send_result import SendResult, SendResults, Stored


class SendPart:
    """Messages of one batch."""

    __slots__ = ("indexes", "messages", "queue", "size", "topic")

    def __init__(self, topic: str, queue: MessageQueue | None) -> None:
        self.topic = topic
        self.queue = queue  # where they must go; None: any queue
        self.messages: list[Message] = []
        self.indexes: Sequence[int] = []  # the index of each in the caller's order
        self.size = 0  # bytes, estimated

    @classmethod
    def of(
        cls, messages: list[Message], indexes: range, queue: MessageQueue | None, size: int
    ) -> Self:
        """Return a part that accepts no more messages."""
        assert len(messages) == len(indexes), "each message has a place in the caller's order"
        part = cls(messages[0].topic, queue)
        part.messages, part.indexes, part.size = messages, indexes, size
        return part


def part_by_queue(
    messages: Sequence[Message], queues: Sequence[MessageQueue | None], limits: Batching
) -> list[SendPart]:
    """Return *messages* in batches; ``queues[i]`` is the target of ``messages[i]``, if any."""
    parts: list[SendPart] = []
    open_parts: dict[tuple[str, MessageQueue | None], SendPart] = {}
    count_max, size_max = limits.count_max, limits.bytes_max
    open_indexes: dict[tuple[str, MessageQueue | None], list[int]] = {}
    for index, (message, queue) in enumerate(zip(messages, queues, strict=True)):
        key = (message.topic, queue)
        size = message.size_estimate()
        part = open_parts.get(key)
        if part is None or len(part.messages) >= count_max or part.size + size > size_max:
            part = open_parts[key] = SendPart(*key)
            part.indexes = open_indexes[key] = []
            parts.append(part)
        part.messages.append(message)
        open_indexes[key].append(index)
        part.size += size
    assert sum(len(part.indexes) for part in parts) == len(messages), "a message has no part"
    return parts


def part_alike(
    messages: list[Message], queue: MessageQueue | None, limits: Batching
) -> list[SendPart]:
    """Return messages of one topic and one *queue* in batches; the faster way."""
    sizes = size_estimates(messages)
    if 0 < len(messages) <= limits.count_max and (size := sum(sizes)) <= limits.bytes_max:
        return [SendPart.of(messages, range(len(messages)), queue, size)]
    ends = list(accumulate(sizes))
    parts = []
    start = sent_size = 0
    while start < len(messages):
        fitting = bisect_right(ends, sent_size + limits.bytes_max, start)
        end = min(max(fitting, start + 1), start + limits.count_max, len(messages))
        assert start < end <= start + limits.count_max, "no batch is empty, or too large"
        size = ends[end - 1] - sent_size
        parts.append(SendPart.of(messages[start:end], range(start, end), queue, size))
        start, sent_size = end, ends[end - 1]
    return parts


def results_in_order(
    parts: Sequence[SendPart], outcomes: Sequence[Stored | ErucaError]
) -> SendResults:
    """Return the results of the batches, in the caller's order of messages.

    Raises:
        PartialSendError: Some batches failed and others did not.
        ErucaError: No batch was stored for certain: the first error after which one may be stored,
            else the first error.
    """
    errors = [outcome for outcome in outcomes if isinstance(outcome, ErucaError)]
    stored = [outcome for outcome in outcomes if not isinstance(outcome, ErucaError)]
    if not errors:
        return SendResults(stored, [part.indexes for part in parts])
    if not stored:
        raise next((error for error in errors if isinstance(error, SendFailedError)), errors[0])
    of_each: dict[int, SendResult | ErucaError] = {}
    for part, outcome in zip(parts, outcomes, strict=True):
        if isinstance(outcome, ErucaError):
            of_each.update(dict.fromkeys(part.indexes, outcome))
        else:
            of_each.update(zip(part.indexes, outcome.results(), strict=True))
    assert len(of_each) == sum(len(part.indexes) for part in parts), "two parts share a message"
    failed_count = sum(isinstance(outcome, ErucaError) for outcome in of_each.values())
    raise PartialSendError(
        f"{failed_count} of {len(of_each)} messages were not sent: {errors[0].detail}",
        outcomes=[of_each[index] for index in range(len(of_each))],
    ) from errors[0]
