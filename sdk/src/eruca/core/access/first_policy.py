"""Make API keys, and a first policy: one administrator, and a key for each kind of service."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from eruca.contract.access import StoredKey
from eruca.core.access.api_keys import ID_SIZE, SECRET_SIZE, new_key, presented_key
from eruca.core.access.policy_text import parse_policy, with_key
from eruca.core.access.roles import PREDEFINED_ROLES

ADMINISTRATOR: Final = "administrator"
SERVICE_ROLES: Final = (
    "broker",
    "console",
    "controller",
    "name-server",
    "query-service",
    "transaction-checker",
)
"""The predefined roles of services; the others are for people."""
assert {ADMINISTRATOR, *SERVICE_ROLES} <= PREDEFINED_ROLES.keys()

RandomBytes = Callable[[int], bytes]
"""Returns so many bytes of the system's random generator."""


@dataclass(frozen=True, slots=True)
class FirstPolicy:
    """The text of a policy, and the keys of which it has the digests.

    Attributes:
        text: The policy, as a file has it.
        administrator_key: The administrator's key.
        service_keys: The key of each service, by its role.
    """

    text: str
    administrator_key: str
    service_keys: Mapping[str, str]


def made_key(
    principal: str,
    random_bytes: RandomBytes,
    *,
    created_at: datetime,
    expires_at: datetime | None = None,
) -> tuple[str, StoredKey]:
    """Return a new key, and the key as it is stored.

    Raises:
        pydantic.ValidationError: *principal* is none.
    """
    key = new_key(random_bytes(ID_SIZE), random_bytes(SECRET_SIZE))
    presented = presented_key(key)
    assert presented is not None
    stored = StoredKey(
        id=presented.id,
        principal=principal,
        sha256=hashlib.sha256(key.encode()).hexdigest(),
        created_at=created_at,
        expires_at=expires_at,
    )
    return key, stored


def service_principal(role: str) -> str:
    """Return the principal of the services with a predefined role."""
    return f"service:{role}"


def first_policy(
    administrator: str, random_bytes: RandomBytes, *, created_at: datetime
) -> FirstPolicy:
    """Return a policy in which one principal may do everything, and services their work.

    Args:
        administrator: The principal.
        random_bytes: The source of the keys.
        created_at: The time that is noted with the keys.

    Raises:
        pydantic.ValidationError: *administrator* is no principal.
    """
    members = {ADMINISTRATOR: administrator} | {
        role: service_principal(role) for role in SERVICE_ROLES
    }
    lines = [
        "# Who may do what. Keys are here as digests only. Add rules, for instance:",
        "#",
        "# [[rules]]",
        '# allow = ["produce"]',
        '# on = ["topic:orders"]',
        '# to = ["user:checkout"]',
        "",
        "[roles]",
        *(f'{role} = ["{principal}"]' for role, principal in members.items()),
    ]
    text = "\n".join(lines) + "\n"
    keys: dict[str, str] = {}
    for role, principal in members.items():
        keys[role], stored = made_key(principal, random_bytes, created_at=created_at)
        text = with_key(text, stored)
    parse_policy(text)
    return FirstPolicy(text, keys.pop(ADMINISTRATOR), keys)
