"""Choose the chunks to search, newest first, a bounded number at a time.

A chunk is a stretch of one broker's log, so it covers a stretch of time; chunks of different
brokers overlap. A **window** is a stretch of time together with every chunk that may hold messages
of it. Searching the windows in order yields the messages newest first. Each statement then has few
partitions to plan for and to lock.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple


class ChunkSpan(NamedTuple):
    """A chunk, and the earliest and the latest store time in it."""

    chunk: int
    first_ms: int
    last_ms: int


class Window(NamedTuple):
    """The time between two moments, both included, and the chunks that may hold its messages."""

    from_ms: int
    to_ms: int
    chunks: list[int]


def windows(
    spans: Sequence[ChunkSpan], *, from_ms: int, to_ms: int, chunks_max: int
) -> Iterator[Window]:
    """Yield windows from *to_ms* back to *from_ms*, each of about *chunks_max* chunks at most.

    A window has more chunks only if more of them contain the same millisecond. Stretches of time
    that no chunk covers are skipped.
    """
    left = sorted(
        (span for span in spans if span.last_ms >= from_ms and span.first_ms <= to_ms),
        key=lambda span: (-span.last_ms, span.chunk),
    )
    active: list[ChunkSpan] = []
    while left or active:
        if not active:
            to_ms = min(to_ms, left[0].last_ms)
        room = max(chunks_max - len(active), 1)
        active += left[:room]
        left = left[room:]
        low = max(from_ms, left[0].last_ms + 1) if left else from_ms
        if low > to_ms:  # too many chunks end in one millisecond: it gets a window of its own
            while left and left[0].last_ms >= to_ms:
                active.append(left.pop(0))
            low = max(from_ms, left[0].last_ms + 1) if left else from_ms
        held = [span.chunk for span in active if span.first_ms <= to_ms]
        if held:
            yield Window(low, to_ms, held)
        to_ms = low - 1
        active = [span for span in active if span.first_ms <= to_ms]
        if to_ms < from_ms:
            return
