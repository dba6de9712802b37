"""Assemble the query service: the only place that creates and wires its parts."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Final

from eruca.contract.names import QUERY_SERVICES_NAMESPACE
from eruca_chassis.app import ServiceApp
from eruca_chassis.clock import Clock, SystemClock
from eruca_chassis.explorer.routes import ExploredServices
from eruca_chassis.loops import BackgroundLoop
from eruca_postgres.instance import Instance, ServiceKind, instance_of
from eruca_postgres.log_projector import LogProjector
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
KIND: Final = ServiceKind(SCHEMA, MIGRATIONS, namespace=QUERY_SERVICES_NAMESPACE)
_DESCRIPTION: Final = """
The query service copies every broker's log into PostgreSQL. It finds messages by id, key, tag and
time, and shows each message's timeline.

Its data is a projection, which lags a little behind the logs. Each answer gives the progress,
broker by broker, and names everything that may be missing, with the reason. If nothing may be
missing, an empty answer means that nothing matches. Every error is an `application/problem+json`
document whose `code` is stable.
"""
_TAGS: Final = (
    {"name": "messages", "description": "Find messages, and get their timelines"},
    exports.TAG,
    {"name": "status", "description": "The service's identity and progress"},
)
_WITHOUT_DATABASE: Final = ("/v1/exports/",)  # asks only brokers, so it works without PostgreSQL


def create_app(settings: QuerySettings, clock: Clock | None = None) -> ServiceApp:
    """Return the query service's application; its lifespan opens the database."""
    clock = clock or SystemClock()

    @asynccontextmanager
    async def lifespan(app: ServiceApp) -> AsyncIterator[None]:
        async with instance_of(settings, KIND, clock) as instance:
            app.state.client = instance.client
            app.state.service = service = _wire(settings, instance, clock)
            upkeep = BackgroundLoop("upkeep", service.upkeep.step, period_seconds=UPKEEP_SECONDS)
            async with exports_of(app, instance.client, settings, service.holders.missing) as its:
                app.state.exports = its
                with app.telling(QueryMetrics(service)):
                    async with instance.at_work(app, service.shares, [upkeep]):
                        yield
                        app.begin_stop()

    async def explored() -> ExploredServices:
        if app.readiness.is_starting:
            raise app.readiness.error()
        return await list_services(app.state.client)

    app = ServiceApp(
        title="Eruca query service",
        summary="Messages by id, key, tag and time, and their timelines",
        description=_DESCRIPTION,
        version=version("eruca-query"),
        tags=_TAGS,
        routers=[messages.router, exports.router, status.router],
        lifespan=lifespan,
        guard=settings.guard(),
        client_share=settings.client_share,
        explored=explored,
        ungated=_WITHOUT_DATABASE,
    )
    return app


def _wire(settings: QuerySettings, instance: Instance, clock: Clock) -> QueryService:
    database, client = instance.database, instance.client
    numbers, counts = NameNumbers(), ProjectionCounts()
    limits = ChunkLimits(settings.chunk_rows, round(settings.chunk_hours * 3_600_000))

    def follow(broker_name: str) -> FollowedBroker:
        return FollowedBroker(
            LogProjector(
                database,
                client,
                broker_name,
                claim=lambda: shares.claim(broker_name),
                projection=MessageProjection(numbers, limits=limits, counts=counts),
                read_size=settings.read_size,
            )
        )

    shares = instance.share_brokers(follow, known=known_brokers)
    logs = BrokerLogs(
        client,
        BrokerDirectory(client, clock),
        timeout=settings.broker_seconds,
        tail_size_max=settings.tail_size_max,
    )
    search = MessageSearch(database, numbers, logs)
    return QueryService(
        instance=instance,
        shares=shares,
        counts=counts,
        upkeep=Upkeep(database, clock, retention_ms=round(settings.retention_hours * 3_600_000)),
        search=search,
        pages=MessagePages(database, numbers, logs),
        timelines=Timelines(database, numbers, logs, search, clock),
        holders=TopicHolders(database, numbers),
    )
