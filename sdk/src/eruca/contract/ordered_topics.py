"""Entries of the name servers' table of ordered topics, which they pass on to every broker."""

from __future__ import annotations

from typing import Final, TypeAlias

from pydantic import TypeAdapter, ValidationError

OrderedTopicsEntry: TypeAlias = dict[str, tuple[int, str]]
"""A broker's ordered topics: version and text of each order config; 0 and "" without one."""

_ENTRY: Final = TypeAdapter(OrderedTopicsEntry)


def ordered_topics_of(text: str) -> OrderedTopicsEntry:
    """Return the ordered topics of an entry; none if the entry is malformed."""
    try:
        return _ENTRY.validate_json(text)
    except ValidationError:
        return {}
