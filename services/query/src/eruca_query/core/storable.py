"""Make texts storable: PostgreSQL accepts neither the character 0 nor lone surrogates."""

from __future__ import annotations

from typing import Any, Final

_REPLACEMENT: Final = "\ufffd"


def storable(text: str) -> str:
    """Replace the characters in *text* that cannot be stored."""
    if "\0" in text:
        text = text.replace("\0", _REPLACEMENT)
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def storable_detail(detail: dict[str, Any]) -> dict[str, Any]:
    """Replace the characters that cannot be stored in the texts of *detail*."""
    return {
        name: storable(value) if isinstance(value, str) else value for name, value in detail.items()
    }
