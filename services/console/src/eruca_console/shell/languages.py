"""The languages of the pages, from gettext catalogues (``locale/LANGUAGE/console.po``).

Catalogues are read as text at the start, so there is no compiled file to forget.
"""

from __future__ import annotations

import io
from functools import cache
from gettext import GNUTranslations, NullTranslations
from pathlib import Path
from typing import Final

from babel.messages.mofile import write_mo
from babel.messages.pofile import read_po

LOCALE: Final = Path(__file__).parents[1] / "locale"
LANGUAGES: Final = {"en": "English", "zh": "中文"}
DEFAULT: Final = "en"
HTML_CODES: Final = {"en": "en", "zh": "zh-Hans"}


@cache
def translations_of(language: str) -> NullTranslations:
    """Return the texts of a language; English is what the pages are written in."""
    if language == DEFAULT:
        return NullTranslations()
    with (LOCALE / language / "console.po").open("rb") as stream:
        catalogue = read_po(stream, locale=language)
    compiled = io.BytesIO()
    write_mo(compiled, catalogue)
    compiled.seek(0)
    return GNUTranslations(compiled)


def language_for(kept: str | None, accepted: str) -> str:
    """Return the language of a request.

    Args:
        kept: The reader's own choice; None: none.
        accepted: The header ``Accept-Language``.
    """
    if kept in LANGUAGES:
        return str(kept)
    weighed: list[tuple[float, str]] = []
    for part in accepted.split(",")[:20]:
        name, _, weight = part.strip().partition(";q=")
        try:
            weighed.append((float(weight or 1), name.strip().lower().partition("-")[0]))
        except ValueError:
            continue  # not a weight: ignore this language, as RFC 9110 allows
    best = (name for weight, name in sorted(weighed, key=lambda one: -one[0]) if weight > 0)
    return next((name for name in best if name in LANGUAGES), DEFAULT)
