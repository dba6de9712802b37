"""Fingerprints of errors: texts that differ only in their numbers are one error."""

from __future__ import annotations

import re
from typing import Final

SIZE_MAX: Final = 100  # characters
_CHANGING: Final = re.compile(r"\b(?:0x)?[0-9a-f]*[0-9][0-9a-f-]*\b", re.IGNORECASE)


def fingerprint(error: str | None) -> str:
    """Return the first line of *error* with ``#`` for its numbers; empty: there is no error."""
    lines = (error or "").strip().splitlines()
    return _CHANGING.sub("#", lines[0])[:SIZE_MAX] if lines else ""
