"""The raw limit of HTTP: uvicorn with an application that only reads the body.

``/sink`` answers 16 bytes, ``/fixed/N`` answers N bytes; both read the whole body and drop it.
"""

from __future__ import annotations

import sys

import uvicorn

from eruca_chassis.asgi import Receive, Scope, Send

_ANSWER = b"0123456789abcdef"
_FIXED: dict[str, bytes] = {}


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    """Read the request's body and answer."""
    if scope["type"] != "http":
        return
    while (await receive()).get("more_body"):
        pass
    path: str = scope["path"]
    body = _ANSWER
    if path.startswith("/fixed/"):
        body = _FIXED.get(path) or _FIXED.setdefault(path, bytes(int(path[7:])))
    await send(
        {
            "type": "http.response.start",
            "status": 200,
            "headers": [(b"content-length", b"%d" % len(body))],
        }
    )
    await send({"type": "http.response.body", "body": body})


if __name__ == "__main__":
    uvicorn.run(
        app,
        host="127.0.0.1",
        port=int(sys.argv[1]),
        loop="uvloop",
        http="httptools",
        lifespan="off",
        access_log=False,
        log_level="warning",
        date_header=False,
        server_header=False,
    )
