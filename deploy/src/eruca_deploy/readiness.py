"""What the services of a cluster say of themselves, and of each other, while it starts.

Whoever does not answer, or not as such a service does, is not there yet.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import httpx


async def is_ready(client: httpx.AsyncClient, url: str) -> bool:
    """Tell whether the service at *url* can do its work."""
    return await _answer(client, f"{url}/readyz") is not None


async def registered_brokers(client: httpx.AsyncClient, namesrv_url: str) -> set[str]:
    """Return the names of the brokers that a name server knows."""
    answer = await _answer(client, f"{namesrv_url}/v1/brokers")
    return set() if answer is None else {group["broker_name"] for group in answer["brokers"]}


async def is_at_work(
    client: httpx.AsyncClient,
    url: str,
    *,
    brokers: set[str],
    namespace: str,
    namesrv_urls: Sequence[str],
) -> bool:
    """Tell whether a service can be found and, with others of its kind, follows brokers' logs.

    Args:
        client: Asks.
        url: The service's.
        brokers: Whose logs.
        namespace: Of the key-value table, where it says under its name where it is.
        namesrv_urls: Each of these must know it.
    """
    status = await _answer(client, f"{url}/v1/status")
    if status is None:
        return False
    followed = {log["broker_name"] for log in status["followed"] if log["followed_by"] is not None}
    if not brokers <= followed:
        return False
    for namesrv_url in namesrv_urls:
        table = await _answer(client, f"{namesrv_url}/v1/kv/{namespace}")
        if table is None or status["name"] not in table["entries"]:
            return False
    return True


async def _answer(client: httpx.AsyncClient, url: str) -> dict[str, Any] | None:
    try:
        answer = await client.get(url)
    except httpx.TransportError:
        return None
    return cast(dict[str, Any], answer.json()) if answer.status_code == httpx.codes.OK else None
