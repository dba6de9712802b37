"""The epochs of the log, as a part of the broker's state (rule 2).

They are known from the log alone, so no second file can disagree with it. Retention bounds them: an
epoch is forgotten once the log has no record of it. The epoch of the oldest record stays, although
it may have begun before the log does.

The **store hosts** are those of the epochs' masters. An offset message id names one of them, and
leads to this group. An id from a forgotten epoch has no record that it could find.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator

from eruca_broker.core.replication.epochs import Epoch, EpochTable
from eruca_broker.core.state.epoch_events import EpochBegan, SnapshotEpoch


class LogEpochs:
    """The epochs of one log, oldest first; only events and retention change them."""

    def __init__(self) -> None:
        self._epochs: list[SnapshotEpoch] = []
        self._table: EpochTable | None = None  # of _epochs; None: not made yet

    def __iter__(self) -> Iterator[SnapshotEpoch]:
        return iter(self._epochs)

    @property
    def table(self) -> EpochTable:
        """The epochs, and where each began."""
        if self._table is None:
            self._table = EpochTable(tuple(Epoch(e.epoch, e.begun_at, e.unclean) for e in self))
        return self._table

    @property
    def last(self) -> int:
        """Number of the last epoch; 0 without any."""
        return self._epochs[-1].epoch if self._epochs else 0

    @property
    def store_hosts(self) -> tuple[str, ...]:
        """The hosts of all masters that wrote records of the log, without repetition."""
        return tuple(dict.fromkeys(epoch.store_host for epoch in self))

    def apply(self, event: EpochBegan) -> None:
        """Fold an event.

        An epoch that does not ascend is never written nor copied
        (:mod:`eruca_broker.core.log.copied_run`). The fold is total all the same, and ignores it.
        """
        if event.epoch > self.last:
            self.load(SnapshotEpoch(event.epoch, event.begun_at, event.store_host, event.unclean))

    def load(self, epoch: SnapshotEpoch) -> None:
        """Add an epoch of a snapshot."""
        self._epochs.append(epoch)
        self._table = None

    def forget_before(self, min_offset: int) -> None:
        """Forget the epochs of which a log that begins at *min_offset* has no record."""
        later = bisect_right(self._epochs, min_offset, key=lambda epoch: epoch.begun_at)
        if later > 1:  # the last one that began by then is the epoch of the first record
            del self._epochs[: later - 1]
            self._table = None

    def copy(self) -> LogEpochs:
        """Return an independent copy."""
        copied = LogEpochs()
        copied._epochs = list(self._epochs)
        copied._table = self._table
        return copied
