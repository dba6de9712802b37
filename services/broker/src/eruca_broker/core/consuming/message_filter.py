"""Compiled filters of pulls: a tag expression, or a condition on properties.

Tags are compared in two steps. The broker compares their hashes in the consume queue, without
reading a message. Then the code that hands a message to a user compares the tags themselves. SQL92
filters are evaluated by the broker alone, on the stored record.

Source: RocketMQ 5.3, ``FilterAPI``, ``ExpressionMessageFilter``.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Literal, TypeAlias

from eruca.contract.errors import FilterSyntaxError
from eruca.core.filters.sql92 import Sql92Filter, compile_sql92
from eruca.core.filters.tag_expression import (
    SUBSCRIBE_ALL,
    Subscription,
    TagExpressionError,
    checked_tag_expression,
)

FilterType: TypeAlias = Literal["tag", "sql92"]
_CACHE_SIZE: Final = 1_024  # tag expressions kept parsed; SQL92 filters have a cache of their own


@dataclass(frozen=True, slots=True)
class MessageFilter:
    """A parsed filter; made by :func:`parse_filter`."""

    subscription: Subscription
    sql92: Sql92Filter | None = None

    @property
    def passes_all(self) -> bool:
        """Return True if every message passes."""
        return self.sql92 is None and self.subscription.tag_codes is None

    @property
    def tag_codes(self) -> frozenset[int] | None:
        """Return the tag codes of which a consume queue entry must have one; None for any."""
        return self.subscription.tag_codes

    def matches_tag(self, tag: str | None) -> bool:
        """Tell whether a message that was found by its tag's hash really matches."""
        return self.subscription.matches_tag(tag)


EVERYTHING: Final = MessageFilter(Subscription(SUBSCRIBE_ALL))


def parse_filter(expression: str, filter_type: FilterType = "tag") -> MessageFilter:
    """Return the filter that *expression* means.

    Raises:
        FilterSyntaxError: The expression is invalid; the error says where, and if possible what to
            write instead.
    """
    if filter_type == "sql92":
        return MessageFilter(Subscription(SUBSCRIBE_ALL), compile_sql92(expression))
    return EVERYTHING if expression == SUBSCRIBE_ALL else _tags(expression)


@lru_cache(_CACHE_SIZE)
def _tags(expression: str) -> MessageFilter:
    try:
        return MessageFilter(checked_tag_expression(expression))
    except TagExpressionError as error:
        raise FilterSyntaxError(
            f"filter: {error}", position=0, excerpt=expression[:32], fix='use "a || b", or "*"'
        ) from error
