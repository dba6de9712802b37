"""Numbers of things, as a sentence has them."""

from __future__ import annotations


def counted(count: int, noun: str, plural: str | None = None) -> str:
    """Return how many there are of what: ``1 message``, ``2,000 messages``."""
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"
