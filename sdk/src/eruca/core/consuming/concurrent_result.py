"""Handle the result of a concurrent handler: acknowledge, send back, or retry its messages.

1. The handler's status and its ack index split the batch: messages up to the ack index are
   acknowledged, the rest has failed. A status other than SUCCESS fails the whole batch.
2. :func:`to_send_back` selects the failed messages to send back, for a retry after a delay. With
   broadcasting there is no retry: they are dropped.
3. :func:`settle` removes from the process queue the messages that were acknowledged or sent back. A
   message that could not be sent back stays, counts one more attempt, and is handled again after
   ``AGAIN_SECONDS``.

A queue that the member has lost in the meantime is ignored: its new owner has these messages.
Messages that are no longer in the process queue, because they timed out and were sent back, are
skipped.

Source: RocketMQ 5.3, ``ConsumeMessageConcurrentlyService.processConsumeResult``.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Final

from eruca.core.consuming.consume_status import ConsumeStatus
from eruca.core.consuming.process_queue import M, ProcessQueue

if TYPE_CHECKING:
    from eruca.contract.groups import MessageModel

AGAIN_SECONDS: Final = 5.0  # until a message that could not be sent back is handled again


def acknowledged_count(status: ConsumeStatus, ack_index: int | None, size: int) -> int:
    """Return how many of a batch's messages, from the first on, are acknowledged.

    Args:
        status: The handler's verdict.
        ack_index: Index of the last acknowledged message; None for all; below 0 for none.
        size: Messages in the batch.
    """
    if status is not ConsumeStatus.SUCCESS:
        return 0
    return size if ack_index is None else min(max(ack_index + 1, 0), size)


def to_send_back(queue: ProcessQueue[M], failed: Sequence[M], model: MessageModel) -> list[M]:
    """Return the *failed* messages to send back."""
    if model == "broadcasting":
        return []
    return [message for message in failed if message in queue]


def settle(queue: ProcessQueue[M], batch: Sequence[M], not_sent_back: Collection[M]) -> int:
    """Remove a batch from the queue, except *not_sent_back*; return the removed bytes."""
    if not not_sent_back:
        return queue.remove(batch)
    kept = {message.queue_offset for message in not_sent_back}
    return queue.remove([message for message in batch if message.queue_offset not in kept])
