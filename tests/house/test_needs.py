"""Every operation declares what it needs, and the schema of a policy's file is up to date."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

import pytest
from fastapi.routing import APIRoute, iter_route_contexts

from eruca.contract.access import PolicyDocument, ResourceKind, Right
from eruca_console.pages import PAGES as CONSOLE_PAGES
from support.openapi_documents import SERVICES

ROOT: Final = Path(__file__).parents[2]
SCHEMA: Final = ROOT / "services/access/policy.schema.json"
PUBLIC: Final = {
    "openapi", "explorer", "front", "file", "health", "readiness", "describeProblem"
}  # fmt: skip
# A browser sends no key of its own: the console decides by its sessions (test_sessions.py).
PAGES: Final = {
    "console": {page.name for page in CONSOLE_PAGES}
    | {f"{page.name}_act" for page in CONSOLE_PAGES if page.act is not None}
    | {
        "login",
        "begin_session",
        "end_session",
        "begin_at_issuer",
        "end_at_issuer",
        "keep_preferences",
        "static_file",
        "unknown_page",
    }
}


@pytest.mark.parametrize("service", SERVICES)
def test_every_route_declares_what_it_needs(service: str) -> None:
    app = SERVICES[service]()
    routes = [context.original_route for context in iter_route_contexts(app.routes)]
    ids = {
        (route.operation_id if isinstance(route, APIRoute) else None) or route.name  # type: ignore[attr-defined]
        for route in routes
    }
    assert ids == app.needs.keys()
    assert {name for name, needs in app.needs.items() if needs.is_public} == PUBLIC | PAGES.get(
        service, set()
    )


@pytest.mark.parametrize("service", SERVICES)
def test_needs_are_rights_on_resources_in_parameters_that_exist(service: str) -> None:
    app = SERVICES[service]()
    operations = {
        operation["operationId"]: operation
        for item in app.openapi()["paths"].values()
        for operation in item.values()
    }
    for name, needs in app.needs.items():
        for on in needs.ons:
            assert set(on.rights) <= set(Right)
            assert on.kind in set(ResourceKind)
            if on.place.part in ("path", "query"):
                parameters = {(p["in"], p["name"]) for p in operations[name]["parameters"]}
                assert (on.place.part, on.place.name) in parameters, name


def test_the_schema_of_the_file_is_the_models() -> None:
    schema = PolicyDocument.model_json_schema(by_alias=True)
    assert json.loads(SCHEMA.read_text()) == schema, "write it again: see the test"
