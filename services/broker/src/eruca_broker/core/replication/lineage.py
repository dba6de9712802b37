"""Lineage: the common part of a replica's log and its master's.

A replica joins, or follows a new master, in two steps. It cuts its log to the last offset up to
which both logs are equal; then it pulls from there. That offset follows from the two epoch tables.
A confirmed offset is no substitute: a replica learns of it late, so a cut to it would lose records
that the replica had acknowledged (Kafka's KIP-101).

Source: Kafka's KIP-101, KIP-320; RocketMQ 5.3, ``EpochFileCache.findConsistentPoint``.
"""

from __future__ import annotations

from typing import NamedTuple

from eruca_broker.core.replication.epochs import EpochTable


class ForeignLogError(ValueError):
    """Two logs that belong to different groups, or whose epochs contradict each other."""


class UncleanCutError(ValueError):
    """A cut would remove records that were confirmed."""


class Lineage(NamedTuple):
    """The extent of one log, as one side tells the other."""

    epochs: EpochTable
    end: int  # log offset after its last record


def common_end(master: Lineage, replica: Lineage) -> int:
    """Return the log offset up to which two logs are equal.

    That is the end of the newest epoch that both have, in the log in which it is shorter.

    Raises:
        ForeignLogError: An epoch began at different offsets: two masters wrote it.
    """
    ours = {epoch.number: epoch.begun_at for epoch in replica.epochs}
    common = 0
    for epoch in master.epochs:
        begun_at = ours.get(epoch.number)
        if begun_at is None:
            continue
        if begun_at != epoch.begun_at:
            raise ForeignLogError(
                f"epoch {epoch.number} begins at {begun_at} in the replica's log; expected "
                f"{epoch.begun_at}, as in the master's"
            )
        common = epoch.number
    cut_to = min(
        master.epochs.end_of(common, master.end),
        replica.epochs.end_of(common, replica.end),
    )
    assert cut_to <= min(master.end, replica.end), "rule 9: the common part is in both logs"
    return cut_to


def check_cut(cut_to: int, *, visible_offset: int, master: EpochTable) -> None:
    """Check that a replica may cut its log at *cut_to*.

    Confirmed records are in every later master's log, unless an operator forced a replica to be
    master that lacked some.

    Args:
        cut_to: What :func:`common_end` returned.
        visible_offset: Log offset up to which the replica has shown its records as confirmed.
        master: The master's epochs.

    Raises:
        UncleanCutError: Confirmed records would go, though every epoch since was clean.
    """
    if cut_to >= visible_offset:
        return
    if not any(epoch.is_unclean and epoch.begun_at >= cut_to for epoch in master):
        raise UncleanCutError(
            f"the master's log continues differently after {cut_to}, but this replica has confirmed"
            f" records up to {visible_offset}: one of the two logs is not this group's"
        )
