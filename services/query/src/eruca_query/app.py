"""The query service, put together: the only place that builds and wires."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Final

import structlog

from eruca import AsyncClient
from eruca.contract.errors import DatabaseUnavailableError
from eruca.contract.names import QUERY_SERVICES_NAMESPACE
from eruca.core.client_settings import TIMEOUT_SECONDS_DEFAULT
from eruca_chassis.app import ServiceApp
from eruca_chassis.clock import Clock, SystemClock
from eruca_chassis.explorer.routes import ExploredServices
from eruca_chassis.loops import BackgroundLoop
from eruca_postgres.announcing import Announcing, url_of
from eruca_postgres.broker_shares import BrokerShares
from eruca_postgres.database import Database
from eruca_postgres.embedded import EmbeddedServer
from eruca_postgres.gate import DatabaseGate
from eruca_postgres.leases import LeaseKeeper
from eruca_postgres.log_projector import LogProjector
from eruca_postgres.server import server_of
from eruca_query.api import messages, status
from eruca_query.api.metrics import QueryMetrics
from eruca_query.explorer.listing import list_services
from eruca_query.exports import routes as exports
from eruca_query.exports.service import exports_of
from eruca_query.projection.broker_work import FollowedBroker
from eruca_query.projection.chunks import ChunkLimits
from eruca_query.projection.forgotten import known_brokers
from eruca_query.projection.message_projection import MessageProjection, ProjectionCounts
from eruca_query.projection.name_numbers import NameNumbers
from eruca_query.projection.tables import SCHEMA
from eruca_query.projection.upkeep import PERIOD_SECONDS as UPKEEP_SECONDS
from eruca_query.projection.upkeep import Upkeep
from eruca_query.searching.broker_directory import BrokerDirectory
from eruca_query.searching.broker_logs import BrokerLogs
from eruca_query.searching.message_pages import MessagePages
from eruca_query.searching.message_search import MessageSearch
from eruca_query.searching.timelines import Timelines
from eruca_query.searching.topic_holders import TopicHolders
from eruca_query.service import QueryService
from eruca_query.settings import QuerySettings

MIGRATIONS: Final = Path(__file__).parent / "projection" / "migrations"
LEASE_STEPS: Final = 4  # within the time of a lease
_DESCRIPTION: Final = """
The query service follows every broker's log into PostgreSQL and finds messages in it: by id, by
key, by tag, by time; and it tells what befell each of them.

What it knows is a projection, which runs a little behind the logs. Each answer says how far it has
come, broker by broker, and whether anything is missing from it and why: an empty answer without
such a note means that there is nothing. Every refusal is an `application/problem+json` document
whose `code` is stable.
"""
_TAGS: Final = (
    {"name": "messages", "description": "Find messages, and what befell them"},
    exports.TAG,
    {"name": "status", "description": "Who the service is, and how far it has read"},
)
_WITHOUT_DATABASE: Final = ("/v1/exports/",)  # what asks brokers alone, and so goes on without it

_log = structlog.get_logger()


def create_app(settings: QuerySettings, clock: Clock | None = None) -> ServiceApp:
    """Return the query service's application; its lifespan opens the database."""
    clock = clock or SystemClock()

    @asynccontextmanager
    async def lifespan(app: ServiceApp) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            url, server = await stack.enter_async_context(server_of(settings))
            database = Database(url, SCHEMA, connections_max=settings.database_connections_max)
            stack.push_async_callback(database.close)
            client = await stack.enter_async_context(
                AsyncClient(
                    settings.namesrv_urls,
                    network=settings.network,
                    timeout=TIMEOUT_SECONDS_DEFAULT,  # or it would be that of clients started here
                )
            )
            app.state.client = client
            service, keeper = _wire(settings, database, client, clock)
            app.state.service = service
            app.state.exports = await stack.enter_async_context(
                exports_of(app, client, settings, service.holders.missing)
            )
            metrics = QueryMetrics(service)
            app.registry.register(metrics)
            stack.callback(app.registry.unregister, metrics)
            stack.push_async_callback(_stop, service, keeper)
            gate = await _begin(app, settings, service, (url, server), stack)
            stack.push_async_callback(gate.stop)
            yield
            app.begin_stop()

    async def explored() -> ExploredServices:
        if app.readiness.is_starting:
            raise app.readiness.error()
        return await list_services(app.state.client)

    app = ServiceApp(
        title="Eruca query service",
        summary="Messages by id, key, tag and time, and what befell them",
        description=_DESCRIPTION,
        version=version("eruca-query"),
        tags=_TAGS,
        routers=[messages.router, exports.router, status.router],
        lifespan=lifespan,
        explorer_origins=settings.explorer_origins,
        explored=explored,
        ungated=_WITHOUT_DATABASE,
    )
    return app


