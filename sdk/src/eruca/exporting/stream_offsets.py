"""A stream's offsets: where to continue each queue. Pure.

An offset also contains the start of queues that are new in its batch, or that restart after a
loss::

    {"version": 2,
     "first": {"orders/broker-a/0": 0},
     "next": {"orders/broker-a/0": {"offset": 25000, "topic_id": "9f2c51d07ab3e846-1044",
                                    "broker_started_at": "2026-11-21T07:58:12.404Z",
                                    "latest_stored_at": "2026-11-21T08:00:09.871Z"}}}

So a batch is determined by its own offset and the one before, regardless of retention and new
queues. If it is repeated, it has the same rows. A queue's offset decreases only after a loss, see
:mod:`.positions`.

Version 1 had only offsets, without topic ids.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Self

from eruca.exporting.errors import DataLossError, OptionError, SourceError
from eruca.exporting.positions import Lost, Position
from eruca.exporting.ranges import Held, Queue, Range, share_out
from eruca.exporting.topic_choice import TopicChoice

VERSION: Final = 2
GO_ON: Final = (
    "to continue with the present messages, set failOnDataLoss=false (commands: --allow-loss)"
)
_OTHER_CHECKPOINT: Final = "use another checkpoint, and set its start with startingOffsets"
_SHOWN_SIZE: Final = 120  # characters of an unexpected value


@dataclass(frozen=True, slots=True)
class StreamOffset:
    """Positions of all queues, and the starts of queues that are new in this batch."""

    first: Mapping[Queue, int] = field(default_factory=dict)
    next: Mapping[Queue, Position] = field(default_factory=dict)
    version: int = VERSION

    @classmethod
    def parse(cls, document: object) -> Self:
        """Return the offset in a checkpoint's document.

        Raises:
            SourceError: It belongs to another source, or to another version.
        """
        if not isinstance(document, dict) or not {"first", "next"} <= document.keys():
            raise SourceError(
                "the checkpoint belongs to another source: expected an offset with version,"
                f" first and next, found {_shown(document)}; {_OTHER_CHECKPOINT}"
            )
        version = document.get("version", 1)
        if version not in (1, VERSION):
            raise SourceError(
                f"the checkpoint has offsets of version {version!r}, expected {VERSION}: update"
                f" this source, or {_OTHER_CHECKPOINT}"
            )
        try:
            first = {Queue.parse(name): _offset(one) for name, one in document["first"].items()}
            following = {
                Queue.parse(name): Position(_offset(one)) if version == 1 else _position(one)
                for name, one in document["next"].items()
            }
        except (AttributeError, KeyError, TypeError, ValueError, OptionError) as error:
            raise SourceError(
                f"the checkpoint has an invalid offset ({error}): {_shown(document)}; "
                f"{_OTHER_CHECKPOINT}"
            ) from error
        return cls(first, following, version)

    def to_json(self) -> dict[str, Any]:
        """Return the form that is stored in a checkpoint.

        The empty offset contains its version, too: a bare ``{}`` is not ours.
        """
        return {
            "version": VERSION,
            "first": {queue.text: offset for queue, offset in sorted(self.first.items())},
            "next": {queue.text: one._asdict() for queue, one in sorted(self.next.items())},
        }

    @property
    def topics(self) -> set[str]:
        """The topics of the queues."""
        return {queue.topic for queue in self.next}

    def faults(self, topics: TopicChoice) -> list[str]:
        """Return why a stream of *topics* should not continue here; empty if it may."""
        faults = []
        others = sorted(topic for topic in self.topics if topic not in topics)
        if others:
            faults.append(
                f"the checkpoint belongs to {', '.join(others)}, which the stream of"
                f" {topics.text} does not read"
            )
        if self.version == 1:
            faults.append(
                "the checkpoint was written by an earlier version, which did not store the"
                " topic's id: its offsets are wrong if the topic was created again, or a log"
                " was replaced, since then"
            )
        return faults


class Advance(NamedTuple):
    """A stream's next offset, and the losses before it."""

    offset: StreamOffset
    losses: list[DataLossError]


