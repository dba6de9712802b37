"""``/docs``: the service's API explorer, without a request to anywhere else.

Swagger UI's files come from the package ``fastapi-offline``, which carries them; the page and its
few lines of script are ours, because the content security policy allows no inline script and no
other origin.
"""

from __future__ import annotations

import html
import importlib.resources
import json
from collections.abc import Awaitable, Callable
from typing import Final

from fastapi import APIRouter
from fastapi.responses import FileResponse, HTMLResponse, Response

_ASSETS: Final = {
    "swagger-ui-bundle.js": "text/javascript",
    "swagger-ui.css": "text/css",
    "favicon.png": "image/png",
}
_CACHE: Final = {"cache-control": "public, max-age=86400", "x-content-type-options": "nosniff"}
_POLICY: Final = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self' 'unsafe-inline'",  # Swagger UI styles its elements as it makes them
        "img-src 'self' data:",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)
_PAGE: Final = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<link rel="icon" type="image/png" href="docs/favicon.png">
<link rel="stylesheet" href="docs/swagger-ui.css">
</head>
<body>
<div id="explorer"></div>
<script src="docs/swagger-ui-bundle.js"></script>
<script src="docs/explorer.js"></script>
</body>
</html>
"""
_OPTIONS: Final = {
    "url": "openapi.json",
    "dom_id": "#explorer",
    "deepLinking": True,
    "displayRequestDuration": True,
    "filter": True,
    "tryItOutEnabled": True,
    "validatorUrl": None,  # or the page would ask swagger.io for a badge
}
_SCRIPT: Final = f"window.explorer = SwaggerUIBundle({json.dumps(_OPTIONS)});\n"


def explorer_router(title: str) -> APIRouter:
    """Return the routes of the page and its files."""
    router = APIRouter(include_in_schema=False)
    page = _PAGE.format(title=html.escape(title))

    @router.get("/docs")
    async def explorer() -> HTMLResponse:
        return HTMLResponse(page, headers={"content-security-policy": _POLICY})

    @router.get("/docs/explorer.js")
    async def script() -> Response:
        return Response(_SCRIPT, media_type="text/javascript", headers=_CACHE)

    for name, media_type in _ASSETS.items():
        router.add_api_route(f"/docs/{name}", _asset(name, media_type), response_model=None)
    return router


def _asset(name: str, media_type: str) -> Callable[[], Awaitable[FileResponse]]:
    path = importlib.resources.files("fastapi_offline") / "static" / name

    async def asset() -> FileResponse:
        return FileResponse(str(path), media_type=media_type, headers=_CACHE)

    return asset
