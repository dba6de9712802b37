"""The explorer's page and files.

The content security policy lets the page load scripts and styles from the service alone, and call
the services it shows and no others. So the script lies in a file of its own, and what differs from
page to page, the list of services, stands in it as data that nothing executes.

A service shown from another's page must allow that page's site: its setting ``explorer_origins``.
"""

from __future__ import annotations

import hashlib
import html
import importlib.resources
import json
from collections.abc import Awaitable, Callable, Sequence
from http import HTTPStatus
from pathlib import Path
from string import Template
from typing import Final, NamedTuple, TypeAlias

from fastapi import APIRouter, HTTPException, Request
from fastapi.responses import FileResponse, HTMLResponse, RedirectResponse
from starlette.types import Receive, Scope, Send

from eruca_chassis.cross_origin import origin_of

_SWAGGER: Final = Path(str(importlib.resources.files("fastapi_offline"))) / "static"
_OURS: Final = Path(__file__).parent
_FILES: Final = {
    "swagger-ui-bundle.js": (_SWAGGER, "text/javascript"),
    "swagger-ui.css": (_SWAGGER, "text/css"),
    "favicon.png": (_SWAGGER, "image/png"),
    "explorer.js": (_OURS, "text/javascript"),
    "explorer.css": (_OURS, "text/css"),
}
_NO_SNIFFING: Final = {"x-content-type-options": "nosniff"}
_FILE_HEADERS: Final = {
    "accept-ranges": "none",
    "cache-control": "public, max-age=31536000, immutable",
    **_NO_SNIFFING,
}


class _WholeFile(FileResponse):
    """A file that is sent as a whole, whatever Range says, as RFC 9110 section 14.2 allows.

    Starlette refuses a range that it does not understand in plain text. No browser asks for one.
    """

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it."""
        headers = [header for header in scope["headers"] if header[0] != b"range"]
        await super().__call__({**scope, "headers": headers}, receive, send)


class Explored(NamedTuple):
    """One service that the page shows."""

    name: str
    url: str  # an origin (see ``origin_of``); empty: the service that serves the page


class ExploredServices(NamedTuple):
    """What the page lets choose from; it shows the first one unless told otherwise."""

    services: Sequence[Explored]
    note: str = ""  # what is missing, and why; a sentence


ListServices: TypeAlias = Callable[[], Awaitable[ExploredServices]]


def explorer_router(title: str, list_services: ListServices | None = None) -> APIRouter:
    """Return the routes of the page and its files.

    Args:
        title: Of the page, and of the service that serves it.
        list_services: Called for each page; None: it shows this service alone.
    """
    router = APIRouter(include_in_schema=False)
    template = Template((_OURS / "page.html").read_text())
    edition = _edition()

    async def this_service() -> ExploredServices:
        return ExploredServices([Explored(title, "")])

    list_them = list_services or this_service

    @router.get("/docs")
    async def explorer() -> HTMLResponse:
        explored = await list_them()
        page = template.substitute(
            title=html.escape(title), edition=edition, explored=_as_data(explored)
        )
        headers = {
            "cache-control": "no-store",
            "content-security-policy": content_security_policy(explored.services),
            "referrer-policy": "no-referrer",
            **_NO_SNIFFING,
        }
        return HTMLResponse(page, headers=headers)

    @router.get("/")
    async def front(request: Request) -> RedirectResponse:
        # Whoever opens a service's URL in a browser looks for something to read.
        if "text/html" not in request.headers.get("accept", ""):
            raise HTTPException(HTTPStatus.NOT_FOUND)
        return RedirectResponse("docs", headers={"vary": "accept"})  # relative, as behind a proxy

    for name, (folder, media_type) in _FILES.items():
        router.add_api_route(f"/docs/{name}", _file(folder / name, media_type), response_model=None)
    return router


def content_security_policy(services: Sequence[Explored]) -> str:
    """Return the policy of a page that shows *services*."""
    callees = [service.url for service in services if service.url]
    assert all(url == origin_of(url) for url in callees)  # or it could say more than an address
    return "; ".join(
        (
            "default-src 'none'",
            "script-src 'self'",
            "style-src 'self' 'unsafe-inline'",  # Swagger UI styles its elements as it makes them
            "img-src 'self' data:",
            " ".join(("connect-src 'self'", *callees)),
            "base-uri 'none'",
            "form-action 'none'",
            "frame-ancestors 'none'",
        )
    )


def _edition() -> str:
    """Return what stands behind the files' names, so that browsers keep them until they change."""
    digest = hashlib.sha256()
    for name, (folder, _) in _FILES.items():
        digest.update((folder / name).read_bytes())
    return digest.hexdigest()[:12]


def _as_data(explored: ExploredServices) -> str:
    """Return *explored* as JSON that cannot end the element it stands in."""
    data = {"services": [s._asdict() for s in explored.services], "note": explored.note}
    return json.dumps(data).replace("<", "\\u003c")


def _file(path: Path, media_type: str) -> Callable[[], Awaitable[FileResponse]]:
    async def file() -> FileResponse:
        return _WholeFile(path, media_type=media_type, headers=_FILE_HEADERS)

    return file
