"""A list's state, which is its URL: what is searched for, how it is sorted, which page is shown.

A parameter that is not understood is refused: an address that says one thing must not show another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Generic, TypeVar
from urllib.parse import urlencode

from eruca.contract.errors import ValidationError
from eruca.contract.errors.shown import shown as shown_text

PAGE_SIZE: Final = 50
QUERY_SIZE_MAX: Final = 255  # characters of a search; names are no longer
PAGE_MAX: Final = 100_000

RowT = TypeVar("RowT")


def check_parameters(parameters: Mapping[str, str], known: Iterable[str]) -> None:
    """Refuse parameters of a URL that its page does not have, and unknown formats.

    Raises:
        ValidationError: One is unknown; or ``format`` has another value than ``csv``.
    """
    names = sorted(known)
    for name in parameters:
        if name not in names:
            raise ValidationError(
                f"query.{shown_text(name)}: unknown parameter",
                fix=f"valid parameters: {', '.join(names)}" if names else "leave it out",
            )
    if parameters.get("format", "csv") != "csv":
        raise ValidationError("query.format: unknown format", fix="use format=csv, or none")


@dataclass(frozen=True, slots=True)
class ListState:
    """The state of one list.

    Attributes:
        path: The page's own.
        query: The searched text; empty: everything.
        sort: The column that it is sorted by.
        is_descending: Whether the largest comes first.
        page: The number of the page, from 1.
        others: Further parameters of the page, kept in each of its URLs.
    """

    path: str
    query: str = ""
    sort: str = ""
    is_descending: bool = False
    page: int = 1
    others: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        path: str,
        parameters: Mapping[str, str],
        *,
        columns: Sequence[str],
        others: Iterable[str] = (),
    ) -> ListState:
        """Return the state that *parameters* of a URL say.

        Args:
            path: The page's.
            parameters: ``q``, ``sort`` (with a minus: descending), ``page``, and *others*.
            columns: Those that the list can be sorted by; the first is the default.
            others: Names of the page's further parameters.

        Raises:
            ValidationError: One is unknown or invalid.
        """
        check_parameters(parameters, ("q", "sort", "page", "format", *others))
        query = parameters.get("q", "").strip()
        if len(query) > QUERY_SIZE_MAX:
            raise ValidationError(
                f"query.q: expected at most {QUERY_SIZE_MAX} characters, found {len(query)}"
            )
        sort = parameters.get("sort", columns[0])
        column = sort.removeprefix("-")
        if column not in columns:
            raise ValidationError(
                f"query.sort: unknown column {column!r}", fix=f"valid columns: {', '.join(columns)}"
            )
        return cls(
            path,
            query,
            column,
            sort.startswith("-"),
            _page_number(parameters.get("page", "1")),
            {name: parameters[name] for name in others if parameters.get(name)},
        )

    def url(self, **changes: object) -> str:
        """Return the URL of this list with *changes*: ``query``, ``sort``, ``page``, ``format``.

        A change of anything but the page begins at the first one.
        """
        csv = changes.pop("format", None)
        if changes.keys() - {"page"}:
            changes.setdefault("page", 1)
        state = replace(self, **changes)  # type: ignore[arg-type]
        parameters: dict[str, Any] = {**state.others}
        if state.query:
            parameters["q"] = state.query
        if state.sort:
            parameters["sort"] = f"-{state.sort}" if state.is_descending else state.sort
        if state.page > 1 and not csv:
            parameters["page"] = state.page
        if csv:
            parameters["format"] = csv
        return f"{state.path}?{urlencode(parameters)}" if parameters else state.path

    def sorted_by(self, column: str) -> str:
        """Return the URL that sorts by *column*; a second click turns the order."""
        is_descending = not self.is_descending if column == self.sort else False
        return self.url(sort=column, is_descending=is_descending)

    def order_of(self, column: str) -> str:
        """Return the value of ``aria-sort`` for *column*."""
        if column != self.sort:
            return "none"
        return "descending" if self.is_descending else "ascending"


@dataclass(frozen=True, slots=True)
class Listed(Generic[RowT]):
    """One page of a list.

    Attributes:
        rows: Those of the page.
        total: The number of all rows that match the search.
        all_total: The number of rows without a search.
        state: The list's state; its page exists.
    """

    rows: Sequence[RowT]
    total: int
    all_total: int
    state: ListState

    @property
    def first(self) -> int:
        """The number of the first shown row, from 1; 0: there is none."""
        return (self.state.page - 1) * PAGE_SIZE + 1 if self.rows else 0

    @property
    def last(self) -> int:
        """The number of the last shown row."""
        return self.first + len(self.rows) - 1 if self.rows else 0

    @property
    def page_count(self) -> int:
        """The number of pages; at least one."""
        return max(1, -(-self.total // PAGE_SIZE))


def listed(
    rows: Sequence[RowT],
    state: ListState,
    *,
    name_of: Callable[[RowT], str],
    key_of: Mapping[str, Callable[[RowT], Any]],
    is_whole: bool = False,
) -> Listed[RowT]:
    """Return the page of *rows* that *state* says.

    Args:
        rows: All rows.
        state: The list's state.
        name_of: Returns the text that is searched, without regard to case.
        key_of: For each column, the value to sort by; None sorts last.
        is_whole: Whether all pages are wanted, for a file.
    """
    wanted = state.query.casefold()
    matching = [row for row in rows if wanted in name_of(row).casefold()]
    key = key_of[state.sort]
    known = [row for row in matching if key(row) is not None]
    unknown = [row for row in matching if key(row) is None]
    known.sort(key=name_of)
    known.sort(key=key, reverse=state.is_descending)
    ordered = [*known, *sorted(unknown, key=name_of)]
    page = min(state.page, max(1, -(-len(ordered) // PAGE_SIZE)))
    start = (page - 1) * PAGE_SIZE
    shown = ordered if is_whole else ordered[start : start + PAGE_SIZE]
    return Listed(shown, len(ordered), len(rows), replace(state, page=page))


def _page_number(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and 1 <= int(text[:9]) <= PAGE_MAX):
        raise ValidationError(f"query.page: expected a number from 1 to {PAGE_MAX}, found {text!r}")
    return int(text[:9])
