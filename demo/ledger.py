"""The ledger: the flights read from the file, those that came back, and their discrepancies. Pure.

Only a checksum is kept for each row of the file, so every byte is checked without keeping all.
"""

from __future__ import annotations

import zlib
from array import array
from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from demo.dataset import Flight

Queue = tuple[str, int]
"""A broker's name and a queue's number."""

_EXAMPLES_MAX: Final = 5  # examples for each kind of fault


@dataclass(slots=True)
class Ledger:
    """Flights sent and flights received; ``faults`` lists the differences."""

    sent_by_carrier: Counter[str] = field(default_factory=Counter)
    received_by_carrier: Counter[str] = field(default_factory=Counter)
    flights_by_number: Counter[str] = field(default_factory=Counter)
    sent_bytes: int = 0
    received_bytes: int = 0
    _checksums: array[int] = field(default_factory=lambda: array("I"))
    _seen: bytearray = field(default_factory=bytearray)
    _last_by_tail: dict[str, tuple[int, Queue]] = field(default_factory=dict)
    _fault_counts: Counter[str] = field(default_factory=Counter)
    _fault_examples: dict[str, list[str]] = field(default_factory=dict)

    @property
    def sent(self) -> int:
        """Return the number of flights sent."""
        return len(self._checksums)

    @property
    def received(self) -> int:
        """Return the number of messages received."""
        return self.received_by_carrier.total()

    @property
    def aircraft(self) -> int:
        """Return the number of different aircraft among the received flights."""
        return len(self._last_by_tail)

    def note_sent(self, flight: Flight) -> None:
        """Record a flight; call this in the file's order."""
        assert flight.row == self.sent
        self.sent_by_carrier[flight.carrier] += 1
        self.flights_by_number[flight.number] += 1
        self.sent_bytes += len(flight.body)
        self._checksums.append(zlib.crc32(flight.body))
        self._seen.append(0)

    def note_received(
        self, *, row: int, body: bytes, carrier: str | None, tail: str | None, queue: Queue
    ) -> None:
        """Compare a message with the flight that it must be.

        Args:
            row: The flight's number, from the message's body.
            body: The message's body.
            carrier: The message's tag.
            tail: The message's sharding key.
            queue: The queue it was pulled from; call this in each queue's order.
        """
        self.received_by_carrier[carrier or "none"] += 1
        self.received_bytes += len(body)
        if not 0 <= row < self.sent:
            self._fault("flights that were never sent", f"row {row}")
            return
        if self._seen[row]:
            self._fault("flights that came back twice", f"row {row}")
        self._seen[row] = 1
        if zlib.crc32(body) != self._checksums[row]:
            self._fault("flights whose body changed", f"row {row}")
        if tail is None:
            self._fault("flights without their sharding key", f"row {row}")
            return
        before = self._last_by_tail.get(tail)
        if before is not None and before[0] >= row:
            self._fault("flights out of order", f"{tail}: row {row} after row {before[0]}")
        if before is not None and before[1] != queue:
            self._fault("aircraft in two queues", f"{tail}: {before[1]} and {queue}")
        self._last_by_tail[tail] = (row, queue)

    def faults(self) -> list[str]:
        """Return the discrepancies, one sentence each; empty if there are none."""
        found = [
            f"{count} {kind}, such as {', '.join(self._fault_examples[kind])}"
            for kind, count in self._fault_counts.items()
        ]
        missing = [row for row, seen in enumerate(self._seen) if not seen]
        if missing:
            rows = ", ".join(map(str, missing[:_EXAMPLES_MAX]))
            found.append(f"{len(missing)} flights that did not come back, such as row {rows}")
        for carrier in sorted(self.sent_by_carrier | self.received_by_carrier):
            sent, received = self.sent_by_carrier[carrier], self.received_by_carrier[carrier]
            if sent != received:
                found.append(f"carrier {carrier}: {sent} in the file, {received} came back")
        return found

    def _fault(self, kind: str, example: str) -> None:
        self._fault_counts[kind] += 1
        examples = self._fault_examples.setdefault(kind, [])
        if len(examples) < _EXAMPLES_MAX:
            examples.append(example)


def percentile(sorted_values: list[float], percent: float) -> float:
    """Return the nearest-rank percentile of values in ascending order."""
    assert sorted_values
    rank = max(1, -(-len(sorted_values) * percent // 100))
    return sorted_values[int(rank) - 1]
