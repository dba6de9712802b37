"""The routes of the console: its pages, the log-in, preferences, and static files.

All are public to the gate of the chassis, because a browser cannot send a header of its own. The
desk decides who may see a page, by the session's cookie, and the cluster what he may see.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Final

from fastapi import Request
from fastapi.responses import FileResponse, RedirectResponse, Response

from eruca.contract.errors import (
    ErucaError,
    NotFoundError,
)
from eruca_chassis.admission.needs import PUBLIC
from eruca_chassis.routes.parts import Part
from eruca_chassis.routes.router import Router
from eruca_console.sessions.cookies import LANGUAGE, THEME
from eruca_console.shell import headers
from eruca_console.shell.desk import Desk
from eruca_console.shell.forms import form_of, local_path
from eruca_console.shell.languages import LANGUAGES
from eruca_console.shell.login import add_login
from eruca_console.shell.pages import Page
from eruca_console.shell.rendering import STATIC, THEMES

_SEE_OTHER: Final = 303
_MEDIA_TYPES: Final = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
_FILES: Final = {
    str(path.relative_to(STATIC)): path
    for path in sorted(STATIC.rglob("*"))
    if path.suffix in _MEDIA_TYPES
}


def console_router(pages: Sequence[Page]) -> Router:
    """Return the routes of *pages*, and of what they share."""
    router = Router(include_in_schema=False)
    for page in pages:
        router.declare(page.name, PUBLIC)
        router.add_api_route(
            page.path, _showing(page), methods=["GET"], name=page.name, response_model=None
        )
        if page.act is not None:
            name = f"{page.name}_act"
            router.declare(name, PUBLIC)
            router.add_api_route(
                page.path, _acting(page), methods=["POST"], name=name, response_model=None
            )

    add_login(router)

    @router.post("/preferences", needs=PUBLIC)
    async def keep_preferences(request: Request, desk: Part[Desk]) -> Response:
        caller = desk.caller_of(request)
        try:
            fields = await form_of(request, caller)
        except ErucaError as error:
            return desk.error(request, caller, error)
        target = local_path(fields.get("next", [""])[0])
        answer = RedirectResponse(target, status_code=_SEE_OTHER, headers=headers.PAGE)
        for cookie, name, known in ((THEME, "theme", THEMES), (LANGUAGE, "language", LANGUAGES)):
            value = fields.get(name, [""])[0]
            if value in known:
                answer.headers.append("set-cookie", desk.cookie.kept(cookie, value))
        return answer

    @router.get("/static/{edition}/{name:path}", needs=PUBLIC)
    async def static_file(edition: str, name: str) -> Response:
        path = _FILES.get(name)
        if path is None:
            raise NotFoundError(f"no file {name}", fix="reload the page")
        return _whole_file(path)

    @router.get("/{path:path}", needs=PUBLIC)
    async def unknown_page(path: str, request: Request, desk: Part[Desk]) -> Response:
        error = NotFoundError(f"no page at /{path}", fix="choose one of the navigation")
        if "text/html" not in request.headers.get("accept", ""):
            raise error
        return desk.error(request, desk.caller_of(request), error)

    return router


def _showing(page: Page) -> Callable[..., Awaitable[Response]]:
    async def show(request: Request, desk: Part[Desk]) -> Response:
        return await desk.answer(page, request)

    return show


def _acting(page: Page) -> Callable[..., Awaitable[Response]]:
    async def act(request: Request, desk: Part[Desk]) -> Response:
        return await desk.act(page, request)

    return act


def _whole_file(path: Path) -> Response:
    return FileResponse(path, media_type=_MEDIA_TYPES[path.suffix], headers=headers.FILE)
