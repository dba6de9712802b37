"""Split a filter's text into tokens, one at a time, each with its position.

Keywords match in any case, property names only in their own case. Whole numbers have no leading
zeros and may end in ``L``. Texts are in single quotes, with two of them for a quote in the text.
``--`` begins a comment if a line end follows. At the end of the text it is two signs, as in
RocketMQ.

Source: RocketMQ 5.3, the token rules of ``SelectorParser``.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Final, NamedTuple

from eruca.contract.errors import FilterSyntaxError
from eruca.contract.errors.shown import shown

_EXCERPT_SIZE: Final = 32  # characters; a text may be as long as the filter
_END_EXCERPT: Final = "the end of the filter"


class Kind(StrEnum):
    """The kinds of tokens."""

    NAME = "the name of a property"
    TEXT = "a text in single quotes"
    WHOLE = "a whole number"
    DECIMAL = "a decimal number"
    KEYWORD = "a keyword"
    SYMBOL = "a sign"
    END = "the end"


class Token(NamedTuple):
    """A token; ``text`` is in capitals for a keyword, unchanged for all others."""

    kind: Kind
    text: str
    start: int  # of its first character, from 0
    end: int

    def is_(self, *texts: str) -> bool:
        """Tell whether the token is one of these keywords or signs."""
        return self.text in texts and self.kind in (Kind.KEYWORD, Kind.SYMBOL)

    @property
    def unquoted(self) -> str:
        """Return the content of a quoted text."""
        return self.text[1:-1].replace("''", "'")


KEYWORDS: Final = frozenset(
    (
        *("NOT", "AND", "OR", "BETWEEN", "IN", "TRUE", "FALSE", "NULL", "IS"),
        *("CONTAINS", "STARTSWITH", "ENDSWITH"),
    )
)

_TOKEN = re.compile(
    r"""
    (?P<skipped>  [ \t\n\r\f]+ | --[^\n\r]*[\n\r] | /\*.*?\*/ )
    | (?P<word>    [A-Za-z_$][A-Za-z0-9_$]* )
    | (?P<decimal> [0-9]+\.[0-9]*(?:[eE][+-]?[0-9]+)?
                 | \.[0-9]+(?:[eE][+-]?[0-9]+)?
                 | [0-9]+[eE][+-]?[0-9]+ )
    | (?P<whole>   0 | [1-9][0-9]*[lL]? )
    | (?P<text>    '(?:''|[^'])*' )
    | (?P<symbol>  <> | >= | <= | [=<>(),+-] )
    """,
    re.VERBOSE | re.DOTALL,
)
_KINDS: Final = {
    "decimal": Kind.DECIMAL,
    "whole": Kind.WHOLE,
    "text": Kind.TEXT,
    "symbol": Kind.SYMBOL,
}
_HINTS: Final = {
    '"': "put texts into single quotes, and write names of properties without any",
    "'": "end the text with a single quote; within a text write two for one",
    "!": "write <> for is not, and NOT (…) for the opposite of a condition",
    "|": "write OR",
    "&": "write AND",
    "*": "a filter compares properties with values; it has no arithmetic and no wildcards",
    "/": "a filter has no arithmetic; a comment ends with */",
    "%": "a filter has no arithmetic",
    ";": "leave it out: a filter is one condition",
    ".": "names of properties consist of letters, digits, _ and $; a number has digits",
}
_OTHER_HINT: Final = "names of properties consist of the letters a to z, digits, _ and $"


def excerpt(text: str) -> str:
    """Return *text*, truncated for an error text."""
    return shown(text, _EXCERPT_SIZE)


def unexpected(token: Token, detail: str, fix: str | None = None) -> FilterSyntaxError:
    """Return the error for a *token* at an invalid place."""
    shown = excerpt(token.text) or _END_EXCERPT
    return FilterSyntaxError(
        f"filter: {detail}: {shown}, character {token.start + 1}",
        position=token.start,
        excerpt=shown,
        fix=fix,
    )


def next_token(text: str, position: int) -> Token:
    """Return the token at or after *position*, which must be the end of another one.

    Raises:
        FilterSyntaxError: No token begins there.
    """
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            character = text[position]
            raise FilterSyntaxError(
                f"filter: unexpected character {character!r}, character {position + 1}",
                position=position,
                excerpt=excerpt(text[position:]),
                fix=_HINTS.get(character, _OTHER_HINT),
            )
        group, start, position = match.lastgroup or "", match.start(), match.end()
        if group == "skipped":
            continue
        if group != "word":
            return Token(_KINDS[group], match[0], start, position)
        word = match[0].upper()
        if word in KEYWORDS:
            return Token(Kind.KEYWORD, word, start, position)
        return Token(Kind.NAME, match[0], start, position)
    return Token(Kind.END, "", len(text), len(text))
