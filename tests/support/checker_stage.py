"""Name server, brokers, PostgreSQL and transaction checkers as processes, on networks to be cut.

Checkers reach brokers and PostgreSQL, and producers reach checkers, through proxies; producers
reach brokers directly::

    producer ──────────────────────────────▶ broker
       │                                       ▲
       └──▶ proxy ──▶ checker ──┬──▶ proxy ────┘
                                └──▶ proxy ──▶ PostgreSQL
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import anyio.to_thread
import httpx

from eruca_deploy.ports import free_ports
from eruca_deploy.supervision import Child
from eruca_postgres.embedded import EmbeddedServer
from eruca_txn_checker.projection.tables import SCHEMA
from support.checkers import begin, create_topic, take
from support.patience import PATIENCE_SECONDS
from support.postgres import drop_schema
from support.processes import clean_environment
from support.tcp_proxy import TcpProxy, tcp_proxy
from support.waiting import until_told

NAMESRV = "namesrv"
QUICK = {
    "ERUCA_TXN_CHECKER_TIMEOUT_SECONDS": "0",
    "ERUCA_TXN_CHECKER_INTERVAL_SECONDS": "1",
    "ERUCA_TXN_CHECKER_CHECKS_MAX": "100",
    "ERUCA_TXN_CHECKER_POLL_SECONDS": "0.05",
    "ERUCA_TXN_CHECKER_CLAIM_SECONDS": "1.5",
    "ERUCA_TXN_CHECKER_BROKER_SECONDS": "1",
}


class Stage:
    """Everything, started and stopped by name."""

    def __init__(self, server: EmbeddedServer) -> None:
        self.server = server
        self.children: dict[str, Child] = {}
        self.urls: dict[str, str] = {}  # where each really is
        self.brokers: dict[str, httpx.AsyncClient] = {}
        self.checkers: dict[str, httpx.AsyncClient] = {}  # as producers reach them
        self.broker_networks: dict[str, TcpProxy] = {}
        self.checker_networks: dict[str, TcpProxy] = {}
        self.postgres_network: TcpProxy
        self.lines: list[str] = []
        self.outcomes: dict[str, str] = {}  # what tests have had become of transactions here

    @property
    def broker(self) -> httpx.AsyncClient:
        """The first broker."""
        return self.brokers["broker-a"]

    @property
    def checker(self) -> httpx.AsyncClient:
        """The first checker."""
        return self.checkers["checker-1"]

    def print(self, name: str, text: str) -> None:
        """Keep a line; pytest shows it when the test fails."""
        self.lines.append(text)
        sys.stdout.write(f"{name}: {text}\n")

    async def start(self, name: str, *, is_waited_for: bool = True) -> None:
        """Start a process, or PostgreSQL."""
        if name == "postgres":
            await anyio.to_thread.run_sync(self.server.start)
            return
        self.children[name].start()
        if is_waited_for:
            await self.ready(name)

    async def ready(self, name: str) -> None:
        """Wait until a process takes requests."""
        async with httpx.AsyncClient(base_url=self.urls[name], trust_env=False) as client:
            await until_told(lambda: _status(client), lambda status: status == httpx.codes.OK)

    async def stop(self, name: str) -> None:
        """Stop a process in order, or PostgreSQL."""
        if name == "postgres":
            await anyio.to_thread.run_sync(self.server.stop)
        else:
            await self.children[name].stop(PATIENCE_SECONDS)

    async def kill(self, name: str) -> None:
        """Kill a process."""
        await self.children[name].kill()

    def drop_schema(self) -> None:
        """Lose all rows."""
        drop_schema(self.server.url, SCHEMA)

    async def begin(self, **more: Any) -> str:  # noqa: ANN401  (JSON)
        """Begin a transaction at the first broker."""
        return await begin(self.broker, **more)

    async def take(self, client_id: str = "me", **query: Any) -> list[dict[str, Any]]:  # noqa: ANN401
        """Wait for checks at the first checker."""
        return await take(self.checker, client_id, **query)

    async def until_state(
        self, transaction_id: str, state: str, broker: str = "broker-a"
    ) -> dict[str, Any]:
        """Return a transaction once its broker has it in *state*."""
        return await self._until(transaction_id, broker, lambda shown: shown["state"] == state)

    async def until_checked(self, transaction_id: str, broker: str = "broker-a") -> dict[str, Any]:
        """Return a transaction once a check of it was granted."""
        return await self._until(transaction_id, broker, lambda shown: shown["checks"])

    async def _until(
        self, transaction_id: str, broker: str, accept: Callable[[dict[str, Any]], object]
    ) -> dict[str, Any]:
        async def ask() -> dict[str, Any]:
            answer = await self.brokers[broker].get(f"/v1/transactions/{transaction_id}")
            shown: dict[str, Any] = answer.json()
            return shown

        return await until_told(ask, accept)


@asynccontextmanager
async def checker_stage(
    directory: Path,
    server: EmbeddedServer,
    *,
    brokers: int = 1,
    checkers: int = 1,
    settings: Mapping[str, str] | None = None,
) -> AsyncIterator[Stage]:
    """Yield a stage on which everything runs.

    Args:
        directory: For the brokers' stores.
        server: A PostgreSQL that runs, whose schema is empty.
        brokers: How many.
        checkers: How many.
        settings: Of the checkers, above quick ones.
    """
    names = [f"broker-{letter}" for letter in "abcd"[:brokers]]
    async with AsyncExitStack() as stack:
        stage = Stage(server)
        socket_directory = parse_qs(urlsplit(server.url).query)["host"][0]
        stage.postgres_network = await stack.enter_async_context(
            tcp_proxy(Path(socket_directory) / ".s.PGSQL.5432")
        )
        ports = iter(free_ports("127.0.0.1", 1 + brokers + checkers))
        expected = {
            "ERUCA_NAMESRV_EXPECTED_BROKERS": ";".join(names),
            "ERUCA_NAMESRV_EXPECTED_SERVICES": ";".join(
                f"checker-{number}" for number in range(1, checkers + 1)
            ),
        }
        namesrv = _add(stage, NAMESRV, "eruca_namesrv", next(ports), expected)
        for name in names:
            port = next(ports)
            network = await stack.enter_async_context(tcp_proxy(("127.0.0.1", port)))
            stage.broker_networks[name] = network
            url = _add(
                stage,
                name,
                "eruca_broker",
                port,
                {
                    "ERUCA_BROKER_NAME": name,
                    "ERUCA_BROKER_STORE_DIR": str(directory / name),
                    "ERUCA_BROKER_NAMESRV_URLS": namesrv,
                    "ERUCA_BROKER_ADVERTISED_URL": f"http://127.0.0.1:{network.port}",
                    "ERUCA_BROKER_SEGMENT_BYTES": str(1024 * 1024),
                    "ERUCA_BROKER_HEARTBEAT_SECONDS": "1",
                },
            )
            stage.brokers[name] = await stack.enter_async_context(_client(url))
        for number in range(1, checkers + 1):
            name, port = f"checker-{number}", next(ports)
            network = await stack.enter_async_context(tcp_proxy(("127.0.0.1", port)))
            stage.checker_networks[name] = network
            _add(
                stage,
                name,
                "eruca_txn_checker",
                port,
                {
                    **QUICK,
                    "ERUCA_TXN_CHECKER_NAME": name,
                    "ERUCA_TXN_CHECKER_NAMESRV_URLS": namesrv,
                    "DATABASE_URL": "postgresql://postgres@127.0.0.1:"
                    f"{stage.postgres_network.port}/postgres",
                    **(settings or {}),
                },
            )
            reached = f"http://127.0.0.1:{network.port}"
            stage.checkers[name] = await stack.enter_async_context(_client(reached))
        stack.push_async_callback(_kill_all, stage)
        for name in stage.children:
            await stage.start(name, is_waited_for=False)
        for name in stage.children:
            await stage.ready(name)
        for broker in stage.brokers.values():
            await create_topic(broker)
        for checker in stage.checkers.values():
            await until_told(
                partial(checker.get, "/v1/status"),
                lambda status: len(status.json()["followed"]) == brokers,
            )
        yield stage


def _add(stage: Stage, name: str, module: str, port: int, settings: Mapping[str, str]) -> str:
    prefix = module.upper()
    stage.children[name] = Child(
        name,
        module,
        {
            **clean_environment(),
            f"{prefix}_HOST": "127.0.0.1",
            f"{prefix}_PORT": str(port),
            "PYTHONUNBUFFERED": "1",
            **settings,
        },
        on_line=stage.print,
        on_event=stage.print,
    )
    stage.urls[name] = f"http://127.0.0.1:{port}"
    return stage.urls[name]


def _client(url: str) -> httpx.AsyncClient:
    return httpx.AsyncClient(base_url=url, trust_env=False)


async def _kill_all(stage: Stage) -> None:
    for child in stage.children.values():
        await child.kill()


async def _status(client: httpx.AsyncClient) -> int:
    try:
        return (await client.get("/readyz")).status_code
    except httpx.TransportError:
        return 0
