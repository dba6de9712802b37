"""The epochs of a log: which master wrote which part of it.

The first record of a master's term is a control record that names its epoch, so the table is a
fold over the log, and no second file can disagree with it. Records before the first such record
belong to epoch 0: a log that was never replicated, or RocketMQ's.

Invariants: numbers and offsets ascend strictly; the record that begins an epoch is the epoch's
first, but for a blank record that fills the segment before it. In one epoch one master wrote, so
two logs that have an epoch in common have the same bytes from its beginning to the end of the
shorter of the two.

Source: RocketMQ 5.3, ``EpochFileCache``; Kafka's KIP-101, ``LeaderEpochFileCache``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple


class Epoch(NamedTuple):
    """One term of one master in a log."""

    number: int
    begun_at: int  # log offset of its first byte
    is_unclean: bool = False  # its master may have lacked confirmed records


@dataclass(frozen=True, slots=True)
class EpochTable:
    """The epochs of one log, oldest first, without epoch 0."""

    epochs: tuple[Epoch, ...] = ()

    def __post_init__(self) -> None:
        for before, after in pairwise((Epoch(0, -1), *self.epochs)):
            assert before.number < after.number, f"epoch {after.number} follows {before.number}"
            assert before.begun_at < after.begun_at, f"epoch {after.number} is misplaced"

    def __iter__(self) -> Iterator[Epoch]:
        return iter(self.epochs)

    @property
    def last(self) -> int:
        """Number of the log's last epoch; 0 without any."""
        return self.epochs[-1].number if self.epochs else 0

    def begun(self, epoch: Epoch) -> EpochTable:
        """Return the table after the record that begins *epoch* was appended."""
        assert epoch.number > self.last, "rule 3: a term has a new epoch"
        return EpochTable((*self.epochs, epoch))

    def truncated(self, log_offset: int) -> EpochTable:
        """Return the table of the log that was cut at *log_offset*."""
        return EpochTable(tuple(epoch for epoch in self.epochs if epoch.begun_at < log_offset))

    def at(self, log_offset: int) -> int:
        """Return the number of the epoch to which the record at *log_offset* belongs."""
        return max((e.number for e in self.epochs if e.begun_at <= log_offset), default=0)

    def end_of(self, number: int, log_end: int) -> int:
        """Return the log offset after the last record of an epoch, in a log that ends at *log_end*.

        An epoch without records ends where a later one begins.
        """
        later = (epoch.begun_at for epoch in self.epochs if epoch.number > number)
        return min(later, default=log_end)
