"""Messages that a condition on properties is known to exclude, by stretches of a queue.

A condition is evaluated on each message once. A later reader of the queue with the same condition,
of the same group or another one, evaluates it only where the result is not known to be "no". So
what is remembered can never hide a message: a bit that is missing, or forgotten, costs one
evaluation.

A queue is named by its *generation*, a number that no other content of a queue ever has. A queue
that is truncated, deleted or rebuilt has another one from then on. A message at an offset of one
generation never changes, and neither does its result: a condition depends on nothing else. Nothing
is kept on the disk. After a restart the first reader of each condition evaluates it again.

Source: RocketMQ 5.3, ``ConsumerFilterManager``, which evaluates conditions at the write, and keeps
Bloom filters in the queue's extension file.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

import numpy as np

from eruca.core.messages.record_columns import Int64Array

STRETCH_COUNT: Final = 4_096  # queue offsets of a stretch, a bit each
STRETCHES_MAX: Final = 16_384  # of all queues and conditions: about 13 MiB, 67 million results
_FEW_MAX: Final = 16  # offsets up to which a loop costs less than numpy's calls
CONDITION_SIZE_MAX: Final = 4_096  # characters; a longer condition is not remembered


class KnownMismatches:
    """Results of conditions; the least recently used stretches are forgotten."""

    def __init__(self, stretches_max: int = STRETCHES_MAX) -> None:
        self._stretches_max = stretches_max
        self._stretches: OrderedDict[tuple[int, str, int], bytearray] = OrderedDict()

    def __len__(self) -> int:
        """Return the number of stretches that are remembered."""
        return len(self._stretches)

    def note(self, generation: int, condition: str, offsets: Sequence[int]) -> None:
        """Remember that *condition* excludes the messages at *offsets* of a queue, which ascend."""
        if len(condition) > CONDITION_SIZE_MAX:
            return
        if len(offsets) <= _FEW_MAX:
            for offset in offsets:
                number, at = divmod(offset, STRETCH_COUNT)
                self._kept(generation, condition, number)[at >> 3] |= 128 >> (at & 7)
            return
        numbers, places = np.divmod(np.array(offsets, np.int64), STRETCH_COUNT)
        for number in range(int(numbers[0]), int(numbers[-1]) + 1):
            flags = np.zeros(STRETCH_COUNT, np.uint8)
            flags[places[numbers == number]] = 1
            kept = np.frombuffer(self._kept(generation, condition, number), np.uint8)
            kept |= np.packbits(flags)

    def unknown(
        self, generation: int, condition: str, first: int, count: int, wanted: int
    ) -> tuple[Int64Array, int]:
        """Return where *condition* must be evaluated.

        Args:
            generation: The queue's.
            condition: The text of a condition.
            first: A queue offset.
            count: The number of messages from there on.
            wanted: The maximum number of results.

        Returns:
            The places of these messages, counted from *first*; and the number of messages up to
            the next such place, or *count* if there is none.
        """
        found: list[Int64Array] = []
        at = total = 0
        while at < count and total <= wanted:
            number, bit = divmod(first + at, STRETCH_COUNT)
            size = min(STRETCH_COUNT - bit, count - at)
            bits = self._stretches.get((generation, condition, number))
            if bits is None:
                some = np.arange(at, at + min(size, wanted + 1 - total))
            else:
                self._stretches.move_to_end((generation, condition, number))
                flags = np.unpackbits(np.frombuffer(bits, np.uint8))
                some = at + np.flatnonzero(flags[bit : bit + size] == 0)
            found.append(some)
            total += len(some)
            at += size
        places = found[0] if len(found) == 1 else np.concatenate(found)
        if total > wanted:
            return places[:wanted], int(places[wanted])
        return places, count

    def _kept(self, generation: int, condition: str, number: int) -> bytearray:
        key = (generation, condition, number)
        bits = self._stretches.get(key)
        if bits is None:
            bits = self._stretches[key] = bytearray(STRETCH_COUNT // 8)
            if len(self._stretches) > self._stretches_max:
                self._stretches.popitem(last=False)
        return bits
