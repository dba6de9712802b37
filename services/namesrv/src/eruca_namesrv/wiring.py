"""The name server, put together: the only place that says who is made of what.

Read it from the top, in the order of starting; it stops in the opposite order.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

from eruca_access.reporting import masters_of, reporting_audit
from eruca_chassis.admission.held import HeldPlaces
from eruca_chassis.app import ServiceApp
from eruca_chassis.clock import Clock
from eruca_chassis.loops import BackgroundLoop
from eruca_namesrv.api.metrics import NamesrvMetrics
from eruca_namesrv.kv import KvTable
from eruca_namesrv.name_server import EXPIRY_SCAN_SECONDS, Expected, NameServer
from eruca_namesrv.route_table import RouteTable
from eruca_namesrv.settings import NamesrvSettings, split_names


@asynccontextmanager
async def wired(app: ServiceApp, *, settings: NamesrvSettings, clock: Clock) -> AsyncIterator[None]:
    """Run the name server for the block, and let *app* answer requests by its parts.

    Raises:
        InvalidKvFileError: ``kv_file`` is not a key-value table, cannot be read or created, or is
            locked by another process.
    """
    async with AsyncExitStack() as stack:
        kv_table = KvTable.open(settings.kv_file, size_max=settings.kv_characters_max)
        stack.push_async_callback(kv_table.close)
        held = HeldPlaces(maximum=settings.held_requests_max)
        app.stop_hooks.append(held.release_all)
        name_server = app.parts.add(
            NameServer(
                RouteTable(brokers_max=settings.brokers_max, topics_max=settings.topics_max),
                kv_table,
                held,
                clock,
                returns_order_config=settings.returns_order_config,
                settle_seconds=settings.settle_seconds,
                expected=Expected(
                    brokers=split_names(settings.expected_brokers),
                    services=split_names(settings.expected_services),
                ),
            )
        )
        app.open_routes()
        stack.enter_context(app.telling(NamesrvMetrics(name_server)))
        expiry = BackgroundLoop(
            "expiry", name_server.expiry_step, period_seconds=EXPIRY_SCAN_SECONDS
        )
        expiry.start()

        async def masters() -> Sequence[str]:
            return masters_of(name_server.broker_list().brokers)

        await stack.enter_async_context(reporting_audit(app, lambda _transport: masters))
        stack.push_async_callback(expiry.stop)
        app.readiness.ready()
        yield
