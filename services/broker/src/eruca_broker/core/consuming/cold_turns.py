"""The order in which readers get what is not in memory: turns, and rates.

A *reader* pays for its reads: it is a group, a replica, or a client by its address. Readers take
turns, and each has one read in progress, so a reader with many requests delays the others by one
read each. Two rates may limit them: of each reader, and of all together.

A read is allowed while its reader owes nothing, whatever its size, and then owes its bytes. So a
read is never refused, split or forgotten. The next one waits at most for ``size / rate`` of what
was read before.

Source: RocketMQ 5.3, ``ColdDataCgCtrService``. There a pull beyond the limit gets one message.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from dataclasses import dataclass, field
from typing import Final, Generic, NamedTuple, TypeVar

T = TypeVar("T")


class ColdRates(NamedTuple):
    """Bytes a second; 0: no limit."""

    of_one: int = 0
    of_all: int = 0


NO_RATES: Final = ColdRates()


@dataclass(slots=True)
class _Reader(Generic[T]):
    asks: deque[tuple[T, int]] = field(default_factory=deque)
    free_at: float = 0.0  # when it owes nothing any more
    is_reading: bool = False


class ColdTurns(Generic[T]):
    """Reads that wait for their turn. Times are of one monotonic clock, in seconds."""

    def __init__(self, rates: ColdRates) -> None:
        self._rates = rates
        self._readers: OrderedDict[str, _Reader[T]] = OrderedDict()  # the next one first
        self._all_free_at = 0.0
        self._waiting = 0

    def __len__(self) -> int:
        """Return the number of reads that wait."""
        return self._waiting

    def ask(self, reader: str, read: T, size: int) -> None:
        """Let *read* of *size* bytes wait for a turn of *reader*."""
        self._readers.setdefault(reader, _Reader()).asks.append((read, size))
        self._waiting += 1

    def withdraw(self, reader: str, read: T) -> bool:
        """Take back a read that waits; return whether it did."""
        known = self._readers.get(reader)
        for ask in known.asks if known is not None else ():
            if ask[0] is read:
                assert known is not None
                known.asks.remove(ask)
                self._waiting -= 1
                return True
        return False

    def give_up(self) -> list[T]:
        """Return the reads that wait, which wait no longer."""
        given_up = [read for reader in self._readers.values() for read, _ in reader.asks]
        for reader in self._readers.values():
            reader.asks.clear()
        self._waiting = 0
        return given_up

    def take(self, now: float) -> tuple[str, T] | None:
        """Return the next read whose time has come, with its reader; None if there is none.

        Its reader gets no other turn before :meth:`done`.
        """
        if self._all_free_at > now:
            return None
        for name, reader in list(self._readers.items()):
            if not reader.asks and not reader.is_reading and reader.free_at <= now:
                del self._readers[name]  # it owes nothing and waits for nothing
                continue
            if reader.is_reading or not reader.asks or reader.free_at > now:
                continue
            read, size = reader.asks.popleft()
            self._waiting -= 1
            reader.is_reading = True
            if self._rates.of_one:
                reader.free_at = now + size / self._rates.of_one
            if self._rates.of_all:
                self._all_free_at = now + size / self._rates.of_all
            return name, read
        return None

    def done(self, reader: str) -> None:
        """Note that the read that *reader* had in progress has ended."""
        known = self._readers[reader]
        assert known.is_reading
        known.is_reading = False
        self._readers.move_to_end(reader)  # behind those that came meanwhile

    def due_in(self, now: float) -> float | None:
        """Return the seconds until the rates allow a read; None if none waits for that."""
        waiting = [
            reader.free_at
            for reader in self._readers.values()
            if reader.asks and not reader.is_reading
        ]
        if not waiting:
            return None
        return max(min(waiting), self._all_free_at, now) - now
