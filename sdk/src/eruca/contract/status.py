"""JSON models of ``GET /v1/status``: brokers and name servers."""

from __future__ import annotations

from typing import Literal

from pydantic import (
    Field,
)

from eruca.contract.fields import Answer, BrokerRole
from eruca.contract.times import Instant


class ProjectionStatus(Answer):
    """How far a projection of the log has come."""

    name: str
    log_offset: int = Field(description="everything before it has been read")
    behind_bytes: int
    failure: str | None = Field(
        default=None,
        description="why it lacks what it is behind, where that could not be written: the log goes "
        "on, and it is tried again; or what was found damaged: a restart makes that anew",
    )


class LogStatus(Answer):
    """What the log holds."""

    log_id: str | None = Field(
        default=None,
        description="Tells this log from any other that this broker has or had; null: the broker "
        "is of a version that does not tell.",
    )
    min_offset: int
    max_offset: int = Field(description="where the next record goes")
    flushed_offset: int = Field(description="everything before it survives power loss")
    segment_size: int
    segment_count: int


class BrokerStatus(Answer):
    """Who a broker is and how it is doing."""

    cluster: str
    broker_name: str
    broker_id: int
    role: BrokerRole
    version: str
    store_host: str
    started_at: Instant
    now: Instant | None = Field(
        default=None,
        description="by the broker's clock, which the times in its log are by; null: it is of a "
        "version that does not tell",
    )
    flush_mode: Literal["sync", "async"]
    is_writable: bool
    refusal: str | None = Field(description="why writes are refused, else null")
    disk_used_ratio: float
    log: LogStatus
    projections: list[ProjectionStatus]
    held_requests: int
    held_requests_max: int
    bytes_in_flight: int
    bytes_in_flight_max: int
    consume_bytes_in_flight: int
    consume_bytes_in_flight_max: int
    topics: int
    groups: int


class NamesrvStatus(Answer):
    """Who a name server is and what it knows."""

    version: str
    started_at: Instant
    settling_seconds: float = Field(
        description="brokers may be missing for so long, for it has just started; 0: not any more"
    )
    brokers: int
    topics: int
    held_requests: int
    held_requests_max: int
