"""The query service's settings, from ``ERUCA_QUERY_*`` and ``DATABASE_URL``."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from pydantic import Field
from pydantic_settings import SettingsConfigDict

from eruca.contract.limits import LOG_READ_SIZE_MAX
from eruca_postgres.settings import InstanceName, ProjectionSettings


class QuerySettings(ProjectionSettings):
    """The settings of a query service."""

    model_config = SettingsConfigDict(env_prefix="ERUCA_QUERY_")
    shared_variables: ClassVar[frozenset[str]] = frozenset({"ERUCA_QUERY_URLS"})  # the clients'

    port: int = Field(default=10931, ge=0, le=65_535, description="port to listen on; 0: any free")
    name: InstanceName = "query"
    postgres_dir: Path = Field(
        default=Path("query-postgres"), description="data of the embedded PostgreSQL"
    )
    retention_hours: float = Field(
        default=168,
        ge=0.001,
        le=100_000,
        description="how long messages can be found after they were stored; their bodies are "
        "available as long as the brokers keep them",
    )
    chunk_rows: int = Field(
        default=1_000_000,
        ge=1,
        le=100_000_000,
        description="rows of a partition; smaller ones fill faster, larger ones search faster",
    )
    chunk_hours: float = Field(
        default=24,
        ge=0.001,
        le=10_000,
        description="… and the longest time that one covers: whole partitions are dropped",
    )
    read_bytes: int = Field(
        default=4 * 1024 * 1024,
        ge=64 * 1024,
        le=LOG_READ_SIZE_MAX,
        description="bytes of a log that are read and written in one transaction",
    )
    tail_bytes_max: int = Field(
        default=8 * 1024 * 1024,
        ge=64 * 1024,
        le=LOG_READ_SIZE_MAX,
        description="bytes of each log behind the read model that a request may search",
    )
    broker_seconds: float = Field(
        default=3, gt=0, le=60, description="timeout of a broker's answer"
    )
    export_count_max: int = Field(
        default=16,
        ge=1,
        le=1_000,
        description="concurrent exports; each takes about 10 MB, and many times that if producers "
        "have compressed bodies well",
    )
    export_worker_count: int = Field(
        default=2,
        ge=1,
        le=64,
        description="processes that turn messages into rows, for all exports; each takes about "
        "100 MB from the first export on, plus the memory of the exports",
    )
    export_patience_seconds: float = Field(
        default=5, ge=0, le=60, description="how long an export waits for an absent broker"
    )
