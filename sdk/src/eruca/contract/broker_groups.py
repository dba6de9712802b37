"""Broker groups, as the arbiter keeps them: one row for each broker name.

The row names the group's master, its epoch and its in-sync set. A broker changes it by a PUT on the
condition that it still has the version that the broker has read. So if two replicas want to become
master, one of them is refused. The controller checks these rules of each row, and decides nothing:

1. The master is in the in-sync set.
2. The epoch never decreases, and the master changes only with a new epoch.
3. No store is in the in-sync set twice, and no replica id is listed twice.

A broker whose PUT was not answered repeats it unchanged. The controller recognizes a change that it
has made already, and answers as it would have answered the first time.
"""

from __future__ import annotations

from collections import Counter
from typing import Annotated, Literal

from pydantic import ConfigDict, Field, ValidationInfo, field_validator

from eruca.contract.fields import OFFSET_MAX, Answer, BrokerName, NetworkUrls, Request
from eruca.contract.limits import (
    CHANGE_AUTHOR_SIZE_MAX,
    GROUP_WAIT_SECONDS_MAX,
    REASON_SIZE_MAX,
    REPLICA_COUNT_MAX,
    STORE_UID_SIZE_MAX,
)
from eruca.contract.times import Instant

_PRINTED = r"^[^\x00-\x1f\x7f]+$"  # it is shown in one line

GroupEpoch = Annotated[
    int,
    Field(ge=1, le=OFFSET_MAX, description="Number of the master's term.", examples=[7]),
]
ReplicaId = Annotated[
    int,
    Field(
        ge=1,
        le=2**31 - 1,
        description="Number of the replica in its group, fixed by its broker's setting.",
        examples=[1],
    ),
]
StoreUid = Annotated[
    str,
    Field(
        min_length=1,
        max_length=STORE_UID_SIZE_MAX,
        pattern=r"^[A-Za-z0-9_-]+$",
        description="Random text that identifies a store. A store has another one after its disk "
        "was replaced, or after it may have lost records.",
        examples=["9f31c2d07be84a15"],
    ),
]
Author = Annotated[
    str,
    Field(
        min_length=1,
        max_length=CHANGE_AUTHOR_SIZE_MAX,
        pattern=_PRINTED,
        description="Author of the change: a replica, or an operator.",
        examples=["broker-a replica 2"],
    ),
]
Reason = Annotated[
    str,
    Field(
        min_length=1,
        max_length=REASON_SIZE_MAX,
        pattern=_PRINTED,
        description="Reason of the change, for the history.",
        examples=["master 1 has been silent for 5 s"],
    ),
]
GroupWaitSeconds = Annotated[float, Field(ge=0, le=GROUP_WAIT_SECONDS_MAX, allow_inf_nan=False)]
ReplicaKind = Literal["member", "learner"]
GroupFlushMode = Literal["sync", "async"]
ChangeKind = Literal["created", "changed", "removed"]


class ReplicaName(Answer):
    """A store, as a group names it: a replica's id, and the store's own uid.

    Unlike a request, it may have fields of a later version, because brokers of several versions
    read one row.
    """

    model_config = ConfigDict(strict=True)

    replica_id: ReplicaId
    uid: StoreUid


class Replica(ReplicaName):
    """A replica of a group, in its in-sync set or not."""

    urls: NetworkUrls
    kind: ReplicaKind = Field(
        default="member",
        description="A `learner` is never taken into the in-sync set.",
    )
    priority: Annotated[int, Field(ge=-1_000, le=1_000)] = Field(
        default=0,
        description="Of several replicas that hold the same records, the one with the highest "
        "priority becomes master.",
    )


InSync = Annotated[
    list[ReplicaName],
    Field(
        min_length=1,
        max_length=REPLICA_COUNT_MAX,
        description="Replicas that hold every confirmed record. Only they can become master.",
    ),
]
Replicas = Annotated[
    list[Replica],
    Field(
        min_length=1,
        max_length=REPLICA_COUNT_MAX,
        description="All replicas of the group, and their URLs.",
    ),
]
MinInSync = Annotated[
    int,
    Field(
        ge=1,
        le=REPLICA_COUNT_MAX,
        description="With fewer members in the in-sync set, the master refuses sends.",
        examples=[1],
    ),
]
FlushMode = Annotated[
    GroupFlushMode,
    Field(
        description="Durability that an acknowledgement of a replica stands for: `sync`: flushed; "
        "`async`: written"
    ),
]
IsUnclean = Annotated[
    bool,
    Field(
        description="true: the master of this epoch was not in the in-sync set before it, so "
        "confirmed records may be missing"
    ),
]


class BrokerGroupPut(Request):
    """Create or replace the row of a broker group."""

    epoch: GroupEpoch
    master: ReplicaName
    in_sync: InSync
    replicas: Replicas
    min_in_sync: MinInSync = 1
    flush_mode: FlushMode
    unclean: IsUnclean = False
    by: Author
    reason: Reason

    @field_validator("in_sync")
    @classmethod
    def _has_the_master_and_no_duplicates(
        cls, value: list[ReplicaName], info: ValidationInfo
    ) -> list[ReplicaName]:
        twice = [f"{one.replica_id} ({one.uid})" for one in value if value.count(one) > 1]
        if twice:
            raise ValueError(f"replica {twice[0]} is in the in-sync set twice; name it once")
        master = info.data.get("master")  # None: it is invalid itself
        if master is not None and master not in value:
            raise ValueError(
                f"master {master.replica_id} ({master.uid}) is not in the in-sync set; add it, or "
                "make a member the master"
            )
        return value

    @field_validator("replicas")
    @classmethod
    def _has_no_duplicates(cls, value: list[Replica]) -> list[Replica]:
        (replica_id, count), *_ = Counter(one.replica_id for one in value).most_common(1)
        if count > 1:
            raise ValueError(
                f"replica id {replica_id} is listed {count} times; give each replica its own "
                "ERUCA_BROKER_REPLICA_ID"
            )
        return value


class BrokerGroupView(Answer):
    """A broker group's row, and its version."""

    broker_name: BrokerName
    version: str = Field(
        description="Changes exactly when the row does; the ETag, without its quotes.",
        examples=["12-5f0c9a6e1b7d4823"],
    )
    number: int = Field(
        default=0,
        description="Of the change that made this version, counted from 1; if it decreases, the "
        "arbiter has lost changes.",
        examples=[12],
    )
    changed_at: Instant
    epoch: int
    master: ReplicaName
    in_sync: list[ReplicaName]
    replicas: list[Replica]
    min_in_sync: int
    flush_mode: GroupFlushMode
    unclean: bool
    by: str
    reason: str


class BrokerGroupList(Answer):
    """A page of broker groups, by name."""

    groups: list[BrokerGroupView]
    next_cursor: str | None = None


class BrokerGroupChange(Answer):
    """One change of a group's row; for `removed`, the values are those that were removed."""

    kind: ChangeKind
    version: str = Field(description="version of the row after the change")
    changed_at: Instant
    epoch: int
    master: ReplicaName
    in_sync: list[ReplicaName]
    min_in_sync: int
    unclean: bool
    by: str | None = Field(description="author of the change; null: not named")
    reason: str | None


class BrokerGroupHistory(Answer):
    """A page of a group's changes, the newest first."""

    broker_name: str
    changes: list[BrokerGroupChange]
    next_cursor: str | None = None
