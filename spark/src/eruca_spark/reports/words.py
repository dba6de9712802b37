"""Texts of a report's page, in English and Chinese.

A text is an English template with named fields. Its translation has the same fields, so a finding
is decided once, and worded when a page is written.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from eruca_spark.reports.chinese import CHINESE

Language = Literal["en", "zh"]

HTML_CODES: Final[Mapping[Language, str]] = {"en": "en", "zh": "zh-Hans"}


def N_(text: str) -> str:  # noqa: N802 - the usual name, by which the tests find texts
    """Mark *text* for translation, and return it unchanged."""
    return text


def translated(text: str, language: Language) -> str:
    """Return *text* in a language; English if there is no translation."""
    return CHINESE.get(text, text) if language == "zh" else text


@dataclass(frozen=True, slots=True)
class Words:
    """A text: an English template as for ``str.format``, and the values of its fields."""

    template: str
    values: Mapping[str, Any] = field(default_factory=dict)

    def text(self, language: Language) -> str:
        """Return the text in a language."""
        return translated(self.template, language).format(**self.values)


def words(template: str, /, **values: Any) -> Words:  # noqa: ANN401 - whatever a field takes
    """Return a text."""
    return Words(template, values)


def counted_words(count: int, one: str, more: str, /, **values: Any) -> Words:  # noqa: ANN401
    """Return the template *one* or *more*, depending on *count*, which is a field of both."""
    return Words(one if count == 1 else more, {"count": count, **values})
