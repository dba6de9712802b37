"""Compile a filter's parts into functions from a message's properties to a value.

A condition is true, false or unknown (None). A comparison with a missing property is unknown.
``AND`` and ``OR`` need only one side if it decides. Only a true condition matches. A condition may
also raise :class:`EvaluationError`, which ends the whole evaluation: neither ``OR`` nor ``NOT``
turns it into a match.

Comparisons of a property with a constant are the most frequent. They have their own functions,
which read and convert the property once. All others use :mod:`.values`.

Source: RocketMQ 5.3, ``ComparisonExpression``, ``LogicExpression``, ``UnaryExpression``,
``UnaryInExpression``.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Final, Protocol, TypeAlias

from eruca.core.filters.sql92.values import (
    READERS,
    Number,
    Value,
    compare,
    compare_numbers,
    double,
    equal,
)


class Properties(Protocol):
    """A message's properties: a dict, or any other mapping."""

    def get(self, name: str, /) -> str | None:
        """Return a property's value; None if the message does not have it."""


Term: TypeAlias = Callable[[Properties], Value | None]
Condition: TypeAlias = Callable[[Properties], bool | None]
Order: TypeAlias = Callable[[int, int], bool]

ORDERS: Final[dict[str, Order]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
}


def constant(value: bool | None) -> Condition:  # noqa: FBT001 - it is the value
    """Return a condition that is always *value*."""
    return lambda _: value


def property_of(name: str) -> Term:
    """Return a property's value; None if the message does not have it."""
    return lambda properties: properties.get(name)


def unknown_after(term: Term) -> Condition:
    """Return a condition that is always unknown, unless *term* cannot be evaluated."""

    def evaluate(properties: Properties) -> None:
        term(properties)

    return evaluate


def is_there(name: str) -> Condition:
    """Return a lone property as a condition: false, because it is a text, or unknown."""
    return lambda properties: None if properties.get(name) is None else False


def is_null(term: Term) -> Condition:
    """Return whether *term* is unknown; this itself is always known."""
    return lambda properties: term(properties) is None


def negation(condition: Condition) -> Condition:
    """Return the opposite; unknown stays unknown."""

    def evaluate(properties: Properties) -> bool | None:
        value = condition(properties)
        return None if value is None else not value

    return evaluate


def all_of(conditions: Sequence[Condition]) -> Condition:
    """Return whether all are true; stop at the first that is false."""

    def evaluate(properties: Properties) -> bool | None:
        is_known = True
        for condition in conditions:
            value = condition(properties)
            if value is None:
                is_known = False
            elif not value:
                return False
        return True if is_known else None

    return evaluate


def any_of(conditions: Sequence[Condition]) -> Condition:
    """Return whether one is true; stop at the first that is."""

    def evaluate(properties: Properties) -> bool | None:
        is_known = True
        for condition in conditions:
            value = condition(properties)
            if value is None:
                is_known = False
            elif value:
                return True
        return False if is_known else None

    return evaluate


def equals(left: Term, right: Term) -> Condition:
    """Return whether both have the same value."""
    return lambda properties: equal(left(properties), right(properties))


def property_equals(name: str, text: str) -> Condition:
    """Return whether a property is exactly *text*."""

    def evaluate(properties: Properties) -> bool | None:
        value = properties.get(name)
        return None if value is None else value == text

    return evaluate


def orders(left: Term, right: Term, symbol: str) -> Condition:
    """Return the comparison of two terms; two texts must both be numbers."""
    order = ORDERS[symbol]

    def evaluate(properties: Properties) -> bool | None:
        first = left(properties)
        if first is None:
            return None
        second = right(properties)
        if second is None:
            return None
        if isinstance(first, str) and isinstance(second, str):
            first, second = double(first), double(second)
        return order(compare(first, second), 0)

    return evaluate


def orders_number(name: str, number: Number, symbol: str) -> Condition:
    """Return the comparison of a property, converted to *number*'s type, with *number*."""
    order, read = ORDERS[symbol], READERS[type(number)]

    def evaluate(properties: Properties) -> bool | None:
        value = properties.get(name)
        return None if value is None else order(compare_numbers(read(value), number), 0)

    return evaluate


def in_texts(name: str, texts: frozenset[str], *, is_negated: bool) -> Condition:
    """Return whether a property is one of *texts*, or, negated, none of them."""

    def evaluate(properties: Properties) -> bool | None:
        value = properties.get(name)
        return None if value is None else (value in texts) is not is_negated

    return evaluate


_SEARCHES: Final[dict[str, Callable[[str, str], bool]]] = {
    "CONTAINS": operator.contains,
    "STARTSWITH": str.startswith,
    "ENDSWITH": str.endswith,
}


def contains(term: Term, keyword: str, text: str, *, is_negated: bool) -> Condition:
    """Return whether a text contains *text* at the place that *keyword* names.

    The result is never unknown. A missing property, or one that is not a text, is false both plain
    and negated. An empty text is never contained.
    """
    if not text:
        return constant(value=False)
    search = _SEARCHES[keyword]

    def evaluate(properties: Properties) -> bool:
        value = term(properties)
        return isinstance(value, str) and search(value, text) is not is_negated

    return evaluate
