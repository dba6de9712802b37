"""Positions: whether a queue still holds what a reader has read of it. Pure."""

from __future__ import annotations

from typing import NamedTuple


class Resumed(NamedTuple):
    """New position of a queue that cannot go on at the position that was given."""

    offset: int
    reason: str


def another_topic(topic: str, known: str, now: str | None) -> str | None:
    """Return why a topic is not the one that was known; None: it is, as far as can be told.

    Args:
        topic: Its name.
        known: Its id at that time.
        now: Its id now; None: its broker is of a version that does not tell.
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
    """Return where a queue goes on instead of at *offset*; None: it goes on there.

    Args:
        topic: Its name.
        offset: Where the reader is to go on.
        another: Why the topic is another one; None: it is the same.
        min_offset: Of the first message that is there.
        max_offset: Of the next message.
        later_offset: Of the first message that was stored after all that the reader has read; None:
            that time is not known.
    """
    count = max_offset - min_offset
    if another is not None:
        there = f"messages {min_offset} to {max_offset - 1}" if count else "no message yet"
        return Resumed(
            min_offset,
            f"{another}: what the earlier one held from offset {offset} on is lost; the new one "
            f"has {there}",
        )
    if max_offset < offset:
        return Resumed(
            max_offset,
            f"expected messages up to offset {offset - 1}, and the queue ends at {max_offset}: the "
            f"log was cut, or restored from an older copy, or the start is of something else; what "
            "is stored from now on can be read",
        )
    if later_offset is None or later_offset >= offset:
        return None
    return Resumed(
        max(later_offset, min_offset),
        f"the log was restored from an older copy, or cut: messages {later_offset} to "
        f"{offset - 1} that were there before are lost; {max_offset - later_offset} others have "
        f"been stored since, from offset {later_offset} on",
    )
