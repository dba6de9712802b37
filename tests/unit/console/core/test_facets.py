"""Facets of a list: what can be chosen, how often it is there, and where its link leads."""

from __future__ import annotations

from typing import Final

from eruca_console.core.facets import choices, matches
from eruca_console.core.listing import ListState

ROWS: Final = (
    {"who": "ann", "what": "send"},
    {"who": "ann", "what": "read"},
    {"who": "bob", "what": "read"},
    {"what": "read"},
)


def value_of(row: dict[str, str], facet: str) -> str:
    return row.get(facet, "")


def state_of(**others: str) -> ListState:
    return ListState("/list", others=others)


def test_values_are_counted_and_rows_without_one_are_none() -> None:
    found = choices(ROWS, state_of(), ("who", "what"), value_of)

    assert [(value, count) for value, count, _, _ in found["who"]] == [("ann", 2), ("bob", 1)]
    assert [(value, count) for value, count, _, _ in found["what"]] == [("read", 3), ("send", 1)]


def test_a_facet_counts_what_is_left_by_the_others() -> None:
    found = choices(ROWS, state_of(who="ann", since="1h"), ("who", "what"), value_of)

    assert found["what"] == [
        ("send", 1, "/list?who=ann&since=1h&what=send", False),
        ("read", 1, "/list?who=ann&since=1h&what=read", False),
    ]
    assert found["who"][0] == ("ann", 2, "/list?since=1h", True), "a second click leaves it"


def test_a_row_matches_all_that_is_chosen() -> None:
    chosen = {"who": "ann", "what": "read"}

    assert [row for row in ROWS if matches(row, chosen, value_of)] == [ROWS[1]]
    assert matches(ROWS[3], {}, value_of)
