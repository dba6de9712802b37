"""Pages as HTML, in the reader's language."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from eruca_console.core import figures
from eruca_console.core.texts import N_
from eruca_console.shell.languages import HTML_CODES, LANGUAGES, translations_of

STATIC: Final = Path(__file__).parent / "static"
TEMPLATES: Final = Path(__file__).parent / "templates"
PAGES: Final = Path(__file__).parents[1] / "pages"
NAVIGATION: Final[Sequence[tuple[str, str, str, str]]] = (  # section, title, path, key after g
    ("overview", N_("Overview"), "/overview", "o"),
    ("brokers", N_("Brokers"), "/brokers", "b"),
    ("topics", N_("Topics"), "/topics", "t"),
    ("groups", N_("Groups"), "/groups", "g"),
    ("messages", N_("Messages"), "/messages", "m"),
    ("scheduled", N_("Scheduled"), "/scheduled", "s"),
    ("transactions", N_("Transactions"), "/transactions", "x"),
    ("audit", N_("Audit"), "/audit", "a"),
    ("access", N_("Access"), "/access", "w"),
)
THEMES: Final = {"auto": N_("as the system"), "light": N_("light"), "dark": N_("dark")}


@cache
def environment_of(language: str) -> Environment:
    """Return the templates in a language."""
    environment = Environment(
        loader=FileSystemLoader([TEMPLATES, PAGES]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=["jinja2.ext.i18n"],
    )
    environment.install_gettext_translations(  # type: ignore[attr-defined] # the extension's
        translations_of(language), newstyle=True
    )
    environment.filters |= {
        "count": figures.count,
        "size": figures.size,
        "share": figures.share,
        "moment": figures.moment,
        "exact": figures.exact,
        "duration": figures.duration,
        "age": figures.age,
    }
    environment.globals |= {
        "language": language,
        "html_language": HTML_CODES[language],
        "languages": LANGUAGES,
        "themes": THEMES,
        "navigation": NAVIGATION,
        "edition": edition(),
    }
    return environment


@cache
def edition() -> str:
    """Return a digest of all static files: their URLs change when they do."""
    digest = hashlib.sha256()
    for path in sorted(STATIC.rglob("*")):
        if path.is_file():
            digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:12]


def render(language: str, template: str, values: Mapping[str, Any]) -> str:
    """Return a whole page."""
    return environment_of(language).get_template(template).render(values)


def render_live(language: str, template: str, values: Mapping[str, Any]) -> str:
    """Return the part of a page that is shown again while it is open."""
    found = environment_of(language).get_template(template)
    return "".join(found.blocks["live"](found.new_context(dict(values))))
