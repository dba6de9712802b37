"""A transaction checker in this process, over a real PostgreSQL and a cluster in this process."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx

from eruca_chassis.app import ServiceApp
from eruca_chassis.clock import Clock
from eruca_txn_checker.app import create_app
from eruca_txn_checker.settings import TxnCheckerSettings
from support.in_process_cluster import InProcessCluster
from support.services import serving
from support.waiting import until_told

GROUP = "orders"
TOPIC = "payments"
QUICK: dict[str, Any] = {
    "port": 0,
    "timeout_seconds": 0,
    "interval_seconds": 1.0,
    "poll_seconds": 0.02,
    "claim_seconds": 4,  # a busy machine has three, until the next is due
    "webhook_reach": "machine",
}
"""Times that a test can wait for."""


@dataclass(slots=True)
class Checked:
    """A checker, and the brokers it checks."""

    app: ServiceApp
    http: httpx.AsyncClient  # the checker
    brokers: dict[str, httpx.AsyncClient]

    @property
    def broker(self) -> httpx.AsyncClient:
        """The first broker."""
        return self.brokers["broker-a"]

    async def begin(self, **more: Any) -> str:  # noqa: ANN401  (JSON)
        """Begin a transaction at the first broker; return its id."""
        return await begin(self.broker, **more)

    async def take(self, client_id: str = "me", **query: Any) -> list[dict[str, Any]]:  # noqa: ANN401
        """Wait for checks as a producer."""
        return await take(self.http, client_id, **query)

    async def answer(self, check_id: str, answer: str, **more: Any) -> httpx.Response:  # noqa: ANN401
        """Answer a check."""
        return await self.http.post(f"/v1/checks/{check_id}", json={"answer": answer, **more})

    async def seen(
        self, transaction_id: str, accept: Callable[[dict[str, Any]], object] = bool
    ) -> dict[str, Any]:
        """Return a transaction as the checker knows it, once that is what *accept* takes."""

        async def ask() -> dict[str, Any]:
            answer = await self.http.get(f"/v1/transactions/{transaction_id}")
            shown: dict[str, Any] = answer.json()
            return {} if answer.status_code == httpx.codes.NOT_FOUND else shown

        return await until_told(ask, lambda shown: shown and accept(shown))

    async def until_state(self, transaction_id: str, state: str) -> dict[str, Any]:
        """Return a transaction once the checker sees it in *state*."""
        return await self.seen(transaction_id, lambda shown: shown["state"] == state)

    async def at_broker(self, transaction_id: str) -> dict[str, Any]:
        """Return a transaction as its broker has it."""
        answer = await self.broker.get(f"/v1/transactions/{transaction_id}")
        assert answer.status_code == httpx.codes.OK, answer.text
        shown: dict[str, Any] = answer.json()
        return shown


@asynccontextmanager
async def checked_by(
    cluster: InProcessCluster,
    database_url: str,
    *,
    clock: Clock | None = None,
    **settings: Any,  # noqa: ANN401  (TxnCheckerSettings' fields, of their types)
) -> AsyncIterator[Checked]:
    """Yield a checker of *cluster* that is ready, with a topic to commit to."""
    chosen = TxnCheckerSettings.model_validate(
        {
            **QUICK,
            "DATABASE_URL": database_url,
            "namesrv_urls": ";".join(cluster.namesrv_urls),
            **settings,
        }
    )
    app = create_app(chosen, clock)
    async with (
        serving(app, chosen) as (_, (host, port)),
        httpx.AsyncClient(base_url=f"http://{host}:{port}", trust_env=False) as http,
        _clients(cluster) as brokers,
    ):
        for broker in brokers.values():
            await create_topic(broker)
        await until_ready(http)
        yield Checked(app, http, brokers)


@asynccontextmanager
async def _clients(cluster: InProcessCluster) -> AsyncIterator[dict[str, httpx.AsyncClient]]:
    clients = {
        name: httpx.AsyncClient(base_url=url, trust_env=False)
        for name, url in cluster.broker_urls.items()
    }
    try:
        yield clients
    finally:
        for client in clients.values():
            await client.aclose()


async def create_topic(broker: httpx.AsyncClient) -> None:
    """Create the topic, or find it there."""
    put = await broker.put(
        f"/v1/topics/{TOPIC}", json={"read_queue_count": 2, "write_queue_count": 2}
    )
    assert put.status_code in (200, 201), put.text


async def until_ready(http: httpx.AsyncClient) -> None:
    """Wait until a service takes requests."""
    await until_told(lambda: http.get("/readyz"), lambda answer: answer.status_code == 200)


async def begin(broker: httpx.AsyncClient, **more: Any) -> str:  # noqa: ANN401
    """Begin a transaction; return its id."""
    request = {
        "topic": TOPIC,
        "producer_group": GROUP,
        "message": {"body": {"text": "order 17"}},
        **more,
    }
    answer = await broker.post("/v1/transactions", json=request)
    assert answer.status_code in (200, 201), answer.text
    return str(answer.json()["transaction_id"])


async def take(
    checker: httpx.AsyncClient,
    client_id: str = "me",
    *,
    group: str = GROUP,
    count_max: int = 1,
    wait_seconds: float = 30,
) -> list[dict[str, Any]]:
    """Wait for checks as a producer."""
    answer = await checker.post(
        f"/v1/producer-groups/{group}/checks",
        params={"client_id": client_id, "count_max": count_max, "wait_seconds": wait_seconds},
    )
    assert answer.status_code == httpx.codes.OK, answer.text
    checks: list[dict[str, Any]] = answer.json()["checks"]
    return checks


async def messages(broker: httpx.AsyncClient) -> list[str]:
    """Return the texts of all messages that consumers see."""
    return [message["body"]["text"] for message in await _seen(broker)]


async def message_ids(broker: httpx.AsyncClient) -> list[str]:
    """Return the unique ids of all messages that consumers see: their transactions'."""
    return [message["message_id"] for message in await _seen(broker)]


async def _seen(broker: httpx.AsyncClient) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for queue_id in range(2):
        pulled = await broker.get(
            f"/v1/topics/{TOPIC}/queues/{queue_id}/messages",
            params={"offset": 0, "count_max": 1000},
        )
        found += pulled.json()["messages"]
    return found
