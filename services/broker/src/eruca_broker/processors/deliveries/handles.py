"""Handles that come back: what they name, and whether they still count.

One that does not spoils its request: nothing of it is done, and the error names each of them.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import Final, NamedTuple

from eruca.contract.errors import (
    ErucaError,
    ExpiredHandleError,
    StaleHandleError,
    ValidationError,
    errors_at,
)
from eruca_broker.core.consuming.lease_handles import Handle, MalformedHandleError, decode_handle
from eruca_broker.core.state.group_state import Queue
from eruca_broker.core.state.leases import HandleState, Leases

_NAMED_MAX: Final = 3  # handles an error names in its detail; all are in its list


class HeldDelivery(NamedTuple):
    """A message its client still has."""

    queue: Queue
    offset: int
    attempt: int
    fence: int


def read_handles(texts: Sequence[str]) -> list[Handle]:
    """Return what the handles of a request say.

    Raises:
        ValidationError: One is no handle of any broker.
    """
    handles = []
    faults = {}
    for index, text in enumerate(texts):
        try:
            handles.append(decode_handle(text))
        except MalformedHandleError as error:
            faults[index] = str(error)
    if faults:
        raise _refusal(ValidationError, faults)
    return handles


def check_handles(
    leases: Leases,
    group: str,
    broker_name: str,
    handles: Sequence[Handle],
    *,
    now_ms: int,
    finished: Set[tuple[Queue, int]] = frozenset(),
) -> list[HeldDelivery]:
    """Return the messages that *handles* stand for, which are all still their client's.

    Args:
        leases: As they are in the log.
        group: Whose handles these must be.
        broker_name: The broker's own.
        handles: To be looked at.
        now_ms: The wall clock.
        finished: Messages that are about to be finished by others.

    Raises:
        StaleHandleError: One is superseded, done, or not of this group and broker.
        ExpiredHandleError: None is that, but the time of one is over.
    """
    held = []
    stale, expired = {}, {}
    for index, handle in enumerate(handles):
        queue = (handle.topic, handle.queue_id)
        if handle.broker_name != broker_name:
            stale[index] = f"is of broker {handle.broker_name!r}"
            continue
        if handle.group != group:
            stale[index] = f"is of group {handle.group!r}"
            continue
        known = leases.of_queue(group, queue)
        state = HandleState.STALE
        if known is not None and (queue, handle.offset) not in finished:
            state = known.judge(handle.offset, handle.fence, now_ms)
        where = f"message {handle.offset} in queue {handle.queue_id} of {handle.topic!r}"
        if state is HandleState.VALID:
            held.append(HeldDelivery(queue, handle.offset, handle.attempt, handle.fence))
        elif state is HandleState.EXPIRED:
            expired[index] = f"is too late: {where} is no longer the client's"
        elif (
            known is not None
            and handle.offset in known.unfinished
            and (queue, handle.offset) not in finished
        ):
            stale[index] = f"is superseded: {where} was given up, or handed out again"
        else:
            stale[index] = f"is of {where}, which is done, or was reset"
    if stale:
        raise _refusal(StaleHandleError, stale | expired)
    if expired:
        raise _refusal(ExpiredHandleError, expired)
    return held


def _refusal(kind: type[ErucaError], faults: dict[int, str]) -> ErucaError:
    shown = "; ".join(f"handle {i} {fault}" for i, fault in list(faults.items())[:_NAMED_MAX])
    more = len(faults) - _NAMED_MAX
    return kind(
        f"{shown}{f'; and {more} more' if more > 0 else ''}; nothing has been done",
        errors=errors_at("/body/handles", dict(sorted(faults.items()))),
    )
