"""Replication: the requests of a replica to its master, and their answers.

A replica pulls its master's log. ``POST /v1/replication/log`` (:class:`RunRequest`) is a request
and an acknowledgement in one: "in this epoch I hold everything before X, as durably as the group
promises". The answer's body is a run: whole writes of the master's log, byte for byte. Several
requests may be under way: each continues where the last run ended, whatever is acknowledged by
then. Its headers say what the replica must know beside the bytes::

    eruca-epoch        the master's epoch
    eruca-confirmed    log offset before which everything is confirmed, and so visible
    eruca-min-offset   log offset of the master's first record: replicas delete what is before it
    eruca-max-offset   log offset of the master's next record
    eruca-answer       number of this answer; runs continue each other in its order. A later fetch
                       quotes it, which proves that the replica was alive after it was sent
    eruca-now          time of the master's clock, in ms since 1970

Before its first fetch a replica proves its lineage: that its log is a beginning of the master's. It
sends its epochs and its end. The answer says where both logs have their common end, and which bytes
before it to prove. Then it sends the digest of its own bytes there. An acknowledgement counts only
after this proof.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Annotated, Final, Literal

from msgspec import Meta, Struct
from pydantic import ConfigDict, Field, model_validator

from eruca.contract.broker_groups import GroupEpoch, ReplicaId, ReplicaName, StoreUid
from eruca.contract.fields import OFFSET_MAX, Answer, Offset, Request
from eruca.contract.times import Instant

RUN_MEDIA_TYPE: Final = "application/vnd.eruca.run"
ANSWER_HEADER: Final = "eruca-answer"
NOW_HEADER: Final = "eruca-now"

EPOCH_COUNT_MAX: Final = 10_000  # terms of one log; each start of a broker group is one
TAIL_SIZE: Final = 64 * 1024  # bytes before the common end that a replica proves
RUN_SIZE_MAX: Final = 16 * 1024 * 1024  # bytes of a run; a single write may be larger
RUN_SIZE_DEFAULT: Final = 1024 * 1024
FETCH_WAIT_SECONDS_MAX: Final = 10.0  # for which a fetch may be held at the log's end

ReplicationRole = Literal["master", "taking over", "standby", "demoted", "standalone"]


class LogEpoch(Answer):
    """One term of one master in a log."""

    model_config = ConfigDict(strict=True)

    epoch: GroupEpoch
    begun_at: Offset = Field(description="Log offset of the record that begins it.")
    unclean: bool = Field(
        default=False, description="true: its master may have lacked confirmed records"
    )


def _in_order(epochs: Sequence[LogEpoch]) -> bool:
    return all(
        before.epoch < after.epoch and before.begun_at < after.begun_at
        for before, after in pairwise(epochs)
    )


class RunRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """An acknowledgement, and the request for the next run."""

    acknowledged: Annotated[
        int, Meta(ge=0, le=OFFSET_MAX, description="The replica holds everything before.")
    ]
    sequence: Annotated[
        int,
        Meta(
            ge=0,
            le=OFFSET_MAX,
            description="Number of the answer with which the sequence of runs began that this "
            "request continues; 0: another one begins, at `acknowledged`.",
        ),
    ] = 0
    answer: Annotated[
        int,
        Meta(
            ge=0,
            le=OFFSET_MAX,
            description="Number of the last answer that it received in this epoch; 0: none.",
        ),
    ] = 0
    wait_seconds: Annotated[
        float,
        Meta(ge=0, le=FETCH_WAIT_SECONDS_MAX, description="The time to wait at the log's end."),
    ] = 0
    bytes_max: Annotated[
        int,
        Meta(
            ge=1,
            le=RUN_SIZE_MAX,
            description="Maximum bytes of the run; the first write is always returned.",
        ),
    ] = RUN_SIZE_DEFAULT


class LineageTail(Request):
    """The end of the common part of two logs, as one of them has it."""

    begin: Offset = Field(description="Log offset of the first byte.")
    end: Offset = Field(description="Log offset after the last one.")
    digest: str = Field(
        pattern=r"^[0-9a-f]{64}$", description="SHA-256 of the bytes, in hexadecimal."
    )


class LineageRequest(Request):
    """The extent of a replica's log, and the proof of its end."""

    replica_id: ReplicaId
    uid: StoreUid
    epoch: GroupEpoch
    log_id: str | None = Field(
        default=None, max_length=64, description="Id of the replica's log; null: unknown, or empty."
    )
    epochs: list[LogEpoch] = Field(
        max_length=EPOCH_COUNT_MAX, description="All epochs of the replica's log, oldest first."
    )
    min_offset: Offset = Field(description="Log offset of its first record.")
    end: Offset = Field(description="Log offset after its last record.")
    segment_bytes: int = Field(ge=1, le=OFFSET_MAX, description="Bytes of one of its segments.")
    tail: LineageTail | None = Field(
        default=None,
        description="Proof of what the last answer asked for; null: the question, without proof.",
    )

    @model_validator(mode="after")
    def _is_a_log(self) -> LineageRequest:
        if not _in_order(self.epochs):
            raise ValueError("epochs and their offsets must ascend")
        if self.min_offset > self.end:
            raise ValueError("min_offset is after end")
        if self.epochs and self.epochs[-1].begun_at >= self.end:
            raise ValueError("an epoch begins after the log's end")
        return self


