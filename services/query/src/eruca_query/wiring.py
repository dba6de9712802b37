"""The query service, put together: the only place that says who is made of what.

Read it from the top, in the order of starting; it stops in the opposite order.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Final

from eruca.contract.names import QUERY_SERVICES_NAMESPACE
from eruca_access.reporting import at_name_servers, reporting_audit
from eruca_chassis.app import ServiceApp
from eruca_chassis.clock import Clock
from eruca_chassis.loops import BackgroundLoop
from eruca_chassis.running.settings import split_urls
from eruca_postgres.instance import ServiceKind, instance_of
from eruca_postgres.log_projector import LogProjector
from eruca_query.api.metrics import QueryMetrics
from eruca_query.core.chunk_states import ChunkLimits
from eruca_query.exports.service import exports_of
from eruca_query.projection.broker_work import FollowedBroker
from eruca_query.projection.forgotten import known_brokers
from eruca_query.projection.message_projection import MessageProjection, ProjectionCounts
from eruca_query.projection.name_numbers import NameNumbers
from eruca_query.projection.settling import Settling
from eruca_query.projection.tables import SCHEMA
from eruca_query.projection.upkeep import PERIOD_SECONDS as UPKEEP_SECONDS
from eruca_query.projection.upkeep import Upkeep
from eruca_query.searching.broker_directory import BrokerDirectory
from eruca_query.searching.broker_logs import BrokerLogs
from eruca_query.searching.message_counts import MessageCounter
from eruca_query.searching.message_pages import MessagePages
from eruca_query.searching.message_search import MessageSearch
from eruca_query.searching.timelines import Timelines
from eruca_query.searching.topic_holders import TopicHolders
from eruca_query.settings import QuerySettings

MIGRATIONS: Final = Path(__file__).parent / "projection" / "migrations"
FAR_READS: Final = 8  # of the log: so far from its end, chunks begin without indexes
KIND: Final = ServiceKind(SCHEMA, MIGRATIONS, namespace=QUERY_SERVICES_NAMESPACE)


def chunk_limits(settings: QuerySettings) -> ChunkLimits:
    """Return the limits of chunks; distances from a log's end are multiples of one read."""
    return ChunkLimits(
        settings.chunk_rows,
        round(settings.chunk_hours * 3_600_000),
        far_bytes=FAR_READS * settings.read_bytes,
        near_bytes=settings.read_bytes,
    )


@asynccontextmanager
async def wired(app: ServiceApp, *, settings: QuerySettings, clock: Clock) -> AsyncIterator[None]:
    """Run the query service for the block, and let *app* answer requests by its parts."""
    parts = app.parts
    async with AsyncExitStack() as stack:
        name_servers = split_urls(settings.namesrv_urls)
        await stack.enter_async_context(
            reporting_audit(
                app, lambda transport: at_name_servers(transport, name_servers, settings.network)
            )
        )
        instance = parts.add(await stack.enter_async_context(instance_of(settings, KIND, clock)))
        database, client = parts.add(instance.database), parts.add(instance.client)

        # Following the brokers' logs.
        numbers, counts = NameNumbers(), parts.add(ProjectionCounts())
        limits, settling_turn = chunk_limits(settings), asyncio.Lock()

        def follow(broker_name: str) -> FollowedBroker:
            projection = MessageProjection(numbers, limits=limits, counts=counts)
            projector = LogProjector(
                database,
                client,
                broker_name,
                claim=lambda: shares.claim(broker_name),
                projection=projection,
                read_bytes=settings.read_bytes,
            )
            return FollowedBroker(projector, projection, Settling(database, settling_turn))

        shares = parts.add(instance.share_brokers(follow, known=known_brokers))
        retention_ms = round(settings.retention_hours * 3_600_000)
        upkeep = parts.add(Upkeep(database, clock, retention_ms=retention_ms))

        # Searching.
        logs = BrokerLogs(
            client,
            BrokerDirectory(client, clock),
            timeout=settings.broker_seconds,
            tail_bytes_max=settings.tail_bytes_max,
        )
        search = parts.add(MessageSearch(database, numbers, logs))
        parts.add(MessagePages(database, numbers, logs))
        parts.add(MessageCounter(database, numbers, logs, clock))
        parts.add(Timelines(database, numbers, logs, search, clock))
        holders = TopicHolders(database, numbers)
        exports = exports_of(app, client, settings, holders.missing, holders.others_topics)
        parts.add(await stack.enter_async_context(exports))

        app.open_routes()
        stack.enter_context(app.telling(QueryMetrics(shares, counts, upkeep)))
        upkeep_loop = BackgroundLoop("upkeep", upkeep.step, period_seconds=UPKEEP_SECONDS)
        await stack.enter_async_context(instance.at_work(app, shares, [upkeep_loop]))
        stack.callback(app.begin_stop)
        yield
