"""The options for start and end, compared with the queues' offsets.

Impossible values are refused. If nothing may fail (``failOnDataLoss=false``), they are clipped to
the present offsets, with a note on stderr: messages or queues may be gone.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping

from eruca.exporting.errors import OptionError, SourceError
from eruca.exporting.options import Options
from eruca.exporting.ranges import Held, Queue
from eruca.exporting.stream_offsets import data_loss

_NAMED_MAX = 8  # queues named in one error


def checked_starts(options: Options, held: Mapping[Queue, Held]) -> dict[Queue, int]:
    """Return the start offsets of the queues in ``startingOffsets``.

    Raises:
        DataLossError: Retention has deleted a start.
        OptionError: A queue ends before its start, or does not exist.
    """
    return _clipped("startingOffsets", options, options.starting, held)


def checked_ends(options: Options, held: Mapping[Queue, Held]) -> dict[Queue, int]:
    """Return the end offsets of the queues in ``endingOffsets``.

    Raises:
        DataLossError: Retention has deleted all messages before an end.
        OptionError: A queue ends before that, or does not exist.
    """
    return _clipped("endingOffsets", options, options.ending, held)


def check_later(options: Options, held: Mapping[Queue, Held]) -> None:
    """Raise OptionError if a queue has no message since ``startingTimestamp``, and must have one.

    *held* starts at that time.
    """
    if options.starting_at is None or not options.needs_later:
        return
    for queue, now in sorted(held.items()):
        if now.start >= now.max_offset:
            raise OptionError(
                f"option startingTimestamp: expected a message of {queue.text} stored at"
                f" {options.starting_at} or later, found none; to start at its end, set"
                " startingOffsetsByTimestampStrategy=latest"
            )


def check_order(options: Options) -> None:
    """Raise OptionError if a queue would end before its start."""
    if isinstance(options.starting, str) or isinstance(options.ending, str):
        return
    for queue, end in sorted(options.ending.items()):
        start = options.starting.get(queue, 0)
        if end < start:
            raise OptionError(
                f"option endingOffsets: expected at least {start} (startingOffsets) for"
                f" {queue.text}, found {end}"
            )


def _clipped(
    name: str,
    options: Options,
    wanted: str | Mapping[Queue, int],
    held: Mapping[Queue, Held],
) -> dict[Queue, int]:
    if isinstance(wanted, str):
        return {}
    for fault in _faults(name, wanted, held):
        if options.fail_on_data_loss:
            raise fault
        print(f"{fault}: continuing with the present messages", file=sys.stderr)
    return {
        queue: min(max(offset, held[queue].min_offset), held[queue].max_offset)
        for queue, offset in wanted.items()
        if queue in held
    }


def _faults(
    name: str, wanted: Mapping[Queue, int], held: Mapping[Queue, Held]
) -> Iterator[SourceError]:
    for queue, offset in sorted(wanted.items()):
        now = held.get(queue)
        if now is None:
            of_the_topic = sorted(one.text for one in held if one.topic == queue.topic)
            more = ", \u2026" if len(of_the_topic) > _NAMED_MAX else ""
            there = ", ".join(of_the_topic[:_NAMED_MAX]) + more or "no queue"
            yield OptionError(f"option {name}: unknown queue {queue.text}; the topic has {there}")
        elif offset > now.max_offset:
            yield OptionError(
                f"option {name}: expected at most {now.max_offset}, the present end of"
                f" {queue.text}; found {offset}"
            )
        elif offset < now.min_offset:
            yield data_loss(queue, offset, now.min_offset)
