"""Control records: every change of the broker's state, as it stands in the log.

A control record is an ordinary message of the system topic ``ERUCA_SYS_EVENTS``, queue 0. Its tag
names the kind of event and its body is the event in JSON, so the log can be read with any tool.
The broker's state is a fold over them (:mod:`eruca_broker.core.state`) and over nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeAlias

import msgspec

from eruca.contract.names import EVENTS_TOPIC
from eruca.contract.properties import TAGS, encode_properties
from eruca.contract.records import Host, Record, encode_record

EVENTS_QUEUE_ID: Final = 0
SNAPSHOT_TAG: Final = "snapshot"


class TopicPut(msgspec.Struct, frozen=True, tag="topic_put", tag_field="event"):
    """A topic was created or its settings were replaced."""

    topic: str
    read_queue_count: int
    write_queue_count: int
    permission: str
    ordered: bool = False


class TopicDeleted(msgspec.Struct, frozen=True, tag="topic_deleted", tag_field="event"):
    """A topic was deleted: its queues, and every group's offsets in them, are gone.

    A topic of the same name created later starts anew at offset 0.
    """

    topic: str


class CommittedOffset(msgspec.Struct, frozen=True, array_like=True):
    """A group's position in one queue: the next offset it will read."""

    topic: str
    queue_id: int
    offset: int


class OffsetsCommitted(msgspec.Struct, frozen=True, tag="offsets_committed", tag_field="event"):
    """A group stored its positions; they may go backwards."""

    group: str
    offsets: list[CommittedOffset]


class SnapshotTopic(msgspec.Struct, frozen=True):
    """A topic in a snapshot."""

    topic: str
    read_queue_count: int
    write_queue_count: int
    permission: str
    ordered: bool
    created_at: int  # log offset of the event that created it


class QueueEnd(msgspec.Struct, frozen=True, array_like=True):
    """The offset a queue's next message gets: not to be learnt from a log cut by retention."""

    topic: str
    queue_id: int
    next_offset: int


class GroupOffsets(msgspec.Struct, frozen=True, array_like=True):
    """All positions of a group, or some of them where they fill several parts."""

    group: str
    offsets: list[CommittedOffset]


class StateSnapshot(msgspec.Struct, frozen=True, tag=SNAPSHOT_TAG, tag_field="event"):
    """One part of the whole state as it was when part 1 was written.

    The parts of one snapshot follow each other in the log; only the last one makes it valid.
    """

    part: int  # 1 … parts
    parts: int
    topics: list[SnapshotTopic] = []
    queue_ends: list[QueueEnd] = []
    groups: list[GroupOffsets] = []


Event: TypeAlias = TopicPut | TopicDeleted | OffsetsCommitted | StateSnapshot

_ENCODER: Final = msgspec.json.Encoder()
_DECODER: Final[msgspec.json.Decoder[Event]] = msgspec.json.Decoder(Event)


class UnknownEventError(ValueError):
    """A control record that this version cannot read: written by a newer one, or damaged."""


def event_tag(event: Event) -> str:
    """Return the tag of the event's control record."""
    return str(event.__struct_config__.tag)


def encode_event(event: Event, *, now_ms: int, host: Host) -> bytes:
    """Return the control record of *event*; its offsets and store time are still to be stamped."""
    return encode_record(
        Record(
            topic=EVENTS_TOPIC,
            body=_ENCODER.encode(event),
            queue_id=EVENTS_QUEUE_ID,
            born_timestamp=now_ms,
            born_host=host,
            store_host=host,
            properties=encode_properties({TAGS: event_tag(event)}),
        )
    )


def decode_event(body: bytes) -> Event:
    """Return the event of a control record's body.

    Raises:
        UnknownEventError: The body is no event this version knows.
    """
    try:
        return _DECODER.decode(body)
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise UnknownEventError(f"unreadable control record: {error}") from error


def split_snapshot(
    topics: Sequence[SnapshotTopic],
    queue_ends: Sequence[QueueEnd],
    groups: Sequence[GroupOffsets],
    *,
    items_max: int,
) -> list[StateSnapshot]:
    """Return the parts of a snapshot, each of at most about *items_max* items.

    A group's offsets may be spread over several parts; an empty state has one empty part.
    """
    group_pieces = [
        GroupOffsets(group.group, group.offsets[first : first + items_max])
        for group in groups
        for first in range(0, max(len(group.offsets), 1), items_max)
    ]
    parts: list[tuple[list[SnapshotTopic], list[QueueEnd], list[GroupOffsets]]] = [([], [], [])]
    room = items_max

    def place(kind: int, item: SnapshotTopic | QueueEnd | GroupOffsets, weight: int) -> None:
        nonlocal room
        if room < weight and room < items_max:
            parts.append(([], [], []))
            room = items_max
        parts[-1][kind].append(item)  # type: ignore[arg-type]  # kind picks the list of its type
        room -= weight

    for topic in topics:
        place(0, topic, 1)
    for end in queue_ends:
        place(1, end, 1)
    for piece in group_pieces:
        place(2, piece, max(len(piece.offsets), 1))
    return [
        StateSnapshot(
            part=number, parts=len(parts), topics=part[0], queue_ends=part[1], groups=part[2]
        )
        for number, part in enumerate(parts, 1)
    ]
