"""The filters that users write: tags as a text, or a condition over properties by :func:`sql`.

A condition is compiled where it is written, so a mistake is found there and not when a broker is
asked; brokers have the last word all the same.
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

from eruca.contract.errors import ValidationError
from eruca.core.filters.sql92 import Sql92Filter, compile_sql92
from eruca.core.filters.tag_expression import (
    TAG_TYPE,
    Subscription,
    TagExpressionError,
    parse_tag_expression,
)

SQL92_TYPE: Final = "SQL92"  # RocketMQ's name
Filter: TypeAlias = str | Sql92Filter


def sql(condition: str) -> Sql92Filter:
    """Return a filter over messages' properties, such as ``price > 20 AND city = 'Rome'``.

    Properties are texts; compared with a number they are read as one. A message that lacks a
    property, or whose property is no such number, is not let through by a comparison with it. The
    tag is the property ``TAGS``. ``matches`` of what is returned tries it on a dict.

    Raises:
        FilterSyntaxError: It is no condition; says where, and where possible what to write instead.
    """
    return compile_sql92(condition)


def subscription_of(filter: Filter | None) -> Subscription:
    """Return what *filter* subscribes to; None is everything.

    Raises:
        ValidationError: A text names no tag.
    """
    if isinstance(filter, Sql92Filter):
        return Subscription(filter.expression, expression_type=SQL92_TYPE)
    try:
        return parse_tag_expression(filter)
    except TagExpressionError as error:
        fix = 'such as "a || b", or "*"; a condition over properties is eruca.sql("price > 20")'
        raise ValidationError(f"filter: {error}", fix=fix) from error


def filter_type(subscription: Subscription) -> Literal["tag", "sql92"]:
    """Return what a broker calls the kind of a subscription's expression."""
    return "tag" if subscription.expression_type == TAG_TYPE else "sql92"
