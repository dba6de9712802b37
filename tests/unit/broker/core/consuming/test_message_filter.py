"""Filters of pulls: tags or conditions, and what is no filter at all."""

from __future__ import annotations

from typing import get_args

import pytest

from eruca.contract.errors import FilterSyntaxError
from eruca.contract.hashing import tags_code
from eruca_broker.core.consuming.message_filter import EVERYTHING, FilterType, parse_filter


@pytest.mark.parametrize("expression", ["*", ""])
def test_everything_passes_without_a_filter(expression: str) -> None:
    everything = parse_filter(expression)

    assert everything == EVERYTHING
    assert everything.passes_all
    assert everything.matches_tag(None)


def test_tags_are_compared_by_hash_and_then_by_letter() -> None:
    tags = parse_filter("Aa || C")

    assert not tags.passes_all
    assert tags.tag_codes == frozenset({tags_code("BB"), tags_code("C")})
    assert tags.matches_tag("Aa")
    assert not tags.matches_tag("BB")


def test_a_condition_leaves_tags_alone() -> None:
    condition = parse_filter("price > 20", "sql92")

    assert condition.sql92 is not None
    assert condition.sql92.matches({"price": "21"})
    assert not condition.passes_all
    assert condition.tag_codes is None
    assert condition.matches_tag("any")


def test_equal_filters_are_equal() -> None:
    """So that one look serves all who wait with the same one."""
    for kind in get_args(FilterType):
        assert parse_filter("a", kind) == parse_filter("a", kind)
        assert hash(parse_filter("a", kind)) == hash(parse_filter("a", kind))
    assert parse_filter("a", "tag") != parse_filter("a", "sql92")


@pytest.mark.parametrize(
    ("expression", "kind", "position"), [("||", "tag", 0), ("NOT a > 5", "sql92", 0)]
)
def test_what_means_nothing_is_refused_with_its_place(
    expression: str, kind: str, position: int
) -> None:
    with pytest.raises(FilterSyntaxError) as caught:
        parse_filter(expression, kind)  # type: ignore[arg-type] # one of the two

    assert caught.value.position == position
    assert caught.value.excerpt
    assert caught.value.fix
