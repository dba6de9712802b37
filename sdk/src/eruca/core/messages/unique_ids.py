"""Unique ids for messages, generated from address, process, instance, time and a count.

No two ids of one generator are equal. Within a millisecond the 16-bit counter distinguishes them.
If time or counter would repeat, the generator continues with the next instance number. That happens
in three cases: a millisecond has too few counter values left, the clock is set back, or a month
begins. The id counts its milliseconds from the start of the month and does not contain the month.
After a fork the child's ids differ by the process id, which the caller passes each time.

Ids that are taken together differ only in their counter, and stay a range until one is accessed. A
batch is encoded from the digits of all of them.

Source: RocketMQ 5.3, ``MessageClientIDSetter``, whose instance is the hash of a class loader and
never changes; the layout is in :mod:`eruca.contract.message_ids`.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Final, overload

from eruca.contract.message_ids import encode_unique_id, month_start_ms

_COUNTER_SIZE: Final = 1 << 16
COUNTER_DIGITS: Final = 4
assert 16**COUNTER_DIGITS == _COUNTER_SIZE, "ids of two counters would be equal"
_OCTETS: Final = [f"{octet:02X}" for octet in range(256)]
_DAY_MS: Final = 86_400_000
_PROCESS_SHIFT: Final = 26  # Linux has process ids of up to 22 bits: 6 beyond the 16


class UniqueIdRange(Sequence[str]):
    """Ids that differ only in their counter; each is built on access.

    Args:
        head: Their common part.
        first: The first one's counter.
        count: Number of ids; after its largest value the counter continues at 0.
    """

    __slots__ = ("_count", "_first", "head")

    def __init__(self, head: str, first: int, count: int) -> None:
        self.head = head
        self._first = first
        self._count = count

    @property
    def digits(self) -> str:
        """The counters of all of them, four digits each, without separators."""
        start = self._first * COUNTER_DIGITS
        digits = _all_digits()[start : start + self._count * COUNTER_DIGITS]
        missing = self._count * COUNTER_DIGITS - len(digits)
        return digits + _all_digits()[:missing] if missing else digits

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[str]:
        ids: list[str] = []
        counter, left = self._first, self._count
        while left:
            # Up to 256 at a time, which share all but the last two digits.
            high, low = divmod(counter, len(_OCTETS))
            head, endings = self.head + _OCTETS[high], _OCTETS[low : low + left]
            ids += [head + ending for ending in endings]
            counter = (counter + len(endings)) % _COUNTER_SIZE
            left -= len(endings)
        return iter(ids)

    @overload
    def __getitem__(self, index: int) -> str: ...

    @overload
    def __getitem__(self, index: slice) -> list[str]: ...

    def __getitem__(self, index: int | slice) -> str | list[str]:
        if isinstance(index, slice):
            return list(self)[index]
        counter = self._first + range(self._count)[index]
        return f"{self.head}{counter % _COUNTER_SIZE:04X}"


@cache
def _all_digits() -> str:
    counters = array("H", range(_COUNTER_SIZE))
    if sys.byteorder == "little":
        counters.byteswap()
    return counters.tobytes().hex().upper()


class UniqueIds:
    """Makes unique ids. Not thread-safe.

    Args:
        address: 4 or 16 bytes that distinguish this machine from others.
        instance: A random number that distinguishes generators of one process; 32 bits.
        counter: First value of the counter; a random one makes ids harder to guess.
    """

    __slots__ = (
        "_address",
        "_counter",
        "_day",
        "_head",
        "_instance",
        "_left",
        "_month_ms",
        "_now_ms",
        "_process_id",
    )

    def __init__(self, address: bytes, instance: int, counter: int = 0) -> None:
        self._address = address
        self._instance = instance
        self._counter = counter % _COUNTER_SIZE
        self._process_id = -1
        self._now_ms = -1
        self._day: int | None = None  # since the epoch, in UTC
        self._month_ms = 0  # start of its month
        self._left = 0  # ids left for _now_ms; never negative
        self._head = ""  # all but the counter, in hex; changes at each move

    def next(self, now_ms: int, process_id: int) -> str:
        """Return a new id; the arguments are those of :meth:`take`."""
        if now_ms != self._now_ms or process_id != self._process_id or not self._left:
            self._move_to(now_ms, process_id)
        self._left -= 1
        self._counter = counter = (self._counter + 1) % _COUNTER_SIZE
        return f"{self._head}{counter:04X}"

    def take(self, count: int, now_ms: int, process_id: int) -> UniqueIdRange:
        """Return *count* new ids, at most the number of the counter's values.

        Args:
            count: Number of ids.
            now_ms: The wall clock, ms since the epoch.
            process_id: This process; passed at each call, to detect a fork.
        """
        assert 0 <= count <= _COUNTER_SIZE
        if now_ms != self._now_ms or process_id != self._process_id or count > self._left:
            self._move_to(now_ms, process_id)
        ids = UniqueIdRange(self._head, (self._counter + 1) % _COUNTER_SIZE, count)
        self._counter = (self._counter + count) % _COUNTER_SIZE
        self._left -= count
        assert self._left >= 0, "a counter would repeat under one head"
        return ids

    def _move_to(self, now_ms: int, process_id: int) -> None:
        """Compute all but the counter, for another time or process."""
        is_used_up = now_ms == self._now_ms and process_id == self._process_id
        if is_used_up or now_ms < self._now_ms:
            self._instance += 1
        day = now_ms // _DAY_MS
        if day != self._day:  # a month begins with a day
            month_ms = month_start_ms(now_ms)
            self._instance += self._day is not None and month_ms != self._month_ms
            self._day, self._month_ms = day, month_ms
        self._now_ms, self._process_id, self._left = now_ms, process_id, _COUNTER_SIZE
        # The id has room for 16 bits of the process id; the others go into unused bits of the
        # instance.
        instance = self._instance ^ (process_id >> 16 << _PROCESS_SHIFT)
        whole = encode_unique_id(
            self._address, process_id, instance, now_ms - self._month_ms, counter=0
        )
        head = whole[:-COUNTER_DIGITS]
        assert head != self._head, "the counters of this head are used up"
        self._head = head
