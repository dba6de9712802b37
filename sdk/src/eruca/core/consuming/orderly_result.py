"""Handle the result of an orderly handler, and decide when the next batch may start.

The handler's status decides, with or without automatic commits::

    status     auto_commit                     not auto_commit
    SUCCESS    commit, go on                   keep, go on: it stays uncommitted
    COMMIT     as SUCCESS                      commit everything taken, go on
    ROLLBACK   as SUCCESS                      put back everything taken, suspend
    SUSPEND    put the batch back, suspend     put the batch back, suspend

SUSPEND first counts each message's retries: a message that has used them up becomes a dead letter,
any other counts one more. If a whole batch becomes dead letters, there is nothing to put back, and
the queue proceeds. (RocketMQ puts back the whole batch, including the new dead letters, so these
are stored twice; this consumer removes them.)

The consumer counts the retries, not the log: the count restarts when the queue changes its owner.

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
CONTINUOUS_SECONDS_MAX: Final = 60.0  # of one queue without a break; then others get a turn
TURN_SECONDS: Final = 0.01  # length of that break
LOCK_LOOK_SECONDS: Final = 0.1  # between two checks whether a queue is locked again


class Action(StrEnum):
    """The consumer's action on a batch."""

    COMMIT = "commit"  # commit all taken messages
    KEEP = "keep"  # leave the batch uncommitted
    PUT_BACK = "put_back"  # handle the batch again after the suspend time
    ROLL_BACK = "roll_back"  # handle all taken messages again after the suspend time


class Gate(StrEnum):
    """The permission to handle a queue's next batch."""

    OPEN = "open"
    WAIT = "wait"  # not locked now: check again after LOCK_LOOK_SECONDS
    SHUT = "shut"  # the member has lost the queue


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
    """Return the action for a handler's status."""
    return (_AUTOMATIC if auto_commit else _BY_HAND)[status]


def action_if_all_dead(*, auto_commit: bool) -> Action:
    """Return the action that replaces PUT_BACK if the whole batch became dead letters."""
    return Action.COMMIT if auto_commit else Action.KEEP


def is_exhausted(reconsume_times: int, retries_max: int | None) -> bool:
    """Return whether a message has used up its retries; None: there is no limit."""
    return retries_max is not None and reconsume_times >= retries_max


def suspend_seconds(asked: float | None, default: float) -> float:
    """Return the time to suspend: the handler's or the default, within bounds."""
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
        model: With broadcasting no other member reads the queue, and no lock is needed.
        is_dropped: True if the member has lost the queue.
        is_locked: True if the broker granted the lock.
        lock_age_seconds: Time since the last renewal was sent.
        lock_seconds: Time that a renewal lasts.
    """
    if is_dropped:
        return Gate.SHUT
    if model == "broadcasting" or (is_locked and lock_age_seconds <= lock_seconds):
        return Gate.OPEN
    return Gate.WAIT


def must_step_back(seconds: float) -> bool:
    """Return whether a queue handled for *seconds* without a break must let others have a turn."""
    return seconds > CONTINUOUS_SECONDS_MAX
