"""The console's settings, from ``ERUCA_CONSOLE_*``."""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path
from typing import Annotated, ClassVar, Final

from pydantic import AfterValidator, Field
from pydantic_settings import SettingsConfigDict

from eruca.contract.issuers import IssuerUrl
from eruca.contract.urls import checked_url
from eruca.core.client_settings import NAMESRV_URLS_DEFAULT, NETWORK_DEFAULT
from eruca_chassis.running.settings import ServiceSettings, checked_urls, split_urls
from eruca_console.core.code_client import CodeClient

_OWN_CREDENTIALS: Final = (
    "ERUCA_API_KEY",
    "ERUCA_API_KEY_FILE",
    "ERUCA_TOKEN_PROVIDER",
    "ERUCA_TLS_CERT_FILE",
)


def _checked_without_slash(url: str) -> str:
    return checked_url(url.removesuffix("/"))


def _checked_name_servers(text: str) -> str:
    if not split_urls(checked_urls(text)):
        raise ValueError(f"contains no URL; expected one such as {NAMESRV_URLS_DEFAULT}")
    return text


class ConsoleSettings(ServiceSettings):
    """The settings of a console."""

    model_config = SettingsConfigDict(env_prefix="ERUCA_CONSOLE_")
    shared_variables: ClassVar[frozenset[str]] = frozenset({"ERUCA_CONSOLE_URLS"})  # the clients'

    port: int = Field(default=10941, ge=0, le=65_535, description="port to listen on; 0: any free")
    advertised_url: Annotated[str, AfterValidator(_checked_without_slash)] | None = Field(
        default=None,
        description="URL at which browsers reach it, if that is a proxy's; https:// makes its "
        "cookies secure",
    )
    namesrv_urls: Annotated[str, AfterValidator(_checked_name_servers)] = Field(
        default=NAMESRV_URLS_DEFAULT,
        description="URLs of all name servers, separated by semicolons",
    )
    network: str = Field(
        default=NETWORK_DEFAULT, min_length=1, description="network whose broker URLs to use"
    )
    request_timeout_seconds: float = Field(
        default=3, gt=0, le=60, description="time-out of a request to the cluster"
    )
    sessions_max: int = Field(
        default=200,
        ge=1,
        le=10_000,
        description="people logged in at the same time; beyond it the session that has been idle "
        "longest ends",
    )
    session_idle_minutes: float = Field(
        default=60, gt=0, le=100_000, description="minutes without a request that end a session"
    )
    session_hours_max: float = Field(
        default=12, gt=0, le=10_000, description="hours after which a session ends in any case"
    )
    oidc_issuer: IssuerUrl | None = Field(
        default=None,
        description="URL of an issuer (OpenID Connect) at which people log in; the rules name it, "
        "too",
    )
    oidc_client_id: str | None = Field(
        default=None, min_length=1, max_length=255, description="the console's name there"
    )
    oidc_client_secret_file: Path | None = Field(
        default=None, description="file with the console's secret there, if it has one"
    )
    oidc_scopes: str = Field(
        default="openid",
        pattern=r"(^|.* )openid($| .*)",
        description="scopes to request, separated by blanks; `openid offline_access` if the issuer "
        "gives refresh tokens only for that",
    )
    streams_max: int = Field(
        default=200, ge=0, le=10_000, description="pages that are kept up to date at the same time"
    )
    streams_per_caller_max: int = Field(
        default=20, ge=0, le=10_000, description="… of one session, or of one address without one"
    )
    live_seconds: float = Field(
        default=2, ge=0.05, le=3_600, description="time between two updates of an open page"
    )

    @property
    def is_secure(self) -> bool:
        """True if browsers reach the console over HTTPS, its own or a proxy's."""
        return self.scheme == "https" or (self.advertised_url or "").startswith("https://")

    def code_client(self) -> CodeClient | None:
        """Return the console as an issuer's client; None: people log in with keys only."""
        if self.oidc_issuer is None or self.oidc_client_id is None:
            return None
        return CodeClient(
            self.oidc_issuer,
            self.oidc_client_id,
            None if self.oidc_client_secret_file is None else str(self.oidc_client_secret_file),
            self.oidc_scopes,
        )

    def _conflicts(self) -> list[str]:
        faults = super()._conflicts()
        if (self.oidc_issuer is None) != (self.oidc_client_id is None):
            faults.append("ERUCA_CONSOLE_OIDC_ISSUER and ERUCA_CONSOLE_OIDC_CLIENT_ID: set both")
        if self.oidc_issuer is not None and not self.has_rules:
            faults.append("ERUCA_CONSOLE_OIDC_ISSUER: without rules there is no log-in")
        if not self.has_rules:
            # Callers without a session would call with these, and have the console's rights.
            faults += [
                f"{name}: not without rules: the console has no credentials of its own; set "
                "ERUCA_AUTH_FILE to the cluster's rules, or unset it"
                for name in _OWN_CREDENTIALS
                if os.environ.get(name)
            ]
        return faults

    def announced_urls(self) -> Collection[str]:
        """Return the URL that browsers use, if it is set."""
        return () if self.advertised_url is None else (self.advertised_url,)
