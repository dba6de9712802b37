"""The explorer's page and files.

The content security policy lets the page load scripts and styles only from its service, and call
only the services it shows. So the script is a separate file, and the part that differs from page to
page, the list of services, is in the page as data that nothing executes.

A service that is shown on another's page must allow that page's site in ``explorer_origins``.
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

from fastapi import HTTPException, Request
from fastapi.responses import FileResponse, HTMLResponse, RedirectResponse
from starlette.types import Receive, Scope, Send

from eruca_chassis.admission.cross_origin import origin_of
from eruca_chassis.admission.needs import PUBLIC
from eruca_chassis.routes.router import Router

_SWAGGER: Final = Path(str(importlib.resources.files("fastapi_offline"))) / "static"
_OURS: Final = Path(__file__).parent
_FILES: Final = {
    "swagger-ui-bundle.js": (_SWAGGER, "text/javascript"),
    "swagger-ui.css": (_SWAGGER, "text/css"),
    "favicon.png": (_SWAGGER, "image/png"),
    "explorer.js": (_OURS, "text/javascript"),
    "explorer.css": (_OURS, "text/css"),
}
FRONT: Final = "docs"
_NO_SNIFFING: Final = {"x-content-type-options": "nosniff"}
_FILE_HEADERS: Final = {
    "accept-ranges": "none",
    "cache-control": "public, max-age=31536000, immutable",
    **_NO_SNIFFING,
}


class _WholeFile(FileResponse):
    """A file that is sent whole, regardless of Range, as RFC 9110 section 14.2 allows.

    Starlette refuses an invalid range in plain text, not as a problem. No browser sends a range.
    """

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the file."""
        headers = [header for header in scope["headers"] if header[0] != b"range"]
        await super().__call__({**scope, "headers": headers}, receive, send)


class Explored(NamedTuple):
    """A service that the page shows."""

    name: str
    url: str  # an origin (see ``origin_of``); empty: the service that serves the page


class ExploredServices(NamedTuple):
    """The services to choose from; by default the page shows the first."""

    services: Sequence[Explored]
    note: str = ""  # a sentence that says what is missing, and why


ListServices: TypeAlias = Callable[[], Awaitable[ExploredServices]]


def explorer_router(
    title: str, list_services: ListServices | None = None, front: str = FRONT
) -> Router:
    """Return the routes of the page and its files.

    Args:
        title: The title of the page, and the name of the service that serves it.
        list_services: Called for each page; None: the page shows only this service.
        front: The path, without a slash before it, to which ``/`` leads a browser.
    """
    router = Router(include_in_schema=False)
    template = Template((_OURS / "page.html").read_text())
    edition = _edition()

    async def this_service() -> ExploredServices:
        return ExploredServices([Explored(title, "")])

    list_them = list_services or this_service

    @router.get("/docs", needs=PUBLIC)
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

    @router.get("/", needs=PUBLIC, operation_id="front", name="front")
    async def to_front(request: Request) -> RedirectResponse:
        # Somebody who opens a service's URL in a browser expects a page.
        if "text/html" not in request.headers.get("accept", ""):
            raise HTTPException(HTTPStatus.NOT_FOUND)
        return RedirectResponse(front, headers={"vary": "accept"})  # relative: works with proxies

    router.declare("file", PUBLIC)
    for name, (folder, media_type) in _FILES.items():
        router.add_api_route(f"/docs/{name}", _file(folder / name, media_type), response_model=None)
    return router


def content_security_policy(services: Sequence[Explored]) -> str:
    """Return the policy of a page that shows *services*."""
    callees = [service.url for service in services if service.url]
    assert all(url == origin_of(url) for url in callees)  # otherwise it could inject a directive
    return "; ".join(
        (
            "default-src 'none'",
            "script-src 'self'",
            "style-src 'self' 'unsafe-inline'",  # Swagger UI sets inline styles
            "img-src 'self' data:",
            " ".join(("connect-src 'self'", *callees)),
            "base-uri 'none'",
            "form-action 'none'",
            "frame-ancestors 'none'",
        )
    )


def _edition() -> str:
    """Return a digest of all files for their URLs, so that browsers cache them until a change."""
    digest = hashlib.sha256()
    for name, (folder, _) in _FILES.items():
        digest.update((folder / name).read_bytes())
    return digest.hexdigest()[:12]


def _as_data(explored: ExploredServices) -> str:
    """Return *explored* as JSON that cannot close its HTML element."""
    data = {"services": [s._asdict() for s in explored.services], "note": explored.note}
    return json.dumps(data).replace("<", "\\u003c")


def _file(path: Path, media_type: str) -> Callable[[], Awaitable[FileResponse]]:
    async def file() -> FileResponse:
        return _WholeFile(path, media_type=media_type, headers=_FILE_HEADERS)

    return file
