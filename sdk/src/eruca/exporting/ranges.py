"""Queues, ranges of their messages, and the distribution of ranges over tasks. Pure.

Queues have no gaps, so a range fully describes what a task reads.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from eruca.exporting.errors import OptionError

PARTITION_RANGES_MAX: Final = 128  # in one request; limits the length of its URL
_QUEUE: Final = re.compile(r"([^/]+)/([^/]+)/([0-9]{1,9})")


class Queue(NamedTuple):
    """A message queue."""

    topic: str
    broker_name: str
    queue_id: int

    @property
    def text(self) -> str:
        """The name of the queue in offsets: ``orders/broker-a/0``."""
        return f"{self.topic}/{self.broker_name}/{self.queue_id}"

    @classmethod
    def parse(cls, text: str) -> Queue:
        """Return the queue with the name *text*.

        Raises:
            OptionError: The text is not a queue's name.
        """
        found = _QUEUE.fullmatch(text)
        if found is None:
            raise OptionError(f"expected a queue as TOPIC/BROKER/QUEUE, found {text!r}")
        return cls(found[1], found[2], int(found[3]))


class Range(NamedTuple):
    """Messages of one queue: from an offset up to, but not including, another."""

    queue: Queue
    start: int
    end: int
    topic_id: str | None = None  # of the messages' topic; None: unknown

    @property
    def rows(self) -> int:
        """The number of messages."""
        return self.end - self.start

    @property
    def text(self) -> str:
        """Its name in texts: ``broker-a/0:1000-2500``."""
        return f"{self.queue.broker_name}/{self.queue.queue_id}:{self.start}-{self.end}"

    @property
    def request_text(self) -> str:
        """Its name in requests, followed by the topic's id, so that no other topic is read."""
        return self.text if self.topic_id is None else f"{self.text}@{self.topic_id}"

    def to_json(self) -> dict[str, Any]:
        """Return the form that manifests and the option ``ranges`` have."""
        return {
            **self.queue._asdict(),
            "from_offset": self.start,
            "to_offset": self.end,
            "topic_id": self.topic_id,
        }

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Range:
        """Return the range in a document.

        Raises:
            KeyError: A field is missing.
            ValueError: A field is invalid.
        """
        queue = Queue(document["topic"], document["broker_name"], int(document["queue_id"]))
        start, end = int(document["from_offset"]), int(document["to_offset"])
        if not 0 <= start <= end:
            raise ValueError(f"expected 0 <= from_offset <= to_offset, found {start} and {end}")
        return cls(queue, start, end, document.get("topic_id"))  # earlier versions had no id


class Held(NamedTuple):
    """The part of a plan for one queue."""

    start: int  # of the requested messages
    end: int
    min_offset: int
    max_offset: int
    topic_id: str | None = None
    broker_started_at: str | None = None
    latest_stored_at: str | None = None


class LogEnd(NamedTuple):
    """The end of a broker group's log at a plan, and its last record's epoch; None: unknown."""

    epoch: int | None
    log_offset: int | None


UNKNOWN_END: Final = LogEnd(None, None)


def least_ends(plans: Iterable[Mapping[str, LogEnd]]) -> dict[str, LogEnd]:
    """Return the log end of each broker group that all *plans* reach.

    Topics are planned one after the other, so a later plan's end is behind messages that an earlier
    plan does not have. A plan does not name brokers without queues of its topic.
    """
    least: dict[str, LogEnd] = {}
    for plan in plans:
        for name, end in plan.items():
            known = least.setdefault(name, end)
            if known.log_offset is None or end.log_offset is None:
                least[name] = UNKNOWN_END
            elif end.log_offset < known.log_offset:
                least[name] = end
    return least


def pack(
    ranges: Iterable[Range],
    partition_rows: int,
    *,
    count_min: int = 1,
    ranges_max: int = PARTITION_RANGES_MAX,
) -> list[tuple[Range, ...]]:
    """Return *ranges* in shares of equal size, at most *partition_rows* each; one per task.

    Long ranges are split, short ones are packed together. No share mixes topics, because a task
    that writes a lake writes a file for each topic. There are at least *count_min* shares, if there
    are so many messages.
    """
    ranges = list(ranges)
    total = sum(one.rows for one in ranges)
    partition_rows = max(1, min(partition_rows, total // count_min))
    by_topic: dict[str, list[Range]] = {}
    for one in sorted(ranges):
        if one.rows > 0:
            by_topic.setdefault(one.queue.topic, []).append(one)
    shares: list[tuple[Range, ...]] = []
    for todo in by_topic.values():
        rows = sum(one.rows for one in todo)
        room_max = math.ceil(rows / math.ceil(rows / partition_rows))
        share: list[Range] = []
        room = room_max
        for one in todo:
            start = one.start
            while start < one.end:
                end = min(one.end, start + room)
                share.append(one._replace(start=start, end=end))
                room -= end - start
                start = end
                if room == 0 or len(share) == ranges_max:
                    shares.append(tuple(share))
                    share, room = [], room_max
        if share:
            shares.append(tuple(share))
    return shares


def share_out(available: Mapping[Queue, int], rows_max: int) -> dict[Queue, int]:
    """Return the number of messages to read from each queue, so that all queues progress alike."""
    total = sum(available.values())
    if total <= rows_max:
        return dict(available)
    shares = {queue: rows * rows_max // total for queue, rows in available.items()}
    left = rows_max - sum(shares.values())
    for queue in sorted(available):
        more = min(left, available[queue] - shares[queue])
        shares[queue] += more
        left -= more
    return shares
