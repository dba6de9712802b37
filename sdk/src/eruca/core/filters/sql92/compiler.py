"""A compiled filter, and the way to get one.

Bounded: a text has at most ``FILTER_SIZE_MAX`` characters and nests at most ``DEPTH_MAX`` deep,
which keeps parser and evaluation clear of the interpreter's own limit, and makes the work for one
message a matter of microseconds. Filters are kept compiled, up to ``CACHE_SIZE`` of them.
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

CACHE_SIZE: Final = 128  # RocketMQ keeps 100


@dataclass(frozen=True, slots=True)
class Sql92Filter:
    """A compiled filter; made by :func:`compile_sql92`."""

    expression: str
    condition: Condition = field(repr=False, compare=False)
    names: frozenset[str] = field(repr=False, compare=False)  # of the properties it looks at
    cost: int = field(repr=False, compare=False)  # in tokens: one evaluation does no more steps

    def evaluate(self, properties: Properties) -> bool | None:
        """Return whether the condition holds; None where that is unknown.

        Raises:
            EvaluationError: A property is not of the type its comparison needs.
        """
        return self.condition(properties)

    def matches(self, properties: Properties) -> bool:
        """Tell whether a message with these properties is let through: it must be true."""
        try:
            return self.condition(properties) is True
        except EvaluationError:
            return False


def compile_sql92(expression: str) -> Sql92Filter:
    """Return the compiled filter.

    Raises:
        FilterSyntaxError: It is none; says where, and where possible what to write instead.
    """
    if not isinstance(expression, str):
        raise FilterSyntaxError(
            f"condition: {expression!r:.60} is not a text", fix='such as "price > 20"'
        )
    return _compiled(expression)


@lru_cache(CACHE_SIZE)
def _compiled(expression: str) -> Sql92Filter:
    if len(expression) > FILTER_SIZE_MAX:
        raise FilterSyntaxError(
            f"filter: it has {len(expression)} characters, {FILTER_SIZE_MAX} are the most",
            position=FILTER_SIZE_MAX,
            fix="send a property that says what you ask for, and filter by that",
        )
    parser = Parser(expression)
    condition = parser.parse()
    return Sql92Filter(expression, condition, frozenset(parser.names), parser.token_count)
