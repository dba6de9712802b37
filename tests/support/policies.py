"""Policies at the controllers, for tests: changes in which ann stays the administrator."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, Final

from support.rules import key_of

ANN: Final = "user:ann"


def stored_key(principal: str, number: int = 0) -> dict[str, str]:
    """Return the key of *principal*, as a policy has it."""
    key = key_of(principal, number)
    digest = hashlib.sha256(key.encode()).hexdigest()
    return {"id": key.split("_")[1], "principal": principal, "sha256": digest}


def policy_change(
    *rules: Mapping[str, Any],
    roles: Mapping[str, Sequence[str]] | None = None,
    keys: Sequence[str] = (ANN,),
) -> dict[str, Any]:
    """Return the body of a change."""
    return {
        "policy": {
            "roles": {"administrator": [ANN], **(roles or {})},
            "rules": list(rules),
            "keys": [stored_key(principal) for principal in keys],
        },
        "reason": "it is tested",
    }
