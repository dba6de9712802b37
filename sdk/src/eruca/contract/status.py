"""JSON models of ``GET /v1/status``: brokers, name servers and controllers."""

from __future__ import annotations

from typing import Literal

from pydantic import (
    Field,
)

from eruca.contract.fields import Answer, BrokerRole
from eruca.contract.times import Instant


class ProjectionStatus(Answer):
    """Progress of a projection of the log."""

    name: str
    log_offset: int = Field(description="the projection has read everything before this offset")
    behind_bytes: int
    failure: str | None = Field(
        default=None,
        description="reason why the projection is behind: a write failed, and the broker retries "
        "it while the log goes on; or the projection is damaged, and a restart rebuilds it",
    )


class LogStatus(Answer):
    """Extent of the log."""

    log_id: str | None = Field(
        default=None,
        description="Distinguishes this log from any other log of this broker; null: the broker's "
        "version does not report it.",
    )
    min_offset: int = Field(description="offset of the first record on the broker's disk")
    tier_min_offset: int | None = Field(
        default=None,
        description="offset of the first record in the tier, from which messages can be pulled; "
        "null: nothing is there, or that is not known yet",
    )
    begin_offset: int | None = Field(
        default=None,
        description="offset of the first record that the log feed has, in the tier or on the "
        "broker's disk; null: it is not known yet what the tier has; missing: the broker's version "
        "does not report it",
    )
    max_offset: int = Field(description="offset of the next record")
    flushed_offset: int = Field(description="all bytes before this offset survive power loss")
    segment_bytes: int
    segment_count: int


class TierStatus(Answer):
    """The tier: closed segments of the log in an object store."""

    min_offset: int | None = Field(
        description="log offset of its first record; null: it is empty, or not known yet"
    )
    max_offset: int | None = Field(description="log offset up to which it has the log")
    manifest: int = Field(description="number of the manifest by which it is read; 0: none")
    segment_count: int
    behind_bytes: int = Field(description="bytes of closed segments that it does not have yet")
    failure: str | None = Field(
        description="reason why the last step failed; the broker repeats it; null: it did not"
    )
    cache_bytes: int
    cache_bytes_max: int
    damaged_count: int = Field(
        description="reads since the start in which an object was not as it was uploaded"
    )
    missing_count: int = Field(
        description="objects that are missing, as the master's start or the last scrub has found"
    )
    damaged_objects: int = Field(
        default=0,
        description="objects that differ from what was uploaded, as the last scrub has found",
    )
    repaired_objects: int = Field(
        default=0, description="objects that the scrub has repaired since the start"
    )
    scrub_offset: int | None = Field(
        default=None,
        description="log offset of the segment that the tier's scrub has reached; null: it is not "
        "scrubbed",
    )
    scrub_rounds: int = Field(
        default=0, description="number of times that the scrub has read the whole tier"
    )


class BrokerStatus(Answer):
    """Identity and health of a broker."""

    cluster: str
    broker_name: str
    broker_id: int
    role: BrokerRole
    version: str
    store_host: str
    started_at: Instant
    now: Instant | None = Field(
        default=None,
        description="time of the broker's clock, which also stamps its log; null: the broker's "
        "version does not report it",
    )
    flush_mode: Literal["sync", "async"]
    is_writable: bool
    refusal: str | None = Field(description="reason for refusing writes; null: none")
    disk_used_ratio: float
    log: LogStatus
    projections: list[ProjectionStatus]
    tier: TierStatus | None = Field(
        default=None, description="null: the broker has no tier, or its version does not report it"
    )
    held_requests: int
    held_requests_max: int
    bytes_in_flight: int
    bytes_in_flight_max: int
    consume_bytes_in_flight: int
    consume_bytes_in_flight_max: int
    topics: int
    groups: int


class NamesrvStatus(Answer):
    """Identity and health of a name server."""

    version: str
    started_at: Instant
    settling_seconds: float = Field(
        description="time in which brokers may still be missing after the start; 0: over"
    )
    brokers: int
    topics: int
    held_requests: int
    held_requests_max: int


class ControllerStatus(Answer):
    """Identity and health of a controller."""

    version: str
    started_at: Instant
    store: Literal["postgres", "etcd", "kubernetes", "file"] = Field(
        description="store of the broker groups"
    )
    changes: int = Field(description="changes made through this controller since its start")
    held_requests: int
    held_requests_max: int
