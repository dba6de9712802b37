"""The options that say where to start and to end, held against what the queues hold.

What cannot be is refused. Where nothing may fail (``failOnDataLoss=false``), it is clipped to what
there is, and said on stderr: it may be that messages or queues are gone.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping

from pyspark_eruca.errors import OptionError, SourceError
from pyspark_eruca.options import Options
from pyspark_eruca.ranges import Held, Queue
from pyspark_eruca.stream_offsets import data_loss

_NAMED_MAX = 8  # queues that one error names


def checked_starts(options: Options, held: Mapping[Queue, Held]) -> dict[Queue, int]:
    """Return where the queues that ``startingOffsets`` names are to start.

    Raises:
        DataLossError: Retention has deleted where one was to start.
        OptionError: It ends before that, or there is no such queue.
    """
    return _clipped("startingOffsets", options, options.starting, held)


def checked_ends(options: Options, held: Mapping[Queue, Held]) -> dict[Queue, int]:
    """Return where the queues that ``endingOffsets`` names are to end.

    Raises:
        DataLossError: Retention has deleted all before that.
        OptionError: The queue ends before that, or there is no such queue.
    """
    return _clipped("endingOffsets", options, options.ending, held)


def check_order(options: Options) -> None:
    """Raise OptionError where a queue is to end before it starts."""
    if isinstance(options.starting, str) or isinstance(options.ending, str):
        return
    for queue, end in sorted(options.ending.items()):
        start = options.starting.get(queue, 0)
        if end < start:
            raise OptionError(
                f"option endingOffsets: {queue.text} would end at {end}, before it starts at "
                f"{start} (startingOffsets)"
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
        print(f"{fault}: goes on with what there is", file=sys.stderr)
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
            yield OptionError(f"option {name}: there is no queue {queue.text}; there are {there}")
        elif offset > now.max_offset:
            yield OptionError(
                f"option {name}: expected at most {now.max_offset} for {queue.text}, where the "
                f"queue ends now, found {offset}"
            )
        elif offset < now.min_offset:
            yield data_loss(queue, offset, now.min_offset)
