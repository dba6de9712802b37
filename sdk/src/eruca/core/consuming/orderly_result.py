"""What becomes of a batch that an orderly handler is through with, and when the next may come.

The handler's status decides, with or without automatic commits::

    status     auto_commit                     not auto_commit
    SUCCESS    commit, go on                   keep, go on: it stays uncommitted
    COMMIT     as SUCCESS                      commit everything taken, go on
    ROLLBACK   as SUCCESS                      put back everything taken, suspend
    SUSPEND    put the batch back, suspend     put the batch back, suspend

Before SUSPEND takes effect each message's retries are counted: one that has had them all is sent to
the dead letters, any other has one more. Where all of a batch went to the dead letters there is
nothing to put back, and the queue goes on. (RocketMQ puts a batch back as a whole, those that were
dead-lettered included, which then get there twice; a consumer takes them out.)

The count of retries is kept by the consumer, not in the log: it starts anew when the queue moves.

Source: RocketMQ 5.3, ``ConsumeMessageOrderlyService``, ``ProcessQueue.isLockExpired``.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Final

from eruca.core.consuming.consume_status import ConsumeStatus

if TYPE_CHECKING:
    from eruca.contract.groups import MessageModel

SUSPEND_SECONDS_DEFAULT: Final = 1.0
SUSPEND_SECONDS_MIN: Final = 0.01
SUSPEND_SECONDS_MAX: Final = 30.0
CONTINUOUS_SECONDS_MAX: Final = 60.0  # of one queue at a stretch; then others get their turn
TURN_SECONDS: Final = 0.01  # that it steps back for then
LOCK_LOOK_SECONDS: Final = 0.1  # between two looks whether a queue is locked again


class Action(StrEnum):
    """What to do with a batch."""

    COMMIT = "commit"  # everything taken is done with
    KEEP = "keep"  # it stays uncommitted
    PUT_BACK = "put_back"  # the batch is handled again after the suspend time
    ROLL_BACK = "roll_back"  # so is everything taken


class Gate(StrEnum):
    """Whether a queue's next batch may be handled."""

    OPEN = "open"
    WAIT = "wait"  # not locked just now: look again after LOCK_LOOK_SECONDS
    SHUT = "shut"  # the queue has been taken away


_AUTOMATIC: Final = {
    ConsumeStatus.SUCCESS: Action.COMMIT,
    ConsumeStatus.COMMIT: Action.COMMIT,
    ConsumeStatus.ROLLBACK: Action.COMMIT,
    ConsumeStatus.SUSPEND: Action.PUT_BACK,
}
_BY_HAND: Final = {
    ConsumeStatus.SUCCESS: Action.KEEP,
    ConsumeStatus.COMMIT: Action.COMMIT,
    ConsumeStatus.ROLLBACK: Action.ROLL_BACK,
    ConsumeStatus.SUSPEND: Action.PUT_BACK,
}


def action_of(status: ConsumeStatus, *, auto_commit: bool) -> Action:
    """Return what a status asks for."""
    return (_AUTOMATIC if auto_commit else _BY_HAND)[status]


def action_if_all_dead(*, auto_commit: bool) -> Action:
    """Return what to do instead of PUT_BACK where the whole batch went to the dead letters."""
    return Action.COMMIT if auto_commit else Action.KEEP


def is_exhausted(reconsume_times: int, retry_max_times: int | None) -> bool:
    """Tell whether a message has had all of its retries; None: there is no limit."""
    return retry_max_times is not None and reconsume_times >= retry_max_times


def suspend_seconds(asked: float | None, default: float) -> float:
    """Return how long to suspend: what the handler asked for, or the default, within bounds."""
    wanted = default if asked is None else asked
    return min(max(wanted, SUSPEND_SECONDS_MIN), SUSPEND_SECONDS_MAX)


def gate(
    model: MessageModel,
    *,
    is_dropped: bool,
    is_locked: bool,
    lock_age_seconds: float,
    lock_seconds: float,
) -> Gate:
    """Return whether the next batch may be handled.

    Args:
        model: In broadcasting nobody else reads the queue, and no lock is needed.
        is_dropped: Whether the queue has been taken away.
        is_locked: Whether the broker granted the lock.
        lock_age_seconds: Since its last renewal was sent.
        lock_seconds: How long a renewal lasts.
    """
    if is_dropped:
        return Gate.SHUT
    if model == "broadcasting" or (is_locked and lock_age_seconds <= lock_seconds):
        return Gate.OPEN
    return Gate.WAIT


def must_step_back(seconds: float) -> bool:
    """Tell whether a queue that was handled for so long at a stretch lets others have a turn."""
    return seconds > CONTINUOUS_SECONDS_MAX
