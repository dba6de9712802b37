"""A stream's offsets: where each queue is read on from. Pure.

An offset says, too, where queues that came with it began, and where retention was faster::

    {"first": {"orders/broker-a/0": 0}, "next": {"orders/broker-a/0": 25000}}

So a batch is fixed by its own offset and the one before it, whatever retention or new queues do
meanwhile: replayed, it has the same rows. Offsets never go back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pyspark_eruca.errors import DataLossError, SourceError
from pyspark_eruca.ranges import Held, Queue, Range, share_out


def batch_ranges(start: Mapping[str, Any], end: Mapping[str, Any]) -> list[Range]:
    """Return what lies between two offsets of a stream, without empty ranges."""
    if start == end:
        return []  # its "first" tells of the batch before
    before = start.get("next", {})
    began = end.get("first", {})
    ranges = []
    for name, to_offset in sorted(end.get("next", {}).items()):
        from_offset = began.get(name, before.get(name))
        if from_offset is None:
            raise SourceError(f"the offset does not say where {name} began: {dict(end)}")
        if from_offset < to_offset:
            ranges.append(Range(Queue.parse(name), from_offset, to_offset))
    return ranges


def next_offset(
    start: dict[str, Any],
    held: Mapping[Queue, Held],
    *,
    begin: Callable[[Queue, Held], int],
    rows_max: int | None,
    fail_on_data_loss: bool,
) -> dict[str, Any]:
    """Return the offset of a stream's next batch; *start* itself where there is nothing to read.

    A queue that holds less than has been read (a topic created anew, say) has nothing new until it
    has grown beyond that: offsets never go back.

    Args:
        start: The offset of the last batch; empty at first.
        held: What the queues hold.
        begin: Where to begin a queue that is there at first. One that comes later is read whole.
        rows_max: How many messages at most; None: all.
        fail_on_data_loss: Whether it matters that retention was faster.

    Raises:
        DataLossError: It was, and it does.
    """
    before: Mapping[str, int] = start.get("next", {})
    is_first = not start
    began: dict[Queue, int] = {}
    available: dict[Queue, int] = {}
    for queue, now in sorted(held.items()):
        known = before.get(queue.text)
        if known is None:
            position = begin(queue, now) if is_first else now.min_offset
            # Noted even where it is empty so far: "latest" means the end as it is now.
            began[queue] = position
        elif known < now.min_offset and now.max_offset > known:
            if fail_on_data_loss:
                raise data_loss(queue, known, now.min_offset)
            position = began[queue] = min(now.min_offset, now.end)
        else:
            position = known
        available[queue] = max(0, now.end - position)
    shares = share_out(available, sum(available.values()) if rows_max is None else rows_max)
    positions = dict(before)
    first = {}
    for queue, rows in shares.items():
        known = before.get(queue.text)
        origin = began.get(queue, known)
        assert origin is not None
        if rows or (known is None and is_first):
            positions[queue.text] = origin + rows
            if queue in began:
                first[queue.text] = origin
    if positions == before:
        return start
    return {"first": first, "next": dict(sorted(positions.items()))}


def data_loss(queue: Queue, wanted: int, left: int) -> DataLossError:
    """Return the error that says which messages are gone."""
    return DataLossError(
        f"{queue.text}: messages {wanted} to {left - 1} were to be read and have been deleted, by "
        "retention or with their topic; to go on without them, set failOnDataLoss=false"
    )
