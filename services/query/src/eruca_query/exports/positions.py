"""Positions: decide whether a queue still holds the messages that a reader has read. Pure."""

from __future__ import annotations

from typing import NamedTuple


class Resumed(NamedTuple):
    """The new position of a queue that cannot continue at the given one."""

    offset: int
    reason: str


def another_topic(topic: str, known: str, now: str | None) -> str | None:
    """Return why a topic is another one than was known; None: it is the same, as far as known.

    Args:
        topic: Its name.
        known: Its id at that time.
        now: Its id now; None: its broker's version does not report it.
    """
    if now is None or now == known:
        return None
    if now.partition("-")[0] != known.partition("-")[0]:
        return f"the broker has another log now, with another topic {topic} (id {now}, not {known})"
    return f"topic {topic} was deleted and created again (its id is {now}, not {known})"


def resumed(
    topic: str,
    offset: int,
    *,
    another: str | None,
    min_offset: int,
    max_offset: int,
    later_offset: int | None,
) -> Resumed | None:
    """Return the position at which a queue continues instead of *offset*; None: at *offset*.

    Args:
        topic: Its name.
        offset: The position at which the reader continues.
        another: Why the topic is another one; None: it is the same.
        min_offset: Of the first message present.
        max_offset: Of the next message.
        later_offset: Of the first message stored after everything that the reader has read; None:
            that time is unknown.
    """
    count = max_offset - min_offset
    if another is not None:
        there = f"messages {min_offset} to {max_offset - 1}" if count else "no message yet"
        return Resumed(
            min_offset,
            f"{another}: the earlier one's messages from offset {offset} on are lost; the new one "
            f"has {there}",
        )
    if max_offset < offset:
        return Resumed(
            max_offset,
            f"expected messages up to offset {offset - 1}, and the queue ends at {max_offset}: the "
            "log was truncated, or restored from an older copy, or the start is for another "
            "queue; messages stored from now on can be read",
        )
    if later_offset is None or later_offset >= offset:
        return None
    return Resumed(
        max(later_offset, min_offset),
        f"the log was restored from an older copy, or truncated: the earlier messages "
        f"{later_offset} to {offset - 1} are lost; {max_offset - later_offset} others have been "
        f"stored since, from offset {later_offset} on",
    )
