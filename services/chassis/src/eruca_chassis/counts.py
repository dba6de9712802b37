"""Counts of things, as text."""

from __future__ import annotations


def counted(count: int, noun: str, plural: str | None = None) -> str:
    """Return a count with its noun: ``1 key``, ``2 keys``."""
    return f"{count} {noun if count == 1 else plural or noun + 's'}"
