"""Detect that a client has disconnected while its request is held."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from eruca_chassis.asgi import Receive


def leaving(receive: Receive) -> Callable[[], Awaitable[None]]:
    """Return a function that returns once the client of a request, whose body is read, is gone."""

    async def gone() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass

    return gone
