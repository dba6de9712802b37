"""Returned handles: decode them, and decide whether they are still valid.

One invalid handle refuses its whole request, and the error names each invalid handle.
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
from eruca_broker.core.replication.epochs import EpochTable
from eruca_broker.core.replication.log_positions import may_be_of_epoch
from eruca_broker.core.state.group_state import Queue
from eruca_broker.core.state.leases import HandleState, Leases

_NAMED_MAX: Final = 3  # handles that an error names in its detail; its list has all


class HeldDelivery(NamedTuple):
    """A message that its client still has."""

    queue: Queue
    offset: int
    attempt: int
    fence: int


def read_handles(texts: Sequence[str]) -> list[Handle]:
    """Return the content of a request's handles.

    Raises:
        ValidationError: One is not a handle of any broker.
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
    epochs: EpochTable,
    now_ms: int,
    finished: Set[tuple[Queue, int]] = frozenset(),
) -> list[HeldDelivery]:
    """Return the messages of *handles*, all of which still belong to their client.

    Args:
        leases: The leases that are in the log.
        group: The group to which the handles must belong.
        broker_name: The broker's own.
        handles: The handles to check.
        epochs: Of the log.
        now_ms: The wall clock.
        finished: Messages that other requests are about to finish.

    Raises:
        StaleHandleError: One is stale, or not of this group and broker.
        ExpiredHandleError: None is stale, but one has expired.
    """
    held = []
    stale, expired = {}, {}
    for index, handle in enumerate(handles):
        queue = (handle.topic, handle.queue_id)
        if handle.broker_name != broker_name:
            stale[index] = f"belongs to broker {handle.broker_name!r}"
            continue
        if handle.group != group:
            stale[index] = f"belongs to group {handle.group!r}"
            continue
        where = f"message {handle.offset} in queue {handle.queue_id} of {handle.topic!r}"
        if not may_be_of_epoch(epochs, handle.fence, handle.epoch):
            expired[index] = f"has expired: {where} was leased before messages were lost"
            continue
        known = leases.of_queue(group, queue)
        state = HandleState.STALE
        if known is not None and (queue, handle.offset) not in finished:
            state = known.judge(handle.offset, handle.fence, now_ms)
        if state is HandleState.VALID:
            held.append(HeldDelivery(queue, handle.offset, handle.attempt, handle.fence))
        elif state is HandleState.EXPIRED:
            expired[index] = f"has expired: {where} is no longer leased to the client"
        elif (
            known is not None
            and handle.offset in known.unfinished
            and (queue, handle.offset) not in finished
        ):
            stale[index] = f"is superseded: {where} was rejected, or handed out again"
        else:
            stale[index] = f"is stale: {where} is finished, or was reset"
    if stale:
        raise _refusal(StaleHandleError, stale | expired)
    if expired:
        raise _refusal(ExpiredHandleError, expired)
    return held


def _refusal(kind: type[ErucaError], faults: dict[int, str]) -> ErucaError:
    shown = "; ".join(f"handle {i} {fault}" for i, fault in list(faults.items())[:_NAMED_MAX])
    more = len(faults) - _NAMED_MAX
    return kind(
        f"{shown}{f'; and {more} more' if more > 0 else ''}; nothing was changed",
        errors=errors_at("/body/handles", dict(sorted(faults.items()))),
    )
