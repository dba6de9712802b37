"""The operands of a filter, the valid operators for each, and the errors for invalid ones.

Source: RocketMQ 5.3, ``ComparisonExpression``, ``ConstantExpression``: valid operands of a
comparison, and the types of literals.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from math import inf
from typing import Final, TypeGuard

from eruca.contract.errors import FilterSyntaxError
from eruca.core.filters.sql92 import conditions
from eruca.core.filters.sql92.conditions import Condition, Term
from eruca.core.filters.sql92.lexer import Kind, Token, excerpt, unexpected
from eruca.core.filters.sql92.values import (
    EvaluationError,
    Integer,
    Long,
    Number,
    Value,
    compare_numbers,
    integral,
)

_FLIPPED: Final = {">": "<", ">=": "<=", "<": ">", "<=": ">="}
_INTEGER_SIZE: Final = 2**31  # one more than the largest 32-bit number
_NULL_FIX: Final = "write IS NULL, or IS NOT NULL"


class Form(Enum):
    """The forms of operands; the form determines the places where an operand is valid."""

    PROPERTY = auto()
    NUMBER = auto()
    TEXT = auto()
    BOOLEAN = auto()
    NULL = auto()
    CONDITION = auto()
    SIGNED = auto()  # something behind a sign: a number, or always unknown


@dataclass(frozen=True, slots=True)
class Operand:
    """A parsed part of the filter, and its position in the text."""

    form: Form
    term: Term
    start: int
    end: int
    text: str  # the whole filter's
    value: Value | None = None  # a constant's value; a property's name
    condition: Condition | None = None  # evaluated if a condition is required
    is_not: bool = False  # begins with NOT

    @property
    def source(self) -> str:
        """Return the source text."""
        return self.text[self.start : self.end]

    @property
    def source_behind_not(self) -> str:
        """Return the source text without its NOT."""
        return self.source[len("NOT") :].strip()

    def wrong(self, detail: str, fix: str | None = None) -> FilterSyntaxError:
        """Return the error for this operand at an invalid place."""
        shown = excerpt(self.source)
        return FilterSyntaxError(
            f"filter: {detail}: {shown}, character {self.start + 1}",
            position=self.start,
            excerpt=shown,
            fix=fix,
        )


def literal(token: Token, text: str) -> Operand | None:
    """Return the constant or property of *token*; None if it is neither."""

    def made(form: Form, term: Term, value: Value, condition: Condition | None = None) -> Operand:
        return Operand(form, term, token.start, token.end, text, value, condition)

    if token.kind is Kind.NAME:
        name = token.text
        there = conditions.is_there(name)
        return made(Form.PROPERTY, conditions.property_of(name), name, there)
    if token.kind is Kind.TEXT:
        unquoted = token.unquoted
        return made(Form.TEXT, lambda _: unquoted, unquoted)
    if token.kind in (Kind.WHOLE, Kind.DECIMAL):
        number = _number(token)
        return made(Form.NUMBER, lambda _: number, number)
    if token.kind is Kind.KEYWORD and token.text in ("TRUE", "FALSE"):
        value = token.text == "TRUE"
        condition = conditions.constant(value)
        return made(Form.BOOLEAN, condition, value, condition)
    if token.is_("NULL"):
        unknown = conditions.constant(None)
        return Operand(Form.NULL, unknown, token.start, token.end, text, None, unknown)
    return None


def _number(token: Token) -> Number:
    """Return a literal's number, of the smallest type, as in RocketMQ.

    Raises:
        FilterSyntaxError: It does not fit into 64 bits; or a decimal number is 0 or not finite.
    """
    if token.kind is Kind.DECIMAL:
        value = float(token.text)
        if 0 < value < inf:
            return value
        raise unexpected(
            token,
            "a decimal number must be above 0 and no larger than a double can be",
            None if value else "write 0",
        )
    try:
        number = integral(token.text.rstrip("lL"))
    except EvaluationError as error:
        raise unexpected(token, "a whole number must fit into 64 bits") from error
    return Integer(number) if number < _INTEGER_SIZE else Long(number)


def minus(operand: Operand, start: int) -> Operand:
    """Return *operand* with the minus sign at *start*; unknown unless it is a number."""
    value = operand.value
    if not _is_number(value):
        term = conditions.unknown_after(operand.term)
        return Operand(Form.SIGNED, term, start, operand.end, operand.text)
    number = -value if isinstance(value, float) else type(value)(-value)
    return Operand(Form.SIGNED, lambda _: number, start, operand.end, operand.text, number)


def as_condition(operand: Operand) -> Condition:
    """Return *operand* as a condition.

    Raises:
        FilterSyntaxError: It is a value.
    """
    if operand.condition is None:
        raise operand.wrong("expected a condition, found a value", "compare it with a property")
    return operand.condition


def equals(left: Operand, right: Operand) -> Condition:
    """Return whether both are equal.

    Raises:
        FilterSyntaxError: One is NULL; or the left one is a truth value and the right one is not.
    """
    for operand in (left, right):
        if operand.form is Form.NULL:
            raise operand.wrong("nothing equals NULL", _NULL_FIX)
    if left.form is Form.BOOLEAN and right.form in (Form.NUMBER, Form.TEXT):
        raise right.wrong("TRUE and FALSE equal no number and no text")
    if left.form is Form.PROPERTY and right.form is Form.TEXT:
        return conditions.property_equals(str(left.value), str(right.value))
    return conditions.equals(left.term, right.term)


def orders(left: Operand, symbol: str, right: Operand) -> Condition:
    """Return the comparison of two operands with ``>``, ``>=``, ``<`` or ``<=``.

    Raises:
        FilterSyntaxError: One has no order: a text, a truth value, NULL or a condition.
    """
    for operand in (left, right):
        if operand.form in (Form.TEXT, Form.BOOLEAN, Form.NULL, Form.CONDITION):
            raise _no_order(left, symbol, right, operand)
    if left.form is Form.PROPERTY and _is_number(right.value):
        return conditions.orders_number(str(left.value), right.value, symbol)
    if _is_number(left.value) and right.form is Form.PROPERTY:
        return conditions.orders_number(str(right.value), left.value, _FLIPPED[symbol])
    return conditions.orders(left.term, right.term, symbol)


def _no_order(left: Operand, symbol: str, right: Operand, wrong: Operand) -> FilterSyntaxError:
    if left.is_not:
        return left.wrong(
            f"NOT binds more tightly than {symbol}",
            f"write NOT ({left.source_behind_not} {symbol} {right.source})",
        )
    if wrong.form is Form.TEXT:
        fix = "leave out the quotes for a number; texts have = and <> only"
    elif wrong.form is Form.CONDITION:
        fix = "join two conditions with AND"
    else:
        fix = _NULL_FIX if wrong.form is Form.NULL else "compare with = or <>"
    return wrong.wrong(f"{symbol} compares numbers", fix)


def between(value: Operand, low: Operand, high: Operand, *, is_negated: bool) -> Condition:
    """Return whether *value* is between *low* and *high*, or, negated, outside.

    Raises:
        FilterSyntaxError: One has no order; or the range between two literals is empty. A negated
            range may be empty, because then everything matches.
    """
    if value.is_not:
        raise value.wrong(
            "NOT binds more tightly than BETWEEN",
            f"write NOT ({value.source_behind_not} BETWEEN {low.source} AND {high.source})",
        )
    if is_negated:
        return conditions.any_of([orders(value, "<", low), orders(value, ">", high)])
    bounds = [orders(value, ">=", low), orders(value, "<=", high)]
    if low.form is high.form is Form.NUMBER and _is_above(low.value, high.value):
        raise low.wrong("nothing lies in between: the first value is the larger one")
    return conditions.all_of(bounds)


def in_texts(operand: Operand, texts: list[str], listed: str, *, is_negated: bool) -> Condition:
    """Return whether *operand* is one of *texts*; *listed* is their source text.

    Raises:
        FilterSyntaxError: The operand is not a property.
    """
    if operand.form is not Form.PROPERTY:
        fix = f"write NOT ({operand.source_behind_not} {listed})" if operand.is_not else None
        raise operand.wrong("only a property can be one of a list", fix)
    return conditions.in_texts(str(operand.value), frozenset(texts), is_negated=is_negated)


def _is_number(value: Value | None) -> TypeGuard[Number]:
    return isinstance(value, (Integer, Long, float))


def _is_above(left: Value | None, right: Value | None) -> bool:
    return _is_number(left) and _is_number(right) and compare_numbers(left, right) > 0
