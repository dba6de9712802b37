"""Users' filters: tags as a text, or a condition over properties made by :func:`sql`.

A condition is compiled where it is written. So a mistake raises an error there, and not at the
first request to a broker. The broker checks the condition again.
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

    Properties are texts; a comparison with a number converts them. If a message lacks a property,
    or its property is not such a number, the comparison does not match. The tag is the property
    ``TAGS``. To test the filter, call its ``matches`` with a dict.

    Raises:
        FilterSyntaxError: The text is invalid; the error has the position and, if possible, a fix.
    """
    return compile_sql92(condition)


def subscription_of(filter: Filter | None) -> Subscription:
    """Return the subscription of *filter*; None selects everything.

    Raises:
        ValidationError: A text contains no tag.
    """
    if filter is not None and not isinstance(filter, str | Sql92Filter):
        raise ValidationError(
            f"filter: expected a text or eruca.sql(…), found {filter!r:.80}", fix=_FIX
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
    """Return a broker's name for the type of a subscription's expression."""
    return "tag" if subscription.expression_type == TAG_TYPE else "sql92"


def _text_of(filter: Filter) -> str:
    return filter if isinstance(filter, str) else filter.expression
