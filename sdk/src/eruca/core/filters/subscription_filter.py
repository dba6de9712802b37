"""The filters that users write: tags as a text, or a condition over properties by :func:`sql`.

A condition is compiled where it is written, so a mistake is found there and not when a broker is
asked; brokers have the last word all the same.
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

from eruca.contract.errors import ValidationError
from eruca.contract.limits import FILTER_SIZE_MAX
from eruca.core.filters.sql92 import Sql92Filter, compile_sql92
from eruca.core.filters.tag_expression import (
    TAG_TYPE,
    Subscription,
    TagExpressionError,
    checked_tag_expression,
)

SQL92_TYPE: Final = "SQL92"  # RocketMQ's name
Filter: TypeAlias = str | Sql92Filter
_FIX: Final = 'such as "a || b", or "*"; a condition over properties is eruca.sql("price > 20")'


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
    if filter is not None and not isinstance(filter, str | Sql92Filter):
        raise ValidationError(
            f"filter: {filter!r:.80} is neither a text nor eruca.sql(…)", fix=_FIX
        )
    if filter is not None and len(_text_of(filter)) > FILTER_SIZE_MAX:
        raise ValidationError(
            f"filter: {len(_text_of(filter))} characters exceed the {FILTER_SIZE_MAX} allowed"
        )
    if isinstance(filter, Sql92Filter):
        return Subscription(filter.expression, expression_type=SQL92_TYPE)
    try:
        return checked_tag_expression(filter)
    except TagExpressionError as error:
        raise ValidationError(f"filter: {error}", fix=_FIX) from error


def filter_type(subscription: Subscription) -> Literal["tag", "sql92"]:
    """Return what a broker calls the kind of a subscription's expression."""
    return "tag" if subscription.expression_type == TAG_TYPE else "sql92"


def _text_of(filter: Filter) -> str:
    return filter if isinstance(filter, str) else filter.expression
