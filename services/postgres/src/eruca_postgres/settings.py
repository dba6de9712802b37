"""Settings of all services with a PostgreSQL; for a SQL projection also name servers and address.

``DATABASE_URL`` names the database; without it an embedded server is started.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Annotated, Final

from pydantic import AfterValidator, Field, field_validator

from eruca.contract.urls import checked_url
from eruca.core.client_settings import NAMESRV_URLS_DEFAULT, NETWORK_DEFAULT
from eruca_chassis.running.settings import (
    ServiceSettings,
    checked_segment,
    checked_urls,
    split_urls,
)

DRIVER: Final = "postgresql+psycopg"
_SCHEMES: Final = frozenset({"postgresql", "postgres", DRIVER})
NO_URL: Final = "not a postgresql:// URL"

InstanceName = Annotated[
    str,
    Field(
        min_length=1,
        max_length=64,
        pattern=r"^[A-Za-z0-9_.-]+$",
        description="prefix of the name by which others know this instance",
    ),
    AfterValidator(checked_segment),
]


def _checked_without_slash(url: str) -> str:
    return checked_url(url.removesuffix("/"))


def _checked_name_servers(text: str) -> str:
    if not split_urls(checked_urls(text)):
        raise ValueError(f"contains no URL; expected one such as {NAMESRV_URLS_DEFAULT}")
    return text


class DatabaseSettings(ServiceSettings):
    """The settings of a service with a PostgreSQL, its own or another."""

    database_url: str | None = Field(
        default=None,
        validation_alias="DATABASE_URL",
        repr=False,  # it may contain a password
        description="PostgreSQL, postgresql://USER:PASSWORD@HOST/DATABASE; unset: an embedded "
        "server is started in postgres_dir",
    )
    postgres_dir: Path = Field(
        default=Path("postgres"), description="data of the embedded PostgreSQL"
    )
    database_connections_max: int = Field(
        default=8, ge=2, le=200, description="connections to PostgreSQL"
    )

    @field_validator("database_url")
    @classmethod
    def _checked_url(cls, url: str | None) -> str | None:
        return sqlalchemy_url(url) if url else None  # an empty variable counts as unset


class AnnouncedSettings(DatabaseSettings):
    """The settings of a service with a PostgreSQL that is found through the name servers."""

    advertised_url: Annotated[str, AfterValidator(_checked_without_slash)] | None = Field(
        default=None,
        description="URL at which clients reach it; unset: from host and port",
    )
    namesrv_urls: Annotated[str, AfterValidator(_checked_name_servers)] = Field(
        default=NAMESRV_URLS_DEFAULT,
        description="URLs of all name servers, separated by semicolons",
    )

    def announced_urls(self) -> Collection[str]:
        """Return the URL that clients get for the service, if it is set."""
        return () if self.advertised_url is None else (self.advertised_url,)


class ProjectionSettings(AnnouncedSettings):
    """The settings of a service with a SQL projection."""

    name: InstanceName
    network: str = Field(
        default=NETWORK_DEFAULT, min_length=1, description="network whose broker URLs to use"
    )
    claim_seconds: float = Field(
        default=10,
        ge=1,
        le=300,
        description="seconds without a heartbeat after which an instance's brokers go to others",
    )


def sqlalchemy_url(url: str) -> str:
    """Return *url* with the driver used here.

    Raises:
        ValueError: It is not a URL of PostgreSQL. The text does not repeat the URL, which may
            contain the password.
    """
    from sqlalchemy.engine import make_url  # here: not every service has a database
    from sqlalchemy.exc import ArgumentError

    scheme, colon, rest = url.partition(":")
    if scheme.lower() not in _SCHEMES:
        raise ValueError(NO_URL)
    try:
        make_url(url)
    except (ArgumentError, ValueError):
        raise ValueError(NO_URL) from None
    return DRIVER + colon + rest
