"""The states of a replica that follows a master, in one epoch.

A replica that has proved its lineage stays proved for the epoch, so a lost connection is no event:
the same fetch is repeated. It proves itself again if the master does not know it, or has sent what
does not continue its log.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from eruca_chassis.machines import Machine


class FollowState(StrEnum):
    """The present work of a follower."""

    PROVING = "proving lineage"
    CUTTING = "cutting"
    FOLLOWING = "following"
    HALTED = "halted"
    REFUSED = "refused"


class FollowEvent(StrEnum):
    """An event that changes it."""

    PROVED = "proved"
    LONGER = "longer"
    DOUBTED = "doubted"
    DISK_FAILED = "disk failed"
    ROOM = "room"
    FOREIGN = "foreign"
    RETRY = "retry"


FOLLOWING: Final = Machine(
    (FollowState.PROVING, FollowEvent.PROVED, FollowState.FOLLOWING),
    (FollowState.PROVING, FollowEvent.LONGER, FollowState.CUTTING),
    (FollowState.PROVING, FollowEvent.FOREIGN, FollowState.REFUSED),
    (FollowState.PROVING, FollowEvent.DISK_FAILED, FollowState.HALTED),
    (FollowState.FOLLOWING, FollowEvent.DOUBTED, FollowState.PROVING),
    (FollowState.FOLLOWING, FollowEvent.DISK_FAILED, FollowState.HALTED),
    (FollowState.HALTED, FollowEvent.ROOM, FollowState.PROVING),
    (FollowState.REFUSED, FollowEvent.RETRY, FollowState.PROVING),
)
