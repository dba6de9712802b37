"""Entries of the name servers' table of ordered topics, which brokers are told of each other."""

from __future__ import annotations

from typing import Final, TypeAlias

from pydantic import TypeAdapter, ValidationError

OrderedTopicsEntry: TypeAlias = dict[str, tuple[int, str]]
"""A broker's ordered topics: version and text of each one's order config; 0 and "" without one."""

_ENTRY: Final = TypeAdapter(OrderedTopicsEntry)


def ordered_topics_of(text: str) -> OrderedTopicsEntry:
    """Return the ordered topics of an entry; none where it is not one that a broker made."""
    try:
        return _ENTRY.validate_json(text)
    except ValidationError:
        return {}
