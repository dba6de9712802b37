"""Handlers by topic and tag: who gets a message, and what they subscribe to together."""

from __future__ import annotations

import pytest

from eruca.contract.errors import FilterSyntaxError, ValidationError
from eruca.core.consuming.handler_table import HandlerTable
from eruca.core.filters.subscription_filter import Filter, sql
from eruca.core.filters.tag_expression import parse_tag_expression


def handler(message: object) -> None:
    """Does nothing."""


def add(
    table: HandlerTable, topic: str, expression: Filter | None, filter_type: str = "tag"
) -> None:
    table.add(
        topic,
        handler,
        expression=expression,
        filter_type=filter_type,
        is_async=False,
        takes_context=False,
    )


def test_tags_of_several_handlers_add_up() -> None:
    table = HandlerTable()
    add(table, "orders", "b || c")
    add(table, "orders", "a")
    add(table, "payments", None)

    assert table.topics == ["orders", "payments"]
    assert table.subscription("orders") == parse_tag_expression("a || b || c")
    assert table.subscription("payments").expression == "*"


def test_everything_and_a_tag_are_everything() -> None:
    table = HandlerTable()
    add(table, "orders", "a")
    add(table, "orders", "*")

    assert table.subscription("orders").expression == "*"


@pytest.mark.parametrize(
    ("expression", "filter_type"),
    [("price > 20", "sql92"), (sql("price > 20"), "sql92"), (sql("price > 20"), "tag")],
)
def test_a_condition_may_be_a_text_or_compiled(expression: Filter, filter_type: str) -> None:
    table = HandlerTable()
    add(table, "orders", expression, filter_type)

    subscription = table.subscription("orders")
    assert (subscription.expression, subscription.expression_type) == ("price > 20", "SQL92")


@pytest.mark.parametrize("others", ["*", "a", sql("price > 5")])
def test_a_condition_has_its_topic_to_itself(others: Filter) -> None:
    table = HandlerTable()
    add(table, "orders", others)

    with pytest.raises(ValidationError, match="only tags"):
        add(table, "orders", "price > 20", "sql92")


@pytest.mark.parametrize("condition", ["NOT a > 5", ""])
def test_a_mistake_in_a_condition_is_found_before_anything_is_started(condition: str) -> None:
    with pytest.raises(FilterSyntaxError):
        add(HandlerTable(), "orders", condition, "sql92")


@pytest.mark.parametrize(
    ("topic", "expression", "filter_type"),
    [("no dots.", "*", "tag"), ("orders", "||", "tag"), ("orders", "a", "regex")],
)
def test_what_cannot_be_subscribed_to_is_refused(
    topic: str, expression: str, filter_type: str
) -> None:
    with pytest.raises(ValidationError):
        add(HandlerTable(), topic, expression, filter_type)
