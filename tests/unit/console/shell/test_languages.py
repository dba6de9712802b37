"""The languages of the pages: which one, and whether its catalogue is whole."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Final

import pytest
from babel.messages.pofile import read_po

from eruca_console.shell.languages import LANGUAGES, LOCALE, language_for, translations_of
from eruca_console.shell.rendering import environment_of

ROOT: Final = Path(__file__).parents[4]
PLACEHOLDER: Final = re.compile(r"%\(\w+\)s")


def tool() -> ModuleType:
    """Return the tool that collects texts."""
    path = ROOT / "services/console/tools/catalogues.py"
    spec = importlib.util.spec_from_file_location("catalogues", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("language", [name for name in LANGUAGES if name != "en"])
def test_each_catalogue_has_all_texts_with_their_values_and_no_others(language: str) -> None:
    with (LOCALE / language / "console.po").open("rb") as stream:
        catalogue = read_po(stream, locale=language)
    collected = {str(one.id) for one in tool().collected() if one.id}
    translated = {str(one.id): (forms(one.id), forms(one.string)) for one in catalogue if one.id}

    assert collected
    assert translated.keys() == collected, "run services/console/tools/catalogues.py"
    for text, (here, there) in translated.items():
        assert there, text
        assert all(there), text
        values = {tuple(sorted(PLACEHOLDER.findall(form))) for form in (*here, *there)}
        assert len(values) == 1, text


def forms(text: str | Sequence[str] | None) -> Sequence[str]:
    """Return the singular and the plurals of a text, or its only form; None: it has none."""
    return [text] if isinstance(text, str) else text or []


@pytest.mark.parametrize(
    ("language", "one", "two"),
    [("en", "1 right", "2 rights"), ("zh", "1 项权限", "2 项权限")],
)
def test_a_count_has_the_form_of_its_language(language: str, one: str, two: str) -> None:
    page = environment_of(language).from_string(
        '{{ ngettext("%(count)s right", "%(count)s rights", n, count=n|count) }}'
    )

    assert [page.render(n=n) for n in (1, 2)] == [one, two]


def test_a_text_is_translated() -> None:
    assert translations_of("zh").gettext("Topics") == "主题"
    assert translations_of("en").gettext("Topics") == "Topics"


@pytest.mark.parametrize(
    ("kept", "accepted", "language"),
    [
        (None, "", "en"),
        (None, "zh-CN,zh;q=0.9,en;q=0.8", "zh"),
        (None, "fr, zh;q=0.5, en;q=0.7", "en"),
        (None, "fr;q=x, de", "en"),
        (None, "zh;q=0", "en"),
        ("zh", "en", "zh"),
        ("xx", "zh-Hant", "zh"),
    ],
)
def test_the_readers_choice_decides_and_else_the_browsers(
    kept: str | None, accepted: str, language: str
) -> None:
    assert language_for(kept, accepted) == language
