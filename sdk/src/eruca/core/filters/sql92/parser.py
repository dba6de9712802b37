"""The grammar of filters: parse a text into a function that evaluates it, in one pass.

By rising precedence: ``OR``; ``AND``; ``=``, ``<>``, ``IS [NOT] NULL``; ``>``, ``>=``, ``<``,
``<=``, ``[NOT] CONTAINS | STARTSWITH | ENDSWITH | BETWEEN | IN``; the signs ``+``, ``-`` and
``NOT``; literals, properties and parentheses. The parser has one method for each, top down.

Two surprising rules of RocketMQ are kept: ``NOT`` binds more tightly than a comparison, and a lone
property is never true, whatever its value. One rule differs: RocketMQ ignores all text after a
complete condition, so a typing error could cut off half of a filter unnoticed. Here such a text is
refused.

Source: RocketMQ 5.3, ``SelectorParser``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from eruca.contract.errors import FilterSyntaxError
from eruca.core.filters.sql92 import conditions, operands
from eruca.core.filters.sql92.conditions import Condition
from eruca.core.filters.sql92.lexer import Kind, Token, next_token, unexpected
from eruca.core.filters.sql92.operands import Form, Operand, as_condition

DEPTH_MAX: Final = 64  # parentheses, signs and NOTs inside one another, and comparisons in a row

_SEARCHES: Final = ("CONTAINS", "STARTSWITH", "ENDSWITH")
_EQUAL_OR_NULL: Final = ("=", "<>", "IS")
_NEGATABLE: Final = (*_SEARCHES, "BETWEEN", "IN")
_COMPARISONS: Final = (*conditions.ORDERS, *_NEGATABLE, "NOT")
_FIXES: Final = {
    "=": "for equal write a single =",
    "LIKE": "write STARTSWITH, ENDSWITH or CONTAINS",
}


class Parser:
    """One parse of one text: the current token and the nesting depth."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._token = next_token(text, 0)
        self._depth = 0
        self._end = 0  # of the last token
        self.names: set[str] = set()  # of the properties so far
        self.token_count = 0  # tokens so far

    def parse(self) -> Condition:
        """Parse the whole text.

        Raises:
            FilterSyntaxError: The text is not a condition.
        """
        if self._token.kind is Kind.END:
            raise self._unexpected("the filter is empty", 'write a condition, such as "price > 20"')
        condition = as_condition(self._any_of())
        if not self._is_at_end():
            raise self._left_over()
        return condition

    def _any_of(self) -> Operand:
        return self._joined("OR", self._all_of, conditions.any_of)

    def _all_of(self) -> Operand:
        return self._joined("AND", self._equality, conditions.all_of)

    def _joined(
        self,
        keyword: str,
        part: Callable[[], Operand],
        join: Callable[[list[Condition]], Condition],
    ) -> Operand:
        first = part()
        if not self._token.is_(keyword):
            return first
        parts = [as_condition(first)]
        while self._takes(keyword):
            parts.append(as_condition(part()))
        return self._condition(join(parts), first.start)

    def _equality(self) -> Operand:
        left, depth = self._comparison(), self._depth
        while self._token.is_(*_EQUAL_OR_NULL):
            symbol = self._take()
            self._deepen(symbol)
            if symbol.text == "IS":
                is_negated = self._takes("NOT")
                self._expect("NULL", "IS goes with NULL or NOT NULL", "or compare: = TRUE")
                condition = conditions.is_null(left.term)
            else:
                is_negated = symbol.text == "<>"
                condition = operands.equals(left, self._comparison())
            if is_negated:
                condition = conditions.negation(condition)
            left = self._condition(condition, left.start)
        self._depth = depth
        return left

    def _comparison(self) -> Operand:
        left, depth = self._unary(), self._depth
        while self._token.is_(*_COMPARISONS):
            symbol = self._take()
            self._deepen(symbol)
            if symbol.text in conditions.ORDERS:
                condition = operands.orders(left, symbol.text, self._unary())
            else:
                condition = self._keyword(left, symbol)
            left = self._condition(condition, left.start)
        self._depth = depth
        return left

    def _keyword(self, left: Operand, keyword: Token) -> Condition:
        is_negated = keyword.text == "NOT"
        if is_negated:
            if not self._token.is_(*_NEGATABLE):
                raise self._unexpected(f"{', '.join(_NEGATABLE)} are what NOT goes before here")
            keyword = self._take()
        if keyword.text == "BETWEEN":
            low = self._unary()
            self._expect("AND", "BETWEEN goes with two values", "write BETWEEN 1 AND 5")
            return operands.between(left, low, self._unary(), is_negated=is_negated)
        if keyword.text == "IN":
            texts = self._texts()
            listed = self._text[left.end : self._end].strip()
            return operands.in_texts(left, texts, listed, is_negated=is_negated)
        if self._token.kind is not Kind.TEXT:
            raise self._unexpected(f"{keyword.text} goes with a text in single quotes")
        searched = self._take().unquoted
        return conditions.contains(left.term, keyword.text, searched, is_negated=is_negated)

    def _texts(self) -> list[str]:
        self._expect("(", "IN goes with a list of texts", "write IN ('a', 'b')")
        texts: list[str] = []
        while not texts or self._takes(","):
            if self._token.kind is not Kind.TEXT:
                raise self._unexpected(
                    "a text in single quotes belongs here", "list numbers as texts: IN ('1', '2')"
                )
            texts.append(self._take().unquoted)
        self._expect(")", "a list of texts continues with a comma or ends with )")
        return texts

    def _unary(self) -> Operand:
        sign = self._token
        if not sign.is_("+", "-", "NOT"):
            return self._primary()
        self._take()
        self._deepen(sign)
        operand = self._unary()
        self._depth -= 1
        if sign.text == "-":
            return operands.minus(operand, sign.start)
        if sign.text == "NOT":
            condition = conditions.negation(as_condition(operand))
            return self._condition(condition, sign.start, is_not=True)
        return operand

    def _primary(self) -> Operand:
        token = self._token
        operand = operands.literal(token, self._text)
        if operand is not None:
            self._take()
            if operand.form is Form.PROPERTY:
                self.names.add(token.text)
            return operand
        if not self._takes("("):
            raise self._unexpected("a property, a value or a parenthesis belongs here")
        self._deepen(token)
        operand = self._any_of()
        self._expect(")", f"the parenthesis opened at character {token.start + 1} is still open")
        self._depth -= 1
        return operand

    def _condition(self, condition: Condition, start: int, *, is_not: bool = False) -> Operand:
        return Operand(
            Form.CONDITION,
            condition,
            start,
            self._end,
            self._text,
            condition=condition,
            is_not=is_not,
        )

    def _is_at_end(self) -> bool:
        return self._token.kind is Kind.END

    def _take(self) -> Token:
        token = self._token
        self._end = token.end
        self.token_count += 1
        self._token = next_token(self._text, token.end)
        return token

    def _takes(self, text: str) -> bool:
        is_there = self._token.is_(text)
        if is_there:
            self._take()
        return is_there

    def _expect(self, text: str, detail: str, fix: str | None = None) -> None:
        if not self._takes(text):
            raise self._unexpected(detail, fix)

    def _deepen(self, token: Token) -> None:
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise unexpected(token, f"the filter nests deeper than {DEPTH_MAX} levels")

    def _unexpected(self, detail: str, fix: str | None = None) -> FilterSyntaxError:
        return unexpected(self._token, detail, _FIXES.get(self._token.text.upper(), fix))

    def _left_over(self) -> FilterSyntaxError:
        token, fix = self._token, "join conditions with AND or OR"
        if token.text == "-" and self._text.startswith("--", token.start):
            fix = "end the comment with a new line"
        elif token.text == ")":
            fix = "leave it out, or open a parenthesis before"
        elif token.text in ("+", "-"):
            fix = "a filter has no arithmetic, and names of properties have no hyphens"
        return self._unexpected("the condition is complete before this", fix)
