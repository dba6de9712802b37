"""Repeat a refused text in an error, without repeating a megabyte of it."""

from __future__ import annotations

from typing import Final

SHOWN_SIZE_MAX: Final = 80  # characters of a refused text in an error


def shown(text: str, size_max: int = SHOWN_SIZE_MAX) -> str:
    """Return *text*, truncated to *size_max* characters; the last one marks the truncation."""
    return text if len(text) <= size_max else text[: size_max - 1] + "…"
