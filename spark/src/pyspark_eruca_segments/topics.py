"""The topics of a log at its end: since when each has existed. A fold over its control records.

Only snapshots, creations and deletions matter here (``eruca_broker.core.state``). A record of a
topic that lies before the topic's beginning is of a predecessor of that name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

import msgspec
import numpy as np

from eruca.contract.names import EVENTS_TOPIC
from eruca.exporting.errors import SourceError
from pyspark_eruca_segments.copies import LogCopy, Stretch
from pyspark_eruca_segments.objects import reading
from pyspark_eruca_segments.walk import Damaged, Proven, walk

_KIND: Final = re.compile(rb'\{"event":"(?:topic_put|topic_deleted|snapshot)"')


class TopicPut(msgspec.Struct, frozen=True, tag="topic_put", tag_field="event"):
    """A topic was created, or its settings were replaced."""

    topic: str


class TopicDeleted(msgspec.Struct, frozen=True, tag="topic_deleted", tag_field="event"):
    """A topic was deleted."""

    topic: str


class SnapshotTopic(msgspec.Struct, frozen=True):
    """A topic in a snapshot."""

    topic: str
    created_at: int  # log offset


class Snapshot(msgspec.Struct, frozen=True, tag="snapshot", tag_field="event"):
    """One part of the whole state at some moment."""

    part: int  # 1 … parts
    parts: int
    topics: list[SnapshotTopic] = []


TopicEvent: TypeAlias = TopicPut | TopicDeleted | Snapshot
_DECODER: Final[msgspec.json.Decoder[TopicEvent]] = msgspec.json.Decoder(TopicEvent)


def topics_of(copy: LogCopy) -> tuple[Mapping[str, int] | None, list[Damaged]]:
    """Return the log offset from which each topic has existed, and what could not be read.

    None instead of the topics: the log has no snapshot.

    A segment of Eruca's begins with one. So a log that may be RocketMQ's is read only back to the
    first segment that begins with another record, and damage in a segment without any control
    record does not matter here.

    Raises:
        SourceError: A control record cannot be read.
    """
    events: list[tuple[int, TopicEvent]] = []
    damaged: list[Damaged] = []
    for stretch in reversed(copy.stretches):
        found = _read(stretch)
        if copy.may_be_rocketmqs and found.is_foreign and not found.has_control_records:
            return None, damaged
        damaged += found.damaged
        events = found.events + events
        topics = folded(events)
        if topics is not None:
            return topics, damaged
        if copy.may_be_rocketmqs and found.is_foreign:
            return None, damaged
    return None, damaged


def folded(events: Iterable[tuple[int, TopicEvent]]) -> dict[str, int] | None:
    """Return the topics after *events*, given with their log offsets; None: before any snapshot."""
    topics: dict[str, int] | None = None
    parts: list[Snapshot] = []
    for log_offset, event in events:
        match event:
            case Snapshot():
                is_next = event.part == (parts[-1].part + 1 if parts else 1)
                parts = [*parts, event] if is_next else [event] if event.part == 1 else []
                if parts and event.part == event.parts:
                    topics = {one.topic: one.created_at for part in parts for one in part.topics}
                    parts = []
            case TopicPut() if topics is not None:
                topics.setdefault(event.topic, log_offset)
            case TopicDeleted() if topics is not None:
                topics.pop(event.topic, None)
    return topics


@dataclass
class _Found:
    """The control records of a stretch, and what could not be read of it."""

    events: list[tuple[int, TopicEvent]] = field(default_factory=list)
    damaged: list[Damaged] = field(default_factory=list)
    is_foreign: bool = False  # it begins with a record that is no control record
    has_control_records: bool = False


def _read(stretch: Stretch) -> _Found:
    found = _Found()
    with reading(stretch.source) as read:
        for part in walk(read, stretch.begin, stretch.end):
            if isinstance(part, Damaged):
                found.damaged.append(part)
                continue
            if part.columns.log_offsets[0] == stretch.begin:
                found.is_foreign = part.topics[part.numbers[0]] != EVENTS_TOPIC
            found.has_control_records |= EVENTS_TOPIC in part.topics
            found.events += _events_of(part, stretch)
    return found


def _events_of(proven: Proven, stretch: Stretch) -> Iterator[tuple[int, TopicEvent]]:
    if EVENTS_TOPIC not in proven.topics:
        return
    columns = proven.columns
    for row in np.flatnonzero(proven.numbers == proven.topics.index(EVENTS_TOPIC)).tolist():
        begin = int(columns.body_starts[row])
        if not _KIND.match(proven.data, begin):
            continue
        log_offset = int(columns.log_offsets[row])
        try:
            event = _DECODER.decode(proven.data[begin : begin + int(columns.body_sizes[row])])
        except msgspec.DecodeError as error:
            raise SourceError(
                f"{stretch.source.text}: the control record at log offset {log_offset} cannot be"
                f" read: {error}; a later version of the broker has probably written it"
            ) from error
        yield log_offset, event
