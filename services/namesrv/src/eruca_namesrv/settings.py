"""The name server's settings, from ``ERUCA_NAMESRV_*``."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, ClassVar, Final

from pydantic import AfterValidator, Field
from pydantic_settings import SettingsConfigDict

from eruca.contract.limits import SETTLE_SECONDS_DEFAULT
from eruca_chassis.running.settings import ServiceSettings, at_least

_NAME: Final = re.compile(r"[a-zA-Z0-9_.@-]+")


def _checked_names(text: str | None) -> str | None:
    for name in split_names(text) or ():
        if not _NAME.fullmatch(name):
            raise ValueError(f"invalid name {name!r}; separate several names with ';'")
    return text


def split_names(text: str | None) -> frozenset[str] | None:
    """Split *text* at semicolons into names; return None for None."""
    if text is None:
        return None
    return frozenset(name.strip() for name in text.split(";") if name.strip())


class NamesrvSettings(ServiceSettings):
    """The settings of a name server."""

    model_config = SettingsConfigDict(env_prefix="ERUCA_NAMESRV_")
    shared_variables: ClassVar[frozenset[str]] = frozenset({"ERUCA_NAMESRV_URLS"})  # for clients

    port: int = Field(
        default=9876, ge=0, le=65_535, description="port to listen on; 0: any free one"
    )
    kv_file: Path | None = Field(
        default=None,
        description="file of the key-value table; unset: in memory, lost at a restart",
    )
    kv_characters_max: int = Field(
        default=16 * 1024 * 1024, ge=1024, description="characters of all keys and values"
    )
    body_bytes_max: int = Field(
        default=32 * 1024 * 1024,
        ge=64 * 1024,
        description="bytes of one request; a registration lists every topic of a broker",
    )
    bodies_bytes_max: Annotated[int, at_least("body_bytes_max")] = Field(
        default=128 * 1024 * 1024,
        ge=64 * 1024,
        description="bytes of all requests in progress; at least body_bytes_max",
    )
    brokers_max: int = Field(default=10_000, ge=1, description="brokers registered at once")
    topics_max: int = Field(
        default=1_000_000, ge=1, description="topics; a topic counts once for each broker name"
    )
    settle_seconds: float = Field(
        default=SETTLE_SECONDS_DEFAULT,
        ge=0,
        le=600,
        description="seconds after the start in which brokers may not have registered yet. Until "
        "then an unknown topic is 503, not 404, and lists are refused. Keep it at "
        "ERUCA_BROKER_HEARTBEAT_SECONDS + 7",
    )
    expected_brokers: Annotated[str | None, AfterValidator(_checked_names)] = Field(
        default=None,
        description="names of all brokers, separated by ';'. Once they have registered, "
        "settle_seconds ends early. Unset: unknown",
    )
    expected_services: Annotated[str | None, AfterValidator(_checked_names)] = Field(
        default=None,
        description="the same for services that announce themselves: their ERUCA_QUERY_NAME and "
        "ERUCA_TXN_CHECKER_NAME. Empty: there are none",
    )
    held_requests_max: int = Field(
        default=5_000, ge=0, description="route requests held until the route changes"
    )
    returns_order_config: bool = Field(
        default=False,
        description="whether a topic's entry of ORDER_TOPIC_CONFIG overrides the order config that "
        "its brokers registered",
    )
