"""Texts that PostgreSQL takes: any but for the character 0 and halves of surrogate pairs."""

from __future__ import annotations

from typing import Any, Final

_REPLACEMENT: Final = "\ufffd"


def storable(text: str) -> str:
    """Return *text* with what cannot be stored replaced."""
    if "\0" in text:
        text = text.replace("\0", _REPLACEMENT)
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def storable_detail(detail: dict[str, Any]) -> dict[str, Any]:
    """Return *detail* with what cannot be stored replaced in its texts."""
    return {
        name: storable(value) if isinstance(value, str) else value for name, value in detail.items()
    }
