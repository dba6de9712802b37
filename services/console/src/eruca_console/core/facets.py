"""Facets of a list: for each, the values that its rows have, to choose one of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeVar

from eruca_console.core.listing import ListState

VALUES_MAX: Final = 8  # shown of a facet, the most frequent ones

RowT = TypeVar("RowT")
Choice = tuple[str, int, str, bool]
"""A value, its number of rows, the URL that chooses it or leaves it, and whether it is chosen."""


def matches(row: RowT, chosen: Mapping[str, str], value_of: Callable[[RowT, str], str]) -> bool:
    """Tell whether a row has the chosen value of each facet."""
    return all(value_of(row, facet) == value for facet, value in chosen.items())


def choices(
    rows: Sequence[RowT],
    state: ListState,
    names: Sequence[str],
    value_of: Callable[[RowT, str], str],
) -> dict[str, list[Choice]]:
    """Return the choices of each facet; rows count that match what is chosen of the others.

    Args:
        rows: All rows.
        state: The list's; its other parameters are the chosen values, and may be more.
        names: The facets.
        value_of: Returns the value of a row for a facet; empty: it has none.
    """
    found: dict[str, list[Choice]] = {}
    for facet in names:
        others = {name: value for name, value in state.others.items() if name != facet}
        chosen = {name: value for name, value in others.items() if name in names}
        counts = Counter(value_of(row, facet) for row in rows if matches(row, chosen, value_of))
        counts.pop("", None)
        found[facet] = [
            (
                value,
                count,
                state.url(others=others)
                if state.others.get(facet) == value
                else state.url(others={**others, facet: value}),
                state.others.get(facet) == value,
            )
            for value, count in counts.most_common(VALUES_MAX)
        ]
    return found
