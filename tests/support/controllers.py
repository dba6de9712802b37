"""A controller under test, over each of its stores; and rows of broker groups."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

import httpx

from eruca_chassis.clock import Clock
from eruca_controller.app import create_app
from eruca_controller.settings import ControllerSettings
from support.services import serving
from support.waiting import until_told

STORES: Final = ("postgres", "etcd", "kubernetes", "file")
CREATE: Final = {"if-none-match": "*"}
GROUPS: Final = "/broker-groups"
GROUP_A: Final = f"{GROUPS}/broker-a"


def replica(replica_id: int, uid: str | None = None) -> dict[str, Any]:
    """Return a replica's name."""
    return {"replica_id": replica_id, "uid": uid or f"store-{replica_id}"}


def group(
    epoch: int = 1,
    master: int = 1,
    in_sync: Sequence[int] = (1, 2),
    *,
    by: str = "a test",
    reason: str = "it is tested",
    **more: Any,  # noqa: ANN401  (JSON)
) -> dict[str, Any]:
    """Return a row, as a broker puts it."""
    members = [replica(one) for one in in_sync]
    return {
        "epoch": epoch,
        "master": replica(master),
        "in_sync": members,
        "replicas": [{**one, "urls": {"default": "http://127.0.0.1:10911"}} for one in members],
        "min_in_sync": 1,
        "flush_mode": "async",
        "by": by,
        "reason": reason,
        **more,
    }


def if_match(version: str) -> dict[str, str]:
    """Return the header of a change of this version."""
    return {"if-match": f'"{version}"'}


async def until_held(client: httpx.AsyncClient, count: int = 1) -> None:
    """Wait until the controller holds *count* requests."""
    await until_told(
        lambda: client.get("/status"), lambda answer: answer.json()["held_requests"] == count
    )


@asynccontextmanager
async def controller(
    settings: dict[str, Any], *, clock: Clock | None = None, is_ready: bool = True
) -> AsyncIterator[httpx.AsyncClient]:
    """Yield a client of a controller in this process, on a port of its own; wait until it is ready.

    If it cannot become ready, say so (*is_ready*).
    """
    chosen = ControllerSettings.model_validate({"port": 0, **settings})
    async with (
        serving(create_app(chosen, clock), chosen) as (_, (host, port)),
        httpx.AsyncClient(
            base_url=f"http://{host}:{port}/v1", trust_env=False, timeout=30
        ) as client,
    ):
        ready = f"http://{host}:{port}/readyz"
        wanted = 200 if is_ready else 503
        await until_told(lambda: client.get(ready), lambda answer: answer.status_code == wanted)
        yield client
