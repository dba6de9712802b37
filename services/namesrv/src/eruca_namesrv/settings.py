"""The name server's settings, from ``ERUCA_NAMESRV_*``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, ClassVar

from pydantic import Field
from pydantic_settings import SettingsConfigDict

from eruca_chassis.settings import ServiceSettings, at_least


class NamesrvSettings(ServiceSettings):
    """What a name server can be told."""

    model_config = SettingsConfigDict(env_prefix="ERUCA_NAMESRV_")
    shared_variables: ClassVar[frozenset[str]] = frozenset({"ERUCA_NAMESRV_URLS"})  # the clients'

    port: int = Field(default=9876, ge=0, le=65_535, description="port to listen on; 0: any free")
    kv_file: Path | None = Field(
        default=None,
        description="where the key-value table is kept; unset: in memory, gone after a restart",
    )
    kv_size_max: int = Field(
        default=16 * 1024 * 1024, ge=1024, description="characters of all keys and values"
    )
    body_size_max: int = Field(
        default=32 * 1024 * 1024,
        ge=64 * 1024,
        description="bytes of one request; a registration lists every topic of a broker",
    )
    bodies_size_max: Annotated[int, at_least("body_size_max")] = Field(
        default=128 * 1024 * 1024,
        ge=64 * 1024,
        description="bytes of all requests under way; at least body_size_max",
    )
    brokers_max: int = Field(default=10_000, ge=1, description="brokers registered at a time")
    topics_max: int = Field(
        default=1_000_000, ge=1, description="topics, counted once for each broker name"
    )
    settle_seconds: float = Field(
        default=12,
        ge=0,
        le=600,
        description="how long after its start it tells clients that its routes may be partial: "
        "two heartbeats of a broker",
    )
    held_requests_max: int = Field(
        default=5_000, ge=0, description="route requests held until the route changes"
    )
    returns_order_config: bool = Field(
        default=False,
        description="whether a topic's entry of ORDER_TOPIC_CONFIG goes before what its brokers "
        "say of its order config",
    )
