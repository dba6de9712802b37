"""What becomes of a batch that a concurrent handler is through with.

1. The handler's status and its ack index split the batch: messages up to the ack index are done
   with, the rest has failed. A status other than SUCCESS fails all of it.
2. What has failed is sent back, to be retried after a delay: :func:`to_send_back`. In broadcasting
   nobody takes it back; it is dropped.
3. :func:`settle` removes from the process queue what is done with or was sent back. What could not
   be sent back stays, counts a further attempt, and is handled again after ``AGAIN_SECONDS``.

A queue that was taken away meanwhile is left alone: its next owner has these messages now. Messages
that are no longer in the process queue, because their time limit sent them back, are passed over.

Source: RocketMQ 5.3, ``ConsumeMessageConcurrentlyService.processConsumeResult``.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Final

from eruca.core.consuming.consume_status import ConsumeStatus
from eruca.core.consuming.process_queue import M, ProcessQueue

if TYPE_CHECKING:
    from eruca.contract.groups import MessageModel

AGAIN_SECONDS: Final = 5.0  # until what could not be sent back is handled again


def acknowledged_count(status: ConsumeStatus, ack_index: int | None, size: int) -> int:
    """Return how many of a batch's messages, from the first on, are done with.

    Args:
        status: The handler's verdict.
        ack_index: Index of the last message that is done with; None for all; below 0 for none.
        size: Messages in the batch.
    """
    if status is not ConsumeStatus.SUCCESS:
        return 0
    return size if ack_index is None else min(max(ack_index + 1, 0), size)


def to_send_back(queue: ProcessQueue[M], failed: Sequence[M], model: MessageModel) -> list[M]:
    """Return which of the *failed* messages are sent back."""
    if model == "broadcasting":
        return []
    return [message for message in failed if message in queue]


def settle(queue: ProcessQueue[M], batch: Sequence[M], not_sent_back: Collection[M]) -> int:
    """Remove a batch from the queue, but for what could not be sent back; return its bytes."""
    if not not_sent_back:
        return queue.remove(batch)
    kept = {message.queue_offset for message in not_sent_back}
    return queue.remove([message for message in batch if message.queue_offset not in kept])
