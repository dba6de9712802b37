"""Collect the texts of the console, and bring its catalogues up to date.

``python services/console/tools/catalogues.py`` adds new texts, without a translation, to each
catalogue, and removes those that no page has any more. A test fails while a translation is missing.
"""

from __future__ import annotations

import io
from pathlib import Path
from typing import Final

from babel.messages.catalog import Catalog
from babel.messages.extract import extract_from_dir
from babel.messages.pofile import read_po, write_po

PACKAGE: Final = Path(__file__).parents[1] / "src" / "eruca_console"
_METHODS: Final = [("**.py", "python"), ("**.html", "jinja2.ext:babel_extract")]
_HEADER: Final = (  # without the times that Babel would write: only texts are changes
    'msgid ""\nmsgstr ""\n"Content-Type: text/plain; charset=UTF-8\\n"\n'
    '"Language: {language}\\n"\n"Plural-Forms: {plural_forms}\\n"\n\n'
)
_OPTIONS: Final = {"**.html": {"trimmed": "false", "newstyle_gettext": "true"}}


def collected() -> Catalog:
    """Return all texts of templates and modules."""
    catalogue = Catalog(charset="utf-8")
    for name, line, text, _comments, context in extract_from_dir(
        str(PACKAGE), _METHODS, _OPTIONS, keywords={"_": None, "N_": None, "ngettext": (1, 2)}
    ):
        catalogue.add(text, None, [(name, line)], context=context)
    return catalogue


def main() -> None:
    """Write each catalogue again."""
    texts = collected()
    for path in sorted((PACKAGE / "locale").glob("*/console.po")):
        with path.open("rb") as stream:
            catalogue = read_po(stream, locale=path.parent.name)
        catalogue.update(texts, no_fuzzy_matching=True)
        catalogue.obsolete.clear()
        written = io.BytesIO()
        write_po(
            written, catalogue, width=100, omit_header=True, no_location=True, sort_output=True
        )
        header = _HEADER.format(language=path.parent.name, plural_forms=catalogue.plural_forms)
        path.write_bytes(header.encode() + written.getvalue())


if __name__ == "__main__":
    main()
