"""The control record with which a master's term begins, and the entry of a term in snapshots."""

from __future__ import annotations

import msgspec


class EpochBegan(msgspec.Struct, frozen=True, tag="epoch_began", tag_field="event"):
    """A replica became the master of a new epoch; it is the first record of the epoch (rule 2).

    Rule 3: every term is a new epoch, also that of the same master after a restart.

    If the record does not fit into the segment, the blank record before it is the master's, too. So
    the epoch begins where the log ended, at ``begun_at``: there, another master's log may differ.
    """

    epoch: int  # ≥ 1, and greater than all before it in the log
    replica_id: int  # of the master
    uid: str  # of its store
    store_host: str  # IP:port; in the ids of the messages that it stores
    begun_at_ms: int  # ms since the epoch of Unix, on the master's clock
    unclean: bool = False  # the master may have lacked confirmed records
    begun_at: int = 0  # log offset of this record, or of the blank one before it; the store sets it


class SnapshotEpoch(msgspec.Struct, frozen=True, array_like=True):
    """An epoch in a snapshot."""

    epoch: int
    begun_at: int  # log offset
    store_host: str  # of its master
    unclean: bool = False
