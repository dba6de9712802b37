"""A list's state is its URL."""

from __future__ import annotations

import pytest

from eruca.contract.errors import ValidationError
from eruca_console.core.listing import PAGE_SIZE, Listed, ListState, listed

COLUMNS = ("name", "size")


def state(**parameters: str) -> ListState:
    return ListState.of("/things", parameters, columns=COLUMNS, others=("kind",))


def shown(rows: list[tuple[str, int | None]], **parameters: str) -> Listed[tuple[str, int | None]]:
    return listed(
        rows,
        state(**parameters),
        name_of=lambda row: row[0],
        key_of={"name": lambda row: row[0], "size": lambda row: row[1]},
    )


def test_the_url_of_a_state_gives_the_same_state() -> None:
    read = state(q="a b&c", sort="-size", page="3", kind="x y")

    path, _, query = read.url().partition("?")
    assert (path, query) == ("/things", "kind=x+y&q=a+b%26c&sort=-size&page=3")


def test_another_order_or_search_begins_at_the_first_page() -> None:
    read = state(page="3")

    assert "page" not in read.url(query="x")
    assert "page" not in read.sorted_by("size")
    assert read.url(page=4).endswith("page=4")
    assert read.url(format="csv") == "/things?sort=name&format=csv"


def test_a_second_click_on_a_column_turns_the_order() -> None:
    assert "sort=size" in state().sorted_by("size")
    assert "sort=-size" in state(sort="size").sorted_by("size")
    assert "sort=size" in state(sort="-size").sorted_by("size")
    orders = [state(sort=sort).order_of("size") for sort in ("name", "size", "-size")]
    assert orders == ["none", "ascending", "descending"]


@pytest.mark.parametrize(
    ("parameters", "named"),
    [
        ({"colour": "red"}, "query.colour"),
        ({"sort": "colour"}, "query.sort"),
        ({"page": "0"}, "query.page"),
        ({"page": "٣"}, "query.page"),
        ({"page": "9" * 400}, "query.page"),
        ({"format": "xls"}, "query.format"),
        ({"q": "x" * 256}, "query.q"),
    ],
)
def test_a_parameter_that_is_not_understood_is_refused(
    parameters: dict[str, str], named: str
) -> None:
    with pytest.raises(ValidationError, match=named):
        state(**parameters)


def test_the_search_is_for_a_part_of_the_name_in_any_case() -> None:
    found = shown([("Orders", 1), ("returns", 2), ("reorder", 3)], q="ORDER")

    assert [row[0] for row in found.rows] == ["Orders", "reorder"]
    assert (found.total, found.all_total) == (2, 3)


def test_unknown_values_come_last_in_both_orders() -> None:
    rows: list[tuple[str, int | None]] = [("a", None), ("b", 2), ("c", 1), ("d", 2)]

    assert [row[0] for row in shown(rows, sort="size").rows] == ["c", "b", "d", "a"]
    assert [row[0] for row in shown(rows, sort="-size").rows] == ["b", "d", "c", "a"]


def test_a_page_beyond_the_end_is_the_last_one() -> None:
    rows: list[tuple[str, int | None]] = [(f"{n:03}", n) for n in range(PAGE_SIZE + 3)]

    found = shown(rows, page="9")

    assert (found.state.page, found.page_count) == (2, 2)
    assert (found.first, found.last, found.total) == (PAGE_SIZE + 1, PAGE_SIZE + 3, PAGE_SIZE + 3)


def test_an_empty_list_has_one_page() -> None:
    found = shown([])

    assert (found.first, found.last, found.page_count) == (0, 0, 1)
