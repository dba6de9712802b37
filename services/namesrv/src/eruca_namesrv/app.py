"""Build and wire the name server's application; nothing is wired elsewhere."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import version
from typing import Final

from prometheus_client import Gauge

from eruca_chassis.app import ServiceApp
from eruca_chassis.clock import Clock, SystemClock
from eruca_chassis.held import HeldPlaces
from eruca_chassis.loops import BackgroundLoop
from eruca_namesrv.api import brokers, kv, status, topics
from eruca_namesrv.kv import KvTable
from eruca_namesrv.name_server import EXPIRY_SCAN_SECONDS, Expected, NameServer
from eruca_namesrv.route_table import RouteTable
from eruca_namesrv.settings import NamesrvSettings, split_names

_DESCRIPTION: Final = """
A name server knows which brokers are alive and which queues each topic has on them. By default a
broker sends every name server a heartbeat each 5 seconds. It sends its topics when they have
changed, when the name server lacks them, and each 30 seconds. A broker that is silent for
20 seconds leaves the routes. Clients may ask any name server.

A name server stores only the key-value table. The table also remembers the ordered topics of
brokers that are away: their routes have an order config and no queues. After a restart a name
server does not know the brokers until their next heartbeats. Until then, lists and look-ups that
find nothing are answered with 503 `name-server-settling` and `Retry-After`.

Name servers never talk to each other. Two of them may disagree until a broker has reached both, or
has expired on both. Every refusal is an `application/problem+json` document with a stable `code`.
"""
_TAGS: Final = (
    {"name": "topics", "description": "For clients: find a topic's queues"},
    {"name": "brokers", "description": "For brokers: register and be found"},
    {"name": "key-value table", "description": "Small configuration shared by all"},
    {"name": "status", "description": "The name server's own version and counts"},
)


def create_app(settings: NamesrvSettings, clock: Clock | None = None) -> ServiceApp:
    """Return the name server's application.

    Raises:
        InvalidKvFileError: ``kv_file`` is not a key-value table, cannot be read or created, or is
            locked by another process.
    """
    held = HeldPlaces(maximum=settings.held_requests_max)
    kv_table = KvTable.open(settings.kv_file, size_max=settings.kv_size_max)
    name_server = NameServer(
        RouteTable(brokers_max=settings.brokers_max, topics_max=settings.topics_max),
        kv_table,
        held,
        clock or SystemClock(),
        returns_order_config=settings.returns_order_config,
        settle_seconds=settings.settle_seconds,
        expected=Expected(
            brokers=split_names(settings.expected_brokers),
            services=split_names(settings.expected_services),
        ),
    )

    @asynccontextmanager
    async def lifespan(app: ServiceApp) -> AsyncIterator[None]:
        expiry = BackgroundLoop(
            "expiry", name_server.expiry_step, period_seconds=EXPIRY_SCAN_SECONDS
        )
        expiry.start()
        app.readiness.ready()
        yield
        await expiry.stop()
        await kv_table.close()

    app = ServiceApp(
        title="Eruca name server",
        summary="Live brokers, and the queues each topic has on them",
        description=_DESCRIPTION,
        version=version("eruca-namesrv"),
        tags=_TAGS,
        routers=[topics.router, brokers.router, kv.router, status.router],
        lifespan=lifespan,
        body_size_max=settings.body_size_max,
        bodies_size_max=settings.bodies_size_max,
        guard=settings.guard(),
        client_share=settings.client_share,
    )
    app.state.name_server = name_server
    app.stop_hooks.append(held.release_all)
    _add_gauges(app, name_server)
    return app


def _add_gauges(app: ServiceApp, name_server: NameServer) -> None:
    table, held = name_server.table, name_server.held
    for name, meaning, read in (
        ("eruca_namesrv_brokers", "Live brokers", lambda: table.broker_count),
        ("eruca_namesrv_topics", "Topics of live brokers", lambda: len(table.topics())),
        ("eruca_namesrv_held_requests", "Requests held until a change", lambda: len(held)),
    ):
        Gauge(name, meaning, registry=app.registry).set_function(read)
