"""Messages for what only looks at their offset, size, key and retries."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from eruca.core.consuming.process_queue import ProcessQueue


@dataclass(slots=True, eq=False)
class QueuedMessage:
    """As much of a message as a process queue needs."""

    queue_offset: int
    size: int = 10
    sharding_key: str | None = None
    reconsume_times: int = 0


def queued(*offsets: int, key: str | None = None) -> list[QueuedMessage]:
    """Return messages at these offsets."""
    return [QueuedMessage(offset, sharding_key=key) for offset in offsets]


def filled(messages: Iterable[QueuedMessage]) -> ProcessQueue[QueuedMessage]:
    """Return a process queue that holds *messages*, pulled at once."""
    batch = list(messages)
    queue: ProcessQueue[QueuedMessage] = ProcessQueue(batch[0].queue_offset)
    queue.put(batch, batch[-1].queue_offset + 1)
    return queue


def offsets_of(messages: Iterable[QueuedMessage]) -> list[int]:
    """Return their offsets."""
    return [message.queue_offset for message in messages]
