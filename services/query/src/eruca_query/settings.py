"""The query service's settings, from ``ERUCA_QUERY_*`` and ``DATABASE_URL``."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from pydantic import Field
from pydantic_settings import SettingsConfigDict

from eruca_postgres.settings import DatabaseSettings


class QuerySettings(DatabaseSettings):
    """What a query service can be told."""

    model_config = SettingsConfigDict(env_prefix="ERUCA_QUERY_")
    shared_variables: ClassVar[frozenset[str]] = frozenset({"ERUCA_QUERY_URLS"})  # the clients'

    port: int = Field(default=10931, ge=0, le=65_535, description="port to listen on; 0: any free")
    namesrv_urls: str = Field(
        default="http://127.0.0.1:9876",
        min_length=1,
        description="URLs of all name servers, separated by semicolons",
    )
    network: str | None = Field(
        default=None, description="which of the brokers' URLs to use; unset: the default ones"
    )
    postgres_dir: Path = Field(
        default=Path("query-postgres"), description="data of the embedded PostgreSQL"
    )
    export_count_max: int = Field(
        default=16, ge=1, le=1_000, description="exports that run at a time; each takes about 10 MB"
    )
    export_thread_count: int = Field(
        default=2, ge=1, le=64, description="threads that turn messages into rows, for all exports"
    )
    export_patience_seconds: float = Field(
        default=5, ge=0, le=60, description="an export waits so long for a broker that went away"
    )
