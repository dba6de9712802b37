"""HTTP clients are made in one place, so that every request of ours passes the credentials seam."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
FOLDERS = (
    *("sdk/src", "services", "deploy/src", "testing/src", "spark/src", "demo", "examples"),
    *("docs/site",),
)
HTTP = "sdk/src/eruca/aio/http"
# Asks for nothing but readiness, which needs no credentials.
HEALTHCHECK = "services/chassis/src/eruca_chassis/healthcheck.py"
# How a client is made, or a request without one, and the only file that may.
PLACES = {
    "Http1Transport": {f"{HTTP}/clients.py"},
    "httpx.AsyncClient": {f"{HTTP}/httpx_carrier.py"},
    "httpx.AsyncHTTPTransport": {f"{HTTP}/httpx_carrier.py"},
    "http.client.HTTPConnection": {"sdk/src/eruca/exporting/service.py", HEALTHCHECK},
    "http.client.HTTPSConnection": {"sdk/src/eruca/exporting/service.py", HEALTHCHECK},
}
NOWHERE = (
    *("httpx.Client", "httpx.HTTPTransport", "httpx.get", "httpx.post", "httpx.put"),
    *("httpx.delete", "httpx.request", "httpx.stream", "urllib.request.urlopen"),
    *("aiohttp.ClientSession", "requests.get", "requests.post", "requests.Session"),
)
# A token issuer, a webhook and an etcd are somebody else's servers. Everything else that asks is to
# say who it is.
WITHOUT_CREDENTIALS = {
    "services/access/src/eruca_access/tokens.py",
    "services/console/src/eruca_console/sessions/code_flow.py",
    "services/controller/src/eruca_controller/wiring.py",
    "services/txn-checker/src/eruca_txn_checker/checking/webhook_call.py",
}


class Made(NamedTuple):
    """A call that makes a client, and its place."""

    what: str
    place: str
    line: int


def test_clients_are_made_in_one_place() -> None:
    made = list(clients_made())

    elsewhere = [one for one in made if one.place not in PLACES.get(one.what, ())]

    assert elsewhere == [], "use http1_transport or httpx_client, of eruca.services.http"
    assert {one.what for one in made} == PLACES.keys()


def test_only_requests_to_others_servers_are_made_without_credentials() -> None:
    naming = {
        place
        for place, tree in sources()
        if not place.startswith("sdk/src/eruca/aio/http/")
        and any(
            isinstance(node, ast.Name) and node.id in ("ANONYMOUS", "Anonymous")
            for node in ast.walk(tree)
        )
    }

    assert naming - {"sdk/src/eruca/exporting/credentials.py"} == WITHOUT_CREDENTIALS


def clients_made() -> Iterator[Made]:
    """Yield each call of a name that stands, under any alias, for a client."""
    wanted = [*PLACES, *NOWHERE]
    for place, tree in sources():
        names = imported(tree)
        for node in ast.walk(tree):
            if not isinstance(node, ast.Call):
                continue
            full = full_name(node.func, names)
            for what in wanted:
                if full == what or full.endswith(f".{what}"):
                    yield Made(what, place, node.lineno)


def sources() -> Iterator[tuple[str, ast.Module]]:
    """Yield each source file of ours, by its place, and what is written in it."""
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            yield str(path.relative_to(ROOT)), ast.parse(path.read_text())


def imported(tree: ast.Module) -> dict[str, str]:
    """Return the full names for which a module's names stand."""
    names: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                top = alias.name.partition(".")[0]
                names[alias.asname or top] = alias.name if alias.asname else top
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                names[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    return names


def full_name(node: ast.expr, names: dict[str, str]) -> str:
    """Return the name that *node* is, from the module it comes from; empty for anything else."""
    if isinstance(node, ast.Name):
        return names.get(node.id, "")
    if isinstance(node, ast.Attribute):
        left = full_name(node.value, names)
        return f"{left}.{node.attr}" if left else ""
    return ""
