"""The notions of a page: what a view gets, and what it returns.

A page is a folder of ``pages`` with a view and a template. The view asks the cluster, as its
caller, and returns what the template shows. The template's block ``live`` is what is shown again
while the page is open.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeAlias

from eruca_console.cluster.reading import Reading
from eruca_console.core.recipes import Recipe
from eruca_console.sessions.callers import Caller


@dataclass(frozen=True, slots=True)
class Visit:
    """A request for a page.

    Attributes:
        caller: Who asks.
        path: The values in the path, decoded.
        query: The parameters of the URL.
        now: The time.
        namesrv_urls: The name servers, for texts to copy.
        wants_file: Whether the list is wanted whole, as a file.
    """

    caller: Caller
    path: Mapping[str, str]
    query: Mapping[str, str]
    now: datetime
    namesrv_urls: str
    wants_file: bool = False

    @property
    def reading(self) -> Reading:
        """Asks the cluster as the caller."""
        return self.caller.reading

    @property
    def has_key(self) -> bool:
        """True if the caller has a key, which commands to copy need, too."""
        return self.caller.session_id is not None


@dataclass(frozen=True, slots=True)
class CsvTable:
    """A list as a file.

    Attributes:
        name: The file's, without its end.
        headings: The columns.
        rows: A cell for each.
        is_whole: Whether nothing is missing, such as the part of a broker that does not answer. The
            name of another file says so, because its rows cannot.
    """

    name: str
    headings: Sequence[str]
    rows: Sequence[Sequence[object]]
    is_whole: bool = True


@dataclass(frozen=True, slots=True)
class Shown:
    """The content of a page.

    Attributes:
        title: Of the page; a name, or a text of the catalogues.
        values: For the template.
        recipe: How to get the same without the console.
        table: The page's list as a file; None: it has none.
    """

    title: str
    values: Mapping[str, Any]
    recipe: Recipe
    table: CsvTable | None = None


View: TypeAlias = Callable[[Visit], Awaitable[Shown]]
Fields: TypeAlias = Mapping[str, Sequence[str]]
"""A form's fields, each with its values."""
Act: TypeAlias = Callable[[Visit, Fields], Awaitable[Shown]]


@dataclass(frozen=True, slots=True)
class Page:
    """A page.

    Attributes:
        name: The name of its folder, and of its operation.
        path: The path's template.
        section: The entry of the navigation that is marked.
        view: Asks for what it shows.
        parents: The pages above it: title and path.
        act: Answers the page's form; None: it has none.
        is_live: Whether an open page is kept up to date. One with choices to make is not.
        is_named: Whether its title is a name of the cluster's, which has no translation.
    """

    name: str
    path: str
    section: str
    view: View
    parents: Sequence[tuple[str, str]] = field(default=())
    act: Act | None = None
    is_live: bool = True
    is_named: bool = False

    @property
    def template(self) -> str:
        """The name of its template."""
        return f"{self.name}/page.html"
