"""Exports under test: the query service's routes for them on a real port, without its database."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa

from eruca import AsyncClient
from eruca.contract.errors import DatabaseUnavailableError
from eruca.contract.exports import ExportPlan
from eruca.contract.queries import Missing
from eruca_chassis.app import ServiceApp
from eruca_chassis.running.command_line import run_program
from eruca_chassis.running.serving import Server
from eruca_query.exports import routes
from eruca_query.exports.service import Exports, exports_of
from eruca_query.settings import QuerySettings
from support.in_process_cluster import InProcessCluster
from support.processes import ServiceProcess, started
from support.services import serving

TIMEOUT_SECONDS = 30.0  # of requests to brokers; machines that run tests are busy


@dataclass(slots=True)
class ExportService:
    """The running services."""

    url: str
    address: tuple[str, int]
    exports: Exports
    server: Server
    client: AsyncClient
    http: httpx.AsyncClient
    holders: Holders

    def is_unread(self) -> bool:
        """Tell whether a reader has yet to read what has been sent to it."""
        return any(connection.unread_size() for connection in self.server.watch.connections)

    async def plan(self, topic: str, **query: Any) -> ExportPlan:  # noqa: ANN401 - of httpx
        """Return a plan that is not refused."""
        answer = await self.http.get(f"/v1/exports/{topic}/plan", params=query)
        assert answer.status_code == 200, answer.text
        return ExportPlan.model_validate_json(answer.content)

    async def table(self, topic: str, ranges: Sequence[str], **query: Any) -> pa.Table:  # noqa: ANN401
        """Return the rows of ranges, read as an Arrow stream."""
        answer = await self.records(topic, ranges, **query)
        assert answer.status_code == 200, answer.text
        return pa.ipc.open_stream(answer.content).read_all()

    async def records(
        self,
        topic: str,
        ranges: Sequence[str],
        *,
        accept: str | None = None,
        **query: Any,  # noqa: ANN401 - of httpx
    ) -> httpx.Response:
        """Return the answer to a request for rows."""
        return await self.http.get(
            f"/v1/exports/{topic}/records",
            params={"range": list(ranges), **query},
            headers={} if accept is None else {"accept": accept},
        )


class Holders:
    """Brokers that have messages of every topic, as the rows would tell it."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.is_unreachable = False  # the rows' database

    async def missing(
        self,
        topic: str,
        present: Collection[str],
        *,
        from_time: datetime | None,
        to_time: datetime | None,
    ) -> list[Missing]:
        """Return those that are not present."""
        del topic, from_time, to_time
        if self.is_unreachable:
            raise DatabaseUnavailableError("nobody listens")
        return [
            Missing(broker_name=name, reason="broker_unreachable", detail="nobody knows it")
            for name in self.names
            if name not in present
        ]

    async def others_topics(self, present: Collection[str]) -> set[str]:
        """Return none: only the names of brokers are known."""
        del present
        return set()


def export_app(settings: QuerySettings, holders: Holders | None = None) -> ServiceApp:
    """Return a service that exports and does nothing else."""
    holders = holders or Holders()

    @asynccontextmanager
    async def lifespan(app: ServiceApp) -> AsyncIterator[None]:
        async with (
            AsyncClient(settings.namesrv_urls, timeout_seconds=TIMEOUT_SECONDS) as client,
            exports_of(app, client, settings, holders.missing, holders.others_topics) as exports,
        ):
            app.parts.add(exports)
            app.open_routes()
            app.readiness.ready()
            yield

    return ServiceApp(
        title="Exports",
        summary="Exports",
        description="Exports",
        version="1",
        routers=(routes.router,),
        tags=(routes.TAG,),
        lifespan=lifespan,
    )


def main() -> None:
    """Serve until a signal comes, as a process of its own: ``python -m support.exports``."""
    run_program(QuerySettings, export_app, name=lambda _: "query", inspect=lambda _: ())


@asynccontextmanager
async def export_process(cluster: InProcessCluster) -> AsyncIterator[ServiceProcess]:
    """Yield a process that exports from *cluster*."""
    settings = {
        "PYTHONPATH": str(Path(__file__).parents[1]),
        "ERUCA_QUERY_PORT": "0",
        "ERUCA_QUERY_NAMESRV_URLS": ";".join(cluster.namesrv_urls),
        "ERUCA_QUERY_LOG_STYLE": "json",
    }
    with started("support.exports", settings) as process:
        await asyncio.to_thread(process.wait_until_listening)
        yield process


@asynccontextmanager
async def export_service(
    cluster: InProcessCluster,
    **settings: Any,  # noqa: ANN401  (QuerySettings' fields, of their types)
) -> AsyncIterator[ExportService]:
    """Yield exports of *cluster*."""
    chosen = QuerySettings(
        **{"namesrv_urls": ";".join(cluster.namesrv_urls), "port": 0, **settings}
    )

    holders = Holders()
    app = export_app(chosen, holders)
    async with serving(app, chosen) as (server, (host, port)):
        url = f"http://{host}:{port}"
        async with httpx.AsyncClient(base_url=url) as http:
            # The listener is bound, but its lifespan may still begin.
            assert (await http.get("/readyz")).status_code == 200
            exports = app.parts[Exports]
            yield ExportService(url, (host, port), exports, server, exports.client, http, holders)


if __name__ == "__main__":
    main()
