"""A stint of an orderly consumer: messages handled one after the other, and committed together.

It is for *simple* handlers: async functions of one message without a context, whose success commits
the message. Nothing is made for a message but the handler's coroutine. The messages that succeeded
are committed at the end of the stint, or as soon as a handler waits.
"""

from __future__ import annotations

import time
from collections import deque
from functools import partial
from typing import Final

from eruca.aio.push.calling import Calls, Outcome
from eruca.aio.push.held_queue import HeldQueue
from eruca.core.consuming.handler_table import Registration
from eruca.core.consuming.ordered_queue import OrderedQueue
from eruca.core.consuming.push_settings import PushSettings
from eruca.core.messages.received_message import ReceivedMessage

STINT_COUNT: Final = 64  # messages, at most: those that are not handled are put back


def is_simple(settings: PushSettings, handler: Registration) -> bool:
    """Tell whether stints are for *handler*, as far as it and the settings decide."""
    return (
        settings.batch_count_max == 1
        and settings.offsets.auto_commit
        and handler.is_async
        and not handler.takes_context
    )


async def work_through(
    calls: Calls,
    held: HeldQueue,
    queue: OrderedQueue[ReceivedMessage],
    handler: Registration,
    *,
    ends_at: float,
) -> tuple[ReceivedMessage, Outcome] | None:
    """Handle the next messages of *queue*; put back those that no handler has had.

    Return the first message that did not succeed, which stays taken, and its outcome.

    Args:
        calls: Calls the handler.
        held: The queue's state at this member.
        queue: Its messages; at least one.
        handler: Theirs.
        ends_at: No message begins later, by the monotonic clock.
    """
    left = deque(queue.take(STINT_COUNT, time.monotonic()))
    settle = partial(_settle, held, queue)
    if held.session is not None:
        ends_at = min(ends_at, held.session.expires_at)
    try:
        failed = await calls.call_each(handler, left, held, ends_at=ends_at, settle=settle)
    finally:
        settle()
    if not held.is_dropped:
        queue.put_back(list(left))
    return failed


def _settle(held: HeldQueue, queue: OrderedQueue[ReceivedMessage]) -> None:
    """Commit a queue's finished messages."""
    finished = held.finished
    if finished:
        if not held.is_dropped:
            held.freed(queue.commit(finished))
        finished.clear()
