"""Parting many messages into batches, and putting their results back into the caller's order.

Messages that must go to one queue form batches of their own, in order; the rest of each topic forms
batches for any queue. All are as full as the limits allow.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate, chain

from eruca.contract.errors import ErucaError, PartialSendError
from eruca.core.batching import BatchLimits
from eruca.core.message import Message
from eruca.core.message_queue import MessageQueue
from eruca.core.send_result import SendResult


class SendPart:
    """Messages that make one batch."""

    __slots__ = ("indexes", "messages", "queue", "size", "topic")

    def __init__(self, topic: str, queue: MessageQueue | None) -> None:
        self.topic = topic
        self.queue = queue  # where they must go; None for any queue
        self.messages: list[Message] = []
        self.indexes: list[int] = []  # where each stands in the caller's order
        self.size = 0  # bytes, by estimate


def part_by_queue(
    messages: Sequence[Message], queues: Sequence[MessageQueue | None], limits: BatchLimits
) -> list[SendPart]:
    """Return *messages* in batches; ``queues[i]`` is where ``messages[i]`` must go, if anywhere."""
    parts: list[SendPart] = []
    open_parts: dict[tuple[str, MessageQueue | None], SendPart] = {}
    count_max, size_max = limits.count_max, limits.size_max
    for index, (message, queue) in enumerate(zip(messages, queues, strict=True)):
        key = (message._topic, queue)
        part = open_parts.get(key)
        if part is None or len(part.messages) >= count_max or part.size + message._size > size_max:
            part = open_parts[key] = SendPart(*key)
            parts.append(part)
        part.messages.append(message)
        part.indexes.append(index)
        part.size += message._size
    return parts


def part_alike(
    messages: list[Message], queue: MessageQueue | None, limits: BatchLimits
) -> list[SendPart]:
    """Return messages of one topic that may all go to *queue* in batches; the faster way."""
    ends = list(accumulate([message._size for message in messages]))
    parts = []
    start = sent_size = 0
    while start < len(messages):
        fitting = bisect_right(ends, sent_size + limits.size_max, start)
        end = min(max(fitting, start + 1), start + limits.count_max, len(messages))
        part = SendPart(messages[start]._topic, queue)
        part.messages = messages[start:end]
        part.indexes = list(range(start, end))
        part.size = ends[end - 1] - sent_size
        parts.append(part)
        start, sent_size = end, ends[end - 1]
    return parts


def results_in_order(
    parts: Sequence[SendPart], outcomes: Sequence[list[SendResult] | ErucaError]
) -> list[SendResult]:
    """Return what the batches were stored as, in the caller's order of messages.

    Raises:
        PartialSendError: Some batches failed and others did not.
        ErucaError: None was stored; the first batch's error.
    """
    if len(outcomes) == 1 and isinstance(outcomes[0], list):
        return outcomes[0]  # one batch, and it holds them in their order
    errors = [outcome for outcome in outcomes if isinstance(outcome, ErucaError)]
    results = [outcome for outcome in outcomes if not isinstance(outcome, ErucaError)]
    indexes = chain.from_iterable(part.indexes for part in parts)
    if not errors:
        placed = dict(zip(indexes, chain.from_iterable(results), strict=True))
        return [placed[index] for index in range(len(placed))]
    if not results:
        raise errors[0]
    of_each: dict[int, SendResult | ErucaError] = {}
    for part, outcome in zip(parts, outcomes, strict=True):
        if isinstance(outcome, ErucaError):
            of_each.update(dict.fromkeys(part.indexes, outcome))
        else:
            of_each.update(zip(part.indexes, outcome, strict=True))
    failed_count = sum(isinstance(outcome, ErucaError) for outcome in of_each.values())
    raise PartialSendError(
        f"{failed_count} of {len(of_each)} messages were not sent: {errors[0].detail}",
        outcomes=[of_each[index] for index in range(len(of_each))],
    ) from errors[0]
