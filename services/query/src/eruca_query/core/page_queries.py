"""The conditions of a page of messages, and a test whether a message satisfies them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from eruca_query.core.found_messages import FoundMessage, Position

ConsumedState: TypeAlias = Literal["past", "not_yet"]
GroupPositions: TypeAlias = Mapping[tuple[str, int], int]  # by broker and queue: the next offset


@dataclass(frozen=True, slots=True)
class PageQuery:
    """A topic's messages, the newest first."""

    topic: str
    key: bytes | None
    tag: bytes | None
    from_ms: int
    to_ms: int
    group: str | None
    group_state: ConsumedState
    limit: int
    before: Position | None  # the last message of the previous page

    def wants(self, message: FoundMessage) -> bool:
        """Tell whether *message* is on this page or a later one, ignoring the group."""
        return (
            message.topic == self.topic
            and (self.key is None or message.has_key(self.key))
            and (self.tag is None or message.tag == self.tag)
            and self.from_ms <= message.stored_ms <= self.to_ms
            and (self.before is None or message.position < self.before)
        )

    def fits_group(self, message: FoundMessage, positions: GroupPositions) -> bool:
        """Tell whether the group's position fits *group_state* for *message*."""
        if self.group is None:
            return True
        next_offset = positions.get((message.broker_name, message.queue_id))
        is_past = next_offset is not None and message.queue_offset < next_offset
        return is_past == (self.group_state == "past")
