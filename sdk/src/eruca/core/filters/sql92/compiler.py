"""Compile filters, and cache the compiled ones.

The limits: a text has at most ``FILTER_SIZE_MAX`` characters and at most ``DEPTH_MAX`` levels. So
neither parser nor evaluation reaches the interpreter's recursion limit, and one message takes only
microseconds. Up to ``CACHE_SIZE`` compiled filters are cached.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

from eruca.contract.errors import FilterSyntaxError
from eruca.contract.limits import FILTER_SIZE_MAX
from eruca.core.filters.sql92.conditions import Condition, Properties
from eruca.core.filters.sql92.parser import Parser
from eruca.core.filters.sql92.values import EvaluationError

CACHE_SIZE: Final = 128  # RocketMQ caches 100


@dataclass(frozen=True, slots=True)
class Sql92Filter:
    """A compiled filter; made by :func:`compile_sql92`."""

    expression: str
    condition: Condition = field(repr=False, compare=False)
    names: frozenset[str] = field(repr=False, compare=False)  # of the properties in the condition
    # in tokens: an upper bound of the steps of one evaluation
    cost: int = field(repr=False, compare=False)

    def evaluate(self, properties: Properties) -> bool | None:
        """Return whether the condition is true; None: unknown.

        Raises:
            EvaluationError: A property does not have the type of its comparison.
        """
        return self.condition(properties)

    def matches(self, properties: Properties) -> bool:
        """Tell whether a message with these properties matches: the condition must be true."""
        try:
            return self.condition(properties) is True
        except EvaluationError:
            return False


def compile_sql92(expression: str) -> Sql92Filter:
    """Return the compiled filter.

    Raises:
        FilterSyntaxError: The text is invalid; the error has the position and, if possible, a fix.
    """
    if not isinstance(expression, str):
        raise FilterSyntaxError(
            f"condition: expected a text, found {expression!r:.60}",
            fix='use a condition such as "price > 20"',
        )
    return _compiled(expression)


@lru_cache(CACHE_SIZE)
def _compiled(expression: str) -> Sql92Filter:
    if len(expression) > FILTER_SIZE_MAX:
        raise FilterSyntaxError(
            f"filter: expected at most {FILTER_SIZE_MAX} characters, found {len(expression)}",
            position=FILTER_SIZE_MAX,
            fix="add a property with the result to the messages, and filter by that",
        )
    parser = Parser(expression)
    condition = parser.parse()
    return Sql92Filter(expression, condition, frozenset(parser.names), parser.token_count)
