"""The proof of lineage: a replica's log is a beginning of its master's (rule 9).

The epochs of both logs determine their common end (:mod:`eruca_broker.core.replication.lineage`).
That rests on the promise that no two masters wrote the same epoch. A store that was restored from
elsewhere, or damaged, breaks it. So the replica also proves the bytes before the common end, by
their digest. One whose bytes differ is refused, and changes nothing.

Two requests are one proof. The first asks how far both logs agree; the second has the digest of the
bytes before that place, which the master has not told. If the replica's log is longer, it truncates
it then, and begins again.

An empty replica has nothing to prove. It begins where the master's log begins, which is a segment's
beginning, and so a snapshot of the state.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import NamedTuple

from eruca.contract.errors import ForeignReplicaError, StaleEpochError
from eruca.contract.replication import TAIL_SIZE, LineageAnswer, LineageRequest, LogEpoch
from eruca_broker.core.replication.epochs import Epoch, EpochTable
from eruca_broker.core.replication.lineage import ForeignLogError, Lineage, common_end
from eruca_broker.store.message_store import MessageStore


class CommonPart(NamedTuple):
    """The common part of a replica's log and its master's."""

    cut_to: int
    tail_begin: int
    is_proved: bool  # the replica's log ends there, and its bytes before are the master's


def check_lineage(store: MessageStore, replica: LineageRequest, *, epoch: int) -> CommonPart:
    """Compare a replica's log with the master's, in *store*.

    Raises:
        StaleEpochError: The replica's log has a later epoch than the master's.
        ForeignReplicaError: The logs contradict each other, or have no byte in common that both
            still have.
    """
    epochs = epoch_table(replica.epochs)
    if epochs.last > epoch:
        raise StaleEpochError(f"expected epoch {epoch} at most, found {epochs.last} in the log")
    if replica.min_offset == replica.end:
        return _begun_anew(store, replica)
    log_id = store.state.log_id
    if replica.log_id and log_id and replica.log_id != log_id:
        raise ForeignReplicaError(f"expected log {log_id}, found log {replica.log_id}")
    if replica.segment_bytes != store.segment_bytes:
        raise ForeignReplicaError(
            f"expected segments of {store.segment_bytes} bytes, found {replica.segment_bytes}"
        )
    try:
        cut_to = common_end(
            Lineage(store.role.epochs(), store.log_max_offset), Lineage(epochs, replica.end)
        )
    except ForeignLogError as error:
        raise ForeignReplicaError(str(error)) from error
    lowest = max(store.log_min_offset, replica.min_offset)
    if cut_to <= lowest:
        raise ForeignReplicaError(
            f"the logs agree up to {cut_to}, and have nothing in common that both still have: the "
            f"master's begins at {store.log_min_offset}, the replica's at {replica.min_offset}",
            fix="start the replica with an empty store directory",
            master_begin=store.log_min_offset,
        )
    part = CommonPart(cut_to, max(cut_to - TAIL_SIZE, lowest), is_proved=False)
    tail = replica.tail
    if tail is None or (tail.begin, tail.end) != (part.tail_begin, cut_to):
        return part  # retention has moved the beginning since the last answer
    if tail.digest != digest_of(store.log.pieces(part.tail_begin, cut_to)):
        raise ForeignReplicaError(
            f"the bytes from {part.tail_begin} to {cut_to} differ, though the epochs are the same"
        )
    return part._replace(is_proved=replica.end == cut_to)


def answer_lineage(
    store: MessageStore, part: CommonPart, *, epoch: int, confirmed: int
) -> LineageAnswer:
    """Return the answer to a replica."""
    return LineageAnswer(
        epoch=epoch,
        cut_to=part.cut_to,
        tail_begin=part.tail_begin,
        proved=part.is_proved,
        epochs=log_epochs(store.role.epochs()),
        confirmed=confirmed,
        min_offset=store.log_min_offset,
        segment_bytes=store.segment_bytes,
    )


def digest_of(pieces: Iterable[memoryview]) -> str:
    """Return the digest by which a replica proves its bytes."""
    digest = hashlib.sha256()
    for piece in pieces:
        digest.update(piece)
    return digest.hexdigest()


def epoch_table(epochs: Iterable[LogEpoch]) -> EpochTable:
    """Return epochs of the wire as a table; they are in order."""
    return EpochTable(tuple(Epoch(e.epoch, e.begun_at, e.unclean) for e in epochs))


def log_epochs(table: EpochTable) -> list[LogEpoch]:
    """Return a table's epochs for the wire."""
    return [
        LogEpoch(epoch=epoch.number, begun_at=epoch.begun_at, unclean=epoch.is_unclean)
        for epoch in table
    ]


def _begun_anew(store: MessageStore, replica: LineageRequest) -> CommonPart:
    """Return where an empty replica begins; it is proved once it does."""
    begin = store.log_min_offset
    is_ready = replica.end == begin and replica.segment_bytes == store.segment_bytes
    return CommonPart(begin, begin, is_proved=is_ready)
