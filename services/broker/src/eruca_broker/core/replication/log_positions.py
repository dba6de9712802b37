"""Positions of the log's readers: a log offset, and the epoch of the record before it (rule 12).

In a clean history the offset alone would do, for nothing unconfirmed is ever shown. After an
unclean epoch the log holds other records at offsets that were shown before. Only the epoch tells.
A position may also be ahead of a replica, which has not copied everything yet.
"""

from __future__ import annotations

from enum import StrEnum

from eruca_broker.core.replication.epochs import EpochTable


class Standing(StrEnum):
    """The relation of a position to a replica's log."""

    CURRENT = "current"  # the log has the records that the reader has read before it
    AHEAD = "ahead"  # this replica has not copied that far yet
    STALE = "stale"  # the log has other records before it


def standing_of(epochs: EpochTable, end: int, *, epoch: int, log_offset: int) -> Standing:
    """Return the standing of the position (*epoch*, *log_offset*) in a log.

    Args:
        epochs: The visible epochs of the log. Retention may have forgotten the oldest.
        end: The log's visible end.
        epoch: Epoch of the record before the position; 0: the reader knew of none.
        log_offset: Of the record at which to continue.
    """
    if epoch > epochs.last:
        return Standing.AHEAD
    found = epoch_before(epochs, log_offset)
    oldest = next(iter(epochs), None)
    is_forgotten = not found and oldest is not None and epoch < oldest.number
    if log_offset and found != epoch and not is_forgotten:
        return Standing.STALE
    return Standing.AHEAD if log_offset > end else Standing.CURRENT


def may_be_of_epoch(epochs: EpochTable, log_offset: int, epoch: int) -> bool:
    """Tell whether the record at *log_offset* is the one that a token of *epoch* names (rule 12).

    After an unclean epoch another record may be there. If retention has forgotten the epoch, nobody
    can tell.
    """
    found = epochs.at(log_offset)
    oldest = next(iter(epochs), None)
    return found == epoch or (not found and oldest is not None and epoch < oldest.number)


def epoch_before(epochs: EpochTable, log_offset: int) -> int:
    """Return the epoch of the record before *log_offset*; 0: none is known."""
    return epochs.at(log_offset - 1)


def epoch_end(epochs: EpochTable, log_offset: int) -> int | None:
    """Return where the epoch of the record at *log_offset* ends; None: it is the last one."""
    return next((epoch.begun_at for epoch in epochs if epoch.begun_at > log_offset), None)