def batch_ranges(start: StreamOffset, end: StreamOffset) -> list[Range]:
    """Return the ranges between two offsets of a stream, without empty ranges.

    Raises:
        SourceError: No stream has written *end* after *start*: a queue is missing, or its offset
            decreases.
    """
    if start == end:
        return []  # its "first" belongs to the batch before
    if missing := sorted(start.next.keys() - end.next.keys()):
        raise SourceError(
            f"the checkpoint is damaged: expected an offset of {missing[0].text} as in the"
            f" batch before, found none; {_OTHER_CHECKPOINT}"
        )
    ranges = []
    for queue, position in sorted(end.next.items()):
        before = start.next.get(queue)
        from_offset = end.first.get(queue, None if before is None else before.offset)
        if from_offset is None:
            raise SourceError(f"the offset does not contain the start of {queue.text}")
        if from_offset > position.offset:
            raise SourceError(
                f"the checkpoint is damaged: expected offset {from_offset} or more of "
                f"{queue.text}, found {position.offset}; {_OTHER_CHECKPOINT}"
            )
        if from_offset < position.offset:
            ranges.append(Range(queue, from_offset, position.offset, position.topic_id))
    return ranges


def next_offset(
    start: StreamOffset,
    held: Mapping[Queue, Held],
    *,
    begin: Callable[[Queue, Held], int],
    rows_max: int | None,
    lost: Mapping[Queue, Lost],
) -> Advance:
    """Return the offset of a stream's next batch; *start* itself if there is nothing to read.

    Args:
        start: The offset of the last batch; empty at first.
        held: The queues' present offsets.
        begin: Returns the start of a queue that exists at first. A later queue is read completely.
        rows_max: Maximum number of messages; None: no limit.
        lost: Queues that do not have the messages read before any more.
    """
    is_first = not start.next
    began: dict[Queue, int] = {}
    available: dict[Queue, int] = {}
    losses: list[DataLossError] = []
    for queue, now in sorted(held.items()):
        known = start.next.get(queue)
        if known is None:
            position = begin(queue, now) if is_first else now.min_offset
            # Stored even if the queue is still empty: "latest" means its present end.
            began[queue] = position
        elif queue in lost:
            position = began[queue] = lost[queue].offset
            losses.append(DataLossError(f"{queue.text}: {lost[queue].reason}; {GO_ON}"))
        elif known.offset < now.min_offset:
            losses.append(data_loss(queue, known.offset, now.min_offset))
            position = began[queue] = now.min_offset
        else:
            position = known.offset
        available[queue] = max(0, now.end - position)
    shares = share_out(available, sum(available.values()) if rows_max is None else rows_max)
    positions = dict(start.next)
    first = {}
    for queue, rows in shares.items():
        before = start.next.get(queue)
        if rows or (queue in began and (before is not None or is_first)):
            now = held[queue]
            origin = began[queue] if queue in began else positions[queue].offset
            positions[queue] = Position(
                origin + rows, now.topic_id, now.broker_started_at, now.latest_stored_at
            )
            if queue in began:
                first[queue] = origin
    if positions == start.next:
        return Advance(start, losses)
    return Advance(StreamOffset(first, positions), losses)


def data_loss(queue: Queue, wanted: int, left: int) -> DataLossError:
    """Return the error that names the deleted messages."""
    return DataLossError(
        f"{queue.text}: messages {wanted} to {left - 1} were deleted, by retention or with"
        f" their topic, before they were read; {GO_ON}"
    )


def _offset(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError(f"expected an offset, found {value!r}")
    return value


def _position(value: dict[str, Any]) -> Position:
    position = Position(**value)
    _offset(position.offset)
    if not all(text is None or isinstance(text, str) for text in position[1:]):
        raise ValueError(f"expected texts, found {value!r}")
    return position


def _shown(document: object) -> str:
    text = json.dumps(document, default=str)
    return text if len(text) <= _SHOWN_SIZE else text[:_SHOWN_SIZE] + "…"
