"""Each notion has one name in the SDK, on the command line, over HTTP and in settings.

The table of names in GLOSSARY.md is true: each name in it is there in its column's place, and no
name that it lists as replaced is anywhere.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

import pytest
import typer

import eruca
from eruca.cli.app import app
from eruca_broker.settings import BrokerSettings
from eruca_console.settings import ConsoleSettings
from eruca_controller.settings import ControllerSettings
from eruca_namesrv.settings import NamesrvSettings
from eruca_query.settings import QuerySettings
from eruca_txn_checker.settings import TxnCheckerSettings
from support.documents import ROOT
from support.openapi_documents import kept_document

PUBLIC: Final[list[str]] = vars(eruca)["__all__"]
SERVICES = ("broker", "console", "controller", "namesrv", "query", "txn-checker")
SETTINGS = (
    BrokerSettings,
    ConsoleSettings,
    ControllerSettings,
    NamesrvSettings,
    QuerySettings,
    TxnCheckerSettings,
)
PLACES = ("SDK", "Command line", "HTTP", "Settings")
HEADINGS = ["Notion", *PLACES, "Replaced"]
NOT_A_LIMIT = {"max_offset"}  # RocketMQ's name for the end of a queue or a log


OTHER_NOTIONS = {"AccessRule": {"from"}}  # names by schema: the networks of a rule's callers


class Row(NamedTuple):
    """One notion: its names by place, and those that were replaced."""

    notion: str
    names: dict[str, list[str]]
    replaced: list[str]


def rows() -> list[Row]:
    """Return the rows of the table."""
    section = (ROOT / "GLOSSARY.md").read_text().partition("## One name for each notion")[2]
    lines = [line for line in section.splitlines() if line.startswith("| ")]
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines]
    assert cells[0] == HEADINGS
    return [
        Row(
            first,
            {place: _code(cell) for place, cell in zip(PLACES, names, strict=True)},
            _code(last),
        )
        for first, *names, last in cells[1:]
    ]


def _code(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def http_names() -> set[str]:
    """Return the names of all query parameters and of all fields of bodies."""
    found: set[str] = set()
    for service in SERVICES:
        for part in _objects(kept_document(service)):
            if part.get("in") == "query":
                found.add(part["name"])
            properties = part.get("properties")
            if isinstance(properties, dict):
                found |= properties.keys() - OTHER_NOTIONS.get(part.get("title", ""), set())
    return found


def _objects(value: Any) -> Iterator[dict[str, Any]]:  # noqa: ANN401 - any JSON
    if isinstance(value, dict):
        yield value
    for inner in value.values() if isinstance(value, dict) else value:
        if isinstance(inner, dict | list):
            yield from _objects(inner)


def cli_options(command: Any = None) -> set[str]:  # noqa: ANN401 - typer's click is not typed
    """Return all long options of ``eruca`` and its commands."""
    command = typer.main.get_command(app) if command is None else command
    found = {option for p in command.params for option in (*p.opts, *p.secondary_opts)}
    for inner in getattr(command, "commands", {}).values():
        found |= cli_options(inner)
    return {option for option in found if option.startswith("--")}


def sdk_names() -> set[str]:
    """Return the public attributes, fields and parameters of everything in ``eruca``."""
    found: set[str] = set()
    for public in (getattr(eruca, name) for name in PUBLIC):
        members = [public]
        if inspect.isclass(public):
            of_class = {name: getattr(public, name, None) for name in dir(public) if name[0] != "_"}
            found |= of_class.keys()
            members += [member for member in of_class.values() if inspect.isroutine(member)]
        for member in members:
            found |= _parameters(member)
    return found


def _parameters(member: Any) -> set[str]:  # noqa: ANN401 - any callable
    try:
        return set(inspect.signature(member).parameters)
    except (TypeError, ValueError):  # not a callable, or one in C without a signature
        return set()


def setting_names() -> set[str]:
    """Return the names of the services' settings."""
    return {name for settings in SETTINGS for name in settings.model_fields}


ROWS = rows()
NAMES = {
    "SDK": sdk_names(),
    "Command line": cli_options(),
    "HTTP": http_names(),
    "Settings": setting_names(),
}


def missing(names: Iterable[str], known: set[str]) -> list[str]:
    """Return those of *names* that are not known; ``…`` stands for any beginning."""
    return [
        name
        for name in (name.rpartition(".")[2] for name in names)
        if not any(one.endswith(name[1:]) if name.startswith("…") else one == name for one in known)
    ]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.notion)
def test_a_notion_has_the_names_that_the_glossary_gives(row: Row) -> None:
    unknown = {place: missing(row.names[place], NAMES[place]) for place in PLACES}

    assert not any(unknown.values()), unknown


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.notion)
def test_a_replaced_name_is_nowhere(row: Row) -> None:
    names = set().union(*NAMES.values())
    spellings = {*row.replaced, *(f"--{name.replace('_', '-')}" for name in row.replaced)}

    assert spellings & names == set()


@pytest.mark.parametrize("place", PLACES)
def test_a_limit_ends_in_max(place: str) -> None:
    first = "--max-" if place == "Command line" else "max_"

    assert {name for name in NAMES[place] if name.startswith(first)} <= NOT_A_LIMIT


def test_the_names_are_found() -> None:
    """Or nothing above would say anything."""
    assert {"count_max", "retries_max", "bytes_max"} <= NAMES["SDK"] & NAMES["HTTP"]
    assert {"--count", "--wait-seconds"} <= NAMES["Command line"]
    assert missing(["…_count_max"], {"export_count_max"}) == []
    assert missing(["Retries.retries_max", "max_count"], {"retries_max"}) == ["max_count"]
    assert [row.replaced for row in ROWS if "max_count" in row.replaced]
