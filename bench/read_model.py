"""The query service's read model, as a precondition of other measurements."""

from __future__ import annotations

import asyncio
from typing import Final

import httpx

_LOOK_SECONDS: Final = 0.2


async def until_read(http: httpx.AsyncClient, query: str) -> None:
    """Wait until the query service has read the logs, which costs it more than exports do."""
    while True:
        followed = (await http.get(f"{query}/v1/status")).json()["followed"]
        if followed and all(log["behind_bytes"] == 0 for log in followed):
            return
        await asyncio.sleep(_LOOK_SECONDS)
