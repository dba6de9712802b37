"""Settings of the gate, shared by all services, and the gate that follows from them."""

from __future__ import annotations

import os
from pathlib import Path

from eruca.core.access.policy_text import InvalidPolicyError
from eruca.services.http import HttpTransport, credentials_of, http1_transport
from eruca_access.following import FollowingSource
from eruca_access.gate import PolicyGate
from eruca_access.sources import FileSource, PolicySource
from eruca_chassis.running.settings import ServiceSettings, split_urls
from eruca_chassis.start import StartError


def gate_of(settings: ServiceSettings, service: str, own_name: str = "") -> PolicyGate | None:
    """Return the gate of a service with these settings; None: everybody may do everything.

    Args:
        settings: The service's.
        service: Its kind, for audit records.
        own_name: The service's own name; only a broker has one.

    Raises:
        StartError: The file of rules has a mistake.
    """
    if not settings.has_rules:
        return None
    return PolicyGate(_source_of(settings), own_name, f"{service} {own_name}".strip())


def _source_of(settings: ServiceSettings) -> PolicySource:
    if settings.auth == "controller":
        return FollowingSource(
            split_urls(settings.auth_urls), settings.policy_path.absolute(), _transport
        )
    return file_source(settings)


def file_source(settings: ServiceSettings) -> FileSource:
    """Return the rules in the file of ``ERUCA_AUTH_FILE``.

    Raises:
        StartError: It has a mistake.
    """
    assert settings.auth_file is not None
    try:
        return FileSource(Path(settings.auth_file))
    except InvalidPolicyError as error:
        raise StartError(f"ERUCA_AUTH_FILE: {error}") from error


def _transport() -> HttpTransport:
    return http1_transport(credentials_of(os.environ))