class LineageAnswer(Answer):
    """The common end of two logs."""

    epoch: GroupEpoch
    cut_to: Offset = Field(
        description="Log offset up to which both logs are equal. The replica truncates its log "
        "there. An empty replica begins there."
    )
    tail_begin: Offset = Field(
        description="Log offset from which the replica proves its bytes, up to `cut_to`."
    )
    proved: bool = Field(
        description="true: the replica's log is a beginning of the master's, so its "
        "acknowledgements count from now on"
    )
    epochs: list[LogEpoch] = Field(description="All epochs of the master's log, oldest first.")
    confirmed: Offset = Field(description="Log offset before which everything is confirmed.")
    min_offset: Offset = Field(description="Log offset of the master's first record.")
    segment_bytes: int = Field(description="Bytes of one of the master's segments.")


class FollowedReplica(Answer):
    """A replica that follows the master, as the master knows it."""

    replica_id: int
    uid: str
    in_sync: bool = Field(description="whether nothing is confirmed without it")
    end: int = Field(description="log offset up to which it has acknowledged everything")
    behind_bytes: int
    silent_seconds: float = Field(description="time since its last request")
    behind_seconds: float = Field(description="time since it last had everything; 0: it has now")


class Following(Answer):
    """A replica's own progress."""

    state: str = Field(
        description="`connecting`, `proving lineage`, `cutting`, `following`, `halted`, `refused`"
    )
    reason: str | None = Field(
        description="why it does not follow: its last failure, or the refusal of its lineage; "
        "null: it follows"
    )
    master_url: str
    behind_bytes: int | None = Field(description="null: unknown, it has not reached the master")
    behind_seconds: float | None
    tier_bytes: int = Field(
        default=0, description="bytes of the log that it has copied from the tier in this epoch"
    )
    last_contact_at: Instant | None = Field(description="time of the master's last answer")
    clock_skew_seconds: float | None = Field(
        description="this replica's clock minus the master's; null: unknown"
    )


class ReplicationStatus(Answer):
    """A replica's part in its broker group."""

    role: ReplicationRole
    replica_id: int | None = Field(description="null: the broker is standalone")
    uid: str | None
    former_uids: list[str] = Field(
        default=[],
        description="the uids under which the store may have lost records, latest first",
    )
    priority: int = 0
    epoch: int = Field(description="of the master that this replica is, or follows; 0: none")
    last_epoch: int = Field(description="the last epoch of its log; 0: none")
    known_epoch: int = Field(
        default=0, description="of the latest version of the group's row that it knows; 0: none"
    )
    known_number: int = Field(default=0, description="the `number` of that version")
    damaged: bool = Field(
        default=False, description="true: its log has damage that no other replica could repair"
    )
    min_offset: int = Field(description="log offset of its first record")
    end: int = Field(description="log offset after its last record")
    durable: int = Field(description="log offset before which everything is durable here")
    confirmed: int = Field(description="log offset before which everything is confirmed")
    kept_from: int | None = Field(
        default=None,
        description="log offset from which retention keeps the log for other replicas; null: none "
        "needs it, or this is no master",
    )
    in_sync: list[ReplicaName] = Field(description="the in-sync set; empty: unknown here")
    sole_master_seconds: float | None = Field(
        description="time for which no other replica can be master; null: this is no master, or "
        "nothing limits its term"
    )
    replicas: list[FollowedReplica] = Field(description="that follow this master")
    following: Following | None = Field(description="null: it is the master, or standalone")


class SwitchRequest(Request):
    """Let another replica become master."""

    to: ReplicaId | None = Field(
        default=None, description="its id; null: the one that has acknowledged most"
    )


class SwitchResult(Answer):
    """The successor of a master that has handed over."""

    epoch: int = Field(description="the successor begins its term in a later one")
    master: ReplicaName
    master_urls: dict[str, str] = Field(description="by network")
