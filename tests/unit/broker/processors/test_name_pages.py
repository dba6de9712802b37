"""Pages of names: all pages together are the whole list, and rights are asked for a page only."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from eruca_broker.processors.name_pages import page_of

names = st.sets(st.text("abc", min_size=1, max_size=3), max_size=20)


@given(names=names, hidden=names, limit=st.integers(1, 8))
def test_all_pages_together_are_what_the_caller_sees_in_order(
    names: set[str], hidden: set[str], limit: int
) -> None:
    found: list[str] = []
    after: str | None = None
    while True:
        page, after = page_of(names, after=after, limit=limit, sees=lambda name: name not in hidden)
        assert len(page) <= limit
        found += page
        if after is None:
            break
        assert len(page) == limit

    assert found == sorted(names - hidden)


def test_a_page_is_continued_behind_a_name_that_is_gone() -> None:
    assert page_of(["a", "c"], after="b", limit=5) == (["c"], None)


def test_rights_are_asked_for_no_more_names_than_the_page_needs() -> None:
    asked: list[str] = []

    def sees(name: str) -> bool:
        asked.append(name)
        return True

    page = page_of([f"{number:02}" for number in range(50)], after="09", limit=3, sees=sees)

    assert page == (["10", "11", "12"], "12")
    assert asked == ["10", "11", "12", "13"]
