"""Moments in requests: RFC 3339 with an offset, and nothing else that could be taken for one."""

from __future__ import annotations

from typing import Annotated, TypeAlias

from pydantic import AwareDatetime, BeforeValidator


def _not_a_number(value: object) -> object:
    # Pydantic would take a bare number for seconds, or milliseconds, since 1970.
    if isinstance(value, str) and "T" not in value.upper():
        raise ValueError("a time is written as in 2026-11-21T08:00:00Z")
    return value


Moment: TypeAlias = Annotated[AwareDatetime, BeforeValidator(_not_a_number)]