async def _begin(
    app: ServiceApp,
    settings: QuerySettings,
    service: QueryService,
    postgres: tuple[str, EmbeddedServer | None],
    stack: AsyncExitStack,
) -> DatabaseGate:
    """Let work begin as soon as the database is there, and return what watches it."""
    sharing = BackgroundLoop(
        "leases",
        lambda: _share(service),
        period_seconds=settings.lease_seconds / LEASE_STEPS,
    )
    upkeep = BackgroundLoop("upkeep", service.upkeep.step, period_seconds=UPKEEP_SECONDS)

    def own_url() -> str:
        assert app.address is not None
        return settings.advertised_url or url_of(*app.address)

    announcing = Announcing(
        app.state.client,
        service.database,
        service.name,
        namespace=QUERY_SERVICES_NAMESPACE,
        family=f"{settings.name}-",
        url=own_url,
    )

    async def begin() -> None:
        for loop in (sharing, upkeep):
            loop.start()
            stack.push_async_callback(loop.stop)
        if app.address is not None:
            announcing.start()
        _log.info("working", instance=service.name, schema=SCHEMA)

    url, server = postgres
    gate = DatabaseGate(
        service.database,
        url,
        MIGRATIONS,
        server=server,
        readiness=app.readiness,
        on_migrated=begin,
    )
    stack.push_async_callback(announcing.stop)
    await gate.start()
    return gate


async def _stop(service: QueryService, keeper: LeaseKeeper) -> None:
    await service.shares.stop()
    try:
        await keeper.leave()
    except DatabaseUnavailableError:
        return  # the leases end by themselves


async def _share(service: QueryService) -> None:
    try:
        await service.shares.step()
    except DatabaseUnavailableError:
        return  # the service says so; work pauses by itself when the leases end


def _wire(
    settings: QuerySettings, database: Database, client: AsyncClient, clock: Clock
) -> tuple[QueryService, LeaseKeeper]:
    # No other process has this name, and this one not after a restart: its old leases are not ours.
    name = f"{settings.name}-{secrets.token_hex(4)}"
    numbers, counts = NameNumbers(), ProjectionCounts()
    limits = ChunkLimits(settings.chunk_rows, round(settings.chunk_hours * 3_600_000))
    keeper = LeaseKeeper(database, name, seconds=settings.lease_seconds, clock=clock)

    def follow(broker_name: str) -> FollowedBroker:
        return FollowedBroker(
            LogProjector(
                database,
                client,
                broker_name,
                lease=lambda: shares.lease(broker_name),
                projection=MessageProjection(numbers, limits=limits, counts=counts),
                read_size=settings.read_size,
            )
        )

    shares = BrokerShares(database, client, keeper, follow, known=known_brokers)
    logs = BrokerLogs(
        client,
        BrokerDirectory(client, clock),
        timeout=settings.broker_seconds,
        tail_size_max=settings.tail_size_max,
    )
    search = MessageSearch(database, numbers, logs)
    service = QueryService(
        name=name,
        started_at=datetime.now(UTC),
        database=database,
        client=client,
        shares=shares,
        counts=counts,
        upkeep=Upkeep(database, clock, retention_ms=round(settings.retention_hours * 3_600_000)),
        search=search,
        pages=MessagePages(database, numbers, logs),
        timelines=Timelines(database, numbers, logs, search, clock),
        holders=TopicHolders(database, numbers),
    )
    return service, keeper
