"""Snapshots: the whole state as control records, in parts of bounded size.

The state is given as *items*. Each belongs to one of the lists of :class:`StateSnapshot` and has a
weight: the number of ordinary items that it counts for. A new kind of state adds a list there and
yields its items; nothing else needs to change.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from eruca_broker.core.state.dead_letters_state import RedrivenPiece
from eruca_broker.core.state.epoch_events import SnapshotEpoch
from eruca_broker.core.state.group_events import (
    GroupOffsets,
    GroupPieces,
    SnapshotGroup,
    SnapshotSubscription,
)
from eruca_broker.core.state.lease_events import SnapshotLeases
from eruca_broker.core.state.timers_events import TimersPiece
from eruca_broker.core.state.topic_events import QueueEnd, SnapshotTopic
from eruca_broker.core.state.transactions import LiveTransaction

SNAPSHOT_TAG: Final = "snapshot"
T = TypeVar("T")


class StateSnapshot(msgspec.Struct, frozen=True, tag=SNAPSHOT_TAG, tag_field="event"):
    """One part of the whole state at the moment at which part 1 was written.

    The parts of one snapshot follow each other in the log; the snapshot is valid with its last
    part.
    """

    part: int  # 1 … parts
    parts: int
    topics: list[SnapshotTopic] = []
    queue_ends: list[QueueEnd] = []
    groups: list[GroupOffsets] = []
    group_settings: list[SnapshotGroup] = []
    subscriptions: list[SnapshotSubscription] = []
    group_pieces: list[GroupPieces] = []
    timers: list[TimersPiece] = []
    redriven: list[RedrivenPiece] = []
    leases: list[SnapshotLeases] = []
    transactions: list[LiveTransaction] = []
    epochs: list[SnapshotEpoch] = []
    runs: int = 0  # of the broker, in which groups changed; the same in every part
    log_id: str = ""  # distinguishes this log from every other; the same in every part


class SnapshotItem(NamedTuple):
    """An item of a snapshot."""

    field: str  # of StateSnapshot: the list it belongs to
    item: object
    weight: int  # the number of ordinary items that it counts for


def split_snapshot(
    items: Iterable[SnapshotItem], *, items_max: int, runs: int = 0, log_id: str = ""
) -> list[StateSnapshot]:
    """Return the parts of a snapshot, each of at most about *items_max* items.

    An empty state has one empty part.
    """
    assert items_max > 0, "each item would have a part of its own"
    parts: list[dict[str, list[Any]]] = [{}]
    room = items_max
    for field, item, weight in items:
        if room < weight and room < items_max:
            parts.append({})
            room = items_max
        parts[-1].setdefault(field, []).append(item)
        room -= weight
    return [
        StateSnapshot(part=number, parts=len(parts), runs=runs, log_id=log_id, **lists)
        for number, lists in enumerate(parts, 1)
    ]


def pieces(values: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """Yield *values*, at most *size* at a time; an empty sequence yields nothing."""
    for first in range(0, len(values), size):
        yield values[first : first + size]
