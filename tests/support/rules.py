"""Rules and API keys for tests: a file, and the headers of its callers."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from eruca.core.access.api_keys import ID_SIZE, SECRET_SIZE, new_key


def key_of(principal: str, number: int = 0) -> str:
    """Return the key of *principal*, the same in each test."""
    seed = f"{principal} {number}".encode()
    return new_key(
        hashlib.sha256(b"id " + seed).digest()[:ID_SIZE],
        hashlib.sha256(b"secret " + seed).digest()[:SECRET_SIZE],
    )


def bearer(principal: str, number: int = 0) -> dict[str, str]:
    """Return the headers of a request with the key as a bearer token."""
    return {"authorization": f"Bearer {key_of(principal, number)}"}


def basic(principal: str, user: str = "anybody") -> dict[str, str]:
    """Return the headers of a request with the key as a password."""
    pair = f"{user}:{key_of(principal)}".encode()
    return {"authorization": f"Basic {base64.b64encode(pair).decode()}"}


def write_rules(
    path: Path,
    *rules: Mapping[str, Any],
    roles: Mapping[str, Sequence[str]] | None = None,
    principals: Sequence[str] = (),
    expires_at: Mapping[str, datetime] | None = None,
    more: str = "",
) -> Path:
    """Write a file of rules in which each named principal has its key; return its path.

    Tokens and certificates prove other principals. *more* is TOML to append.
    """
    roles, expires_at = roles or {}, expires_at or {}
    named = {p for rule in rules for p in rule["to"] if not p.startswith("role:")}
    named |= {p for members in roles.values() for p in members} | set(principals)
    lines = ["[roles]", *(f"{name} = {json.dumps(members)}" for name, members in roles.items())]
    for rule in rules:
        lines += ["[[rules]]", *(f"{name} = {json.dumps(value)}" for name, value in rule.items())]
    for principal in sorted(named):
        if principal.startswith(("oidc:", "cert:")):
            continue
        key = key_of(principal)
        lines += [
            "[[keys]]",
            f'id = "{key.split("_")[1]}"',
            f'principal = "{principal}"',
            f'sha256 = "{hashlib.sha256(key.encode()).hexdigest()}"',
        ]
        if principal in expires_at:
            lines.append(f"expires_at = {expires_at[principal].isoformat()}")
    new = path.with_suffix(".new")
    new.write_text("\n".join(lines) + f"\n{more}")
    new.replace(path)  # as an editor does, so that a reader never finds half a file
    return path
