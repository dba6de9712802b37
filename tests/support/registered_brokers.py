"""Brokers that register with a name server over HTTP."""

from __future__ import annotations

from collections.abc import Sequence

import httpx
from anyio.lowlevel import checkpoint

LONG = 30  # seconds; no test waits that long


def registration(
    *topics: str, version: int = 1, host: str = "10.0.0.1:10911", **more: object
) -> dict[str, object]:
    return {
        "cluster": "c",
        "urls": {"default": f"http://{host}", "public": "https://broker.example:443"},
        "store_host": host,
        "data_version": version,
        "topics": [
            {"topic": t, "read_queue_count": 4, "write_queue_count": 4, "permission": "rw"}
            for t in topics
        ],
        **more,
    }


async def register(
    client: httpx.AsyncClient,
    name: str = "broker-a",
    *,
    topics: Sequence[str] = ("flights",),
    version: int = 1,
    host: str = "10.0.0.1:10911",
    expiry_seconds: float = 120,
) -> None:
    told = registration(*topics, version=version, host=host, expiry_seconds=expiry_seconds)
    answer = await client.put(f"/v1/brokers/{name}/0", json=told)
    assert answer.status_code == 200, answer.text


def assert_nobody_knows(answer: httpx.Response) -> None:
    assert (answer.status_code, answer.json()["code"]) == (503, "no-live-broker")
    assert answer.json()["retryable"] is True
    assert int(answer.headers["retry-after"]) >= 1


async def held(client: httpx.AsyncClient, count: int) -> None:
    """Return once the name server holds that many requests."""
    while (await client.get("/v1/status")).json()["held_requests"] != count:
        await checkpoint()
