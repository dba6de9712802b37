"""The name server's settings, from ``ERUCA_NAMESRV_*``."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, ClassVar, Final

from pydantic import AfterValidator, Field
from pydantic_settings import SettingsConfigDict

from eruca.contract.limits import SETTLE_SECONDS_DEFAULT
from eruca_chassis.settings import ServiceSettings, at_least

_NAME: Final = re.compile(r"[a-zA-Z0-9_.@-]+")


def _checked_names(text: str | None) -> str | None:
    for name in split_names(text) or ():
        if not _NAME.fullmatch(name):
            raise ValueError(f"{name!r} is no name; separate several by ';'")
    return text


def split_names(text: str | None) -> frozenset[str] | None:
    """Return the names in *text*, which are separated by semicolons; None where it is None."""
    if text is None:
        return None
    return frozenset(name.strip() for name in text.split(";") if name.strip())


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
        default=SETTLE_SECONDS_DEFAULT,
        ge=0,
        le=600,
        description="how long after its start brokers may not have registered yet: until then what "
        "it does not know is 503, not 404, and nothing is listed. Raise it with "
        "ERUCA_BROKER_HEARTBEAT_SECONDS: 7 more than that",
    )
    expected_brokers: Annotated[str | None, AfterValidator(_checked_names)] = Field(
        default=None,
        description="names of all brokers, separated by ';': once they have registered, it waits "
        "no longer for settle_seconds. Unset: they are not known",
    )
    expected_services: Annotated[str | None, AfterValidator(_checked_names)] = Field(
        default=None,
        description="likewise, ERUCA_QUERY_NAME and ERUCA_TXN_CHECKER_NAME of the services that "
        "announce themselves; empty: there are none",
    )
    held_requests_max: int = Field(
        default=5_000, ge=0, description="route requests held until the route changes"
    )
    returns_order_config: bool = Field(
        default=False,
        description="whether a topic's entry of ORDER_TOPIC_CONFIG goes before what its brokers "
        "say of its order config",
    )
