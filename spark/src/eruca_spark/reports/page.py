"""A report as one HTML page that needs nothing else: no network, no file beside it.

The renderer of the charts is Vega-Lite, contained in the page (0.8 MB). A picture by matplotlib as
SVG would be smaller, but its labels would be too small to read on a telephone, it could follow no
theme, and its ``style`` attributes would need an exception from the policy. Plotly's bundles are
larger, and larger than the tables.

Everything from messages is text: Jinja2 escapes it, also within JSON. The policy of the page allows
its own scripts and its style by their hashes, and no request.
"""

from __future__ import annotations

import hashlib
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any, Final

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from eruca_spark.charts import printable
from eruca_spark.reports.basis import Basis, basis_findings
from eruca_spark.reports.cells import shown_column
from eruca_spark.reports.chart import Chart
from eruca_spark.reports.findings import LEVELS, Finding, TableRows, finding, moment, share_text
from eruca_spark.reports.vega import vega_lite
from eruca_spark.reports.words import HTML_CODES, N_, Language, counted_words, translated, words

ROWS_MAX: Final = 1_000  # of a table on a page: a browser sorts them at once
_SHARE: Final = "share"  # the column of shares, which a page shows in percent
_PARTS: Final = Path(__file__).parent / "page"
_SCRIPTS: Final = (
    "vendor/vega-6.4.0.min.js",
    "vendor/vega-lite-6.5.0.min.js",
    "vendor/vega-interpreter-2.3.2.js",
    "page.js",
)


@dataclass(frozen=True, slots=True)
class PageTable:
    """A table of a page, with the names of its columns as in files."""

    title: str
    columns: Sequence[str]
    rows: TableRows


@dataclass(frozen=True, slots=True)
class PageContent:
    """The content of a page."""

    title: str
    findings: Sequence[Finding]  # the headline first
    basis: Basis
    charts: Sequence[Chart]
    tables: Sequence[PageTable]


@dataclass(frozen=True, slots=True)
class Origin:
    """The command that made a page, without secrets, and its circumstances."""

    command: str
    source: str  # query services or a lake
    made_at: datetime
    version: str


def page_of(content: PageContent, origin: Origin, language: Language) -> str:
    """Return the page in a language, as HTML."""

    def _(text: str) -> str:
        return translated(text, language)

    notes = basis_findings(content.basis)
    headline, *further = content.findings
    if any(one.level == "warn" for one in notes):
        further.insert(0, finding("warn", N_("The input may be incomplete: see below.")))
    style = _part("page.css")
    scripts = [_part(name) for name in _SCRIPTS]
    made = _(N_("Made at {at} by eruca-spark {version}.")).format(
        at=moment(origin.made_at), version=origin.version
    )
    return (
        _environment()
        .get_template("page.html")
        .render(
            _=_,
            html_code=HTML_CODES[language],
            policy=_policy(scripts, style),
            title=_(content.title),
            headline=_shown(headline, language),
            findings=[_shown(one, language) for one in further],
            facts=_facts(content.basis, origin, language),
            notes=[_shown(one, language) for one in notes],
            charts=[
                {"title": one.title.text(language), "spec": vega_lite(one, language)}
                for one in content.charts
            ],
            tables=[_table(one, language) for one in content.tables],
            command=origin.command,
            made=made,
            style=style,
            scripts=scripts,
        )
    )


def _shown(found: Finding, language: Language) -> Mapping[str, str]:
    return {
        "level": found.level,
        "level_text": translated(LEVELS[found.level], language),
        # a number stays beside its sign
        "text": printable(found.words.text(language)).replace(" %", "\N{NO-BREAK SPACE}%"),
    }


def _facts(basis: Basis, origin: Origin, language: Language) -> list[tuple[str, str]]:
    period = basis.period
    held = sorted({row["topic"] for row in basis.queues} | {*basis.topics})
    facts = [
        (N_("messages read"), f"{basis.message_count:,}"),
        (N_("queues"), f"{len(basis.queues):,}"),
        (N_("topics"), _some(held)),
        (N_("stored from"), moment(period[0]) if period else "-"),
        (N_("stored until"), moment(period[1]) if period else "-"),
        (N_("read from"), origin.source),
    ]
    return [(translated(name, language), value) for name, value in facts]


def _some(names: Sequence[str], shown: int = 5) -> str:
    more = f" … +{len(names) - shown:,}" if len(names) > shown else ""
    return (", ".join(names[:shown]) or "-") + more


def _table(table: PageTable, language: Language) -> Mapping[str, Any]:
    rows = table.rows[:ROWS_MAX]
    texts = {
        name: [share_text(row[name]) for row in rows]
        if name == _SHARE
        else shown_column([row[name] for row in rows])
        for name in table.columns
    }
    count = len(table.rows)
    if count <= ROWS_MAX:
        told = counted_words(count, N_("one row"), N_("{count:,} rows"))
    else:
        told = words(
            N_(
                "the first {shown:,} of {count:,} rows; the Parquet file of --out DIRECTORY has all"
            ),
            shown=len(rows),
            count=count,
        )
    return {
        "title": translated(table.title, language),
        "columns": [
            {
                "name": translated(name.replace("_", " "), language),
                "is_number": any(_is_number(row[name]) for row in rows),
            }
            for name in table.columns
        ],
        "rows": [
            [
                {
                    "text": translated(texts[name][at], language)
                    if isinstance(row[name], bool)
                    else texts[name][at],
                    "order": _order(row[name]),
                }
                for name in table.columns
            ]
            for at, row in enumerate(rows)
        ],
        "count_text": told.text(language),
    }


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _order(value: object) -> str | None:
    """Return the number by which a cell is sorted; None: by its text."""
    if isinstance(value, datetime):
        return f"{value.astimezone(UTC).timestamp():.6f}"
    return repr(value) if isinstance(value, int | float) and _is_number(value) else None


# --- The parts of a page --------------------------------------------------------------------------


@cache
def _environment() -> Environment:
    return Environment(
        loader=FileSystemLoader(_PARTS),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


@cache
def _part(name: str) -> Markup:
    """Return a file of ours as it is; it must not end the element around it."""
    text = (_PARTS / name).read_text(encoding="utf-8")
    assert "</script" not in text.lower(), name
    assert "</style" not in text.lower(), name
    return Markup(text)


def _policy(scripts: Sequence[str], style: str) -> str:
    allowed = " ".join(map(_hash, scripts))
    return (
        f"default-src 'none'; script-src {allowed}; style-src {_hash(style)};"
        " base-uri 'none'; form-action 'none'"
    )


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{b64encode(digest).decode()}'"
