"""Filters as users write them: tags as a text, conditions by ``eruca.sql``."""

from __future__ import annotations

import pytest

import eruca
from eruca.contract.errors import FilterSyntaxError, ValidationError
from eruca.core.filters.subscription_filter import filter_type, sql, subscription_of
from eruca.core.filters.tag_expression import parse_tag_expression


@pytest.mark.parametrize("expression", [None, "*", "a || b"])
def test_a_text_is_an_expression_of_tags(expression: str | None) -> None:
    subscription = subscription_of(expression)

    assert subscription == parse_tag_expression(expression)
    assert filter_type(subscription) == "tag"


def test_a_condition_is_decided_by_the_broker() -> None:
    subscription = subscription_of(sql("price > 20"))

    assert (subscription.expression, filter_type(subscription)) == ("price > 20", "sql92")
    assert subscription.tag_codes is None
    assert subscription.matches_tag(None)


def test_a_condition_can_be_tried_without_a_broker() -> None:
    assert eruca.sql("price > 20").matches({"price": "21"})
    assert not eruca.sql("price > 20").matches({})


def test_a_mistake_is_found_where_it_is_written() -> None:
    with pytest.raises(FilterSyntaxError, match=r"write NOT \(a > 5\)"):
        eruca.sql("NOT a > 5")
    with pytest.raises(ValidationError, match=r"eruca\.sql"):
        subscription_of("||")
