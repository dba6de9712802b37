"""The controller, put together: the only place that says who is made of what.

Read it from the top, in the order of starting; it stops in the opposite order.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Final

from eruca import AsyncClient
from eruca.contract.names import CONTROLLERS_NAMESPACE
from eruca.core.client_settings import TIMEOUT_SECONDS_DEFAULT
from eruca.services.http import ANONYMOUS, httpx_transport
from eruca_chassis.app import ServiceApp
from eruca_chassis.clock import Clock
from eruca_chassis.held import HeldPlaces
from eruca_chassis.listening import reached_at, url_of
from eruca_chassis.settings import split_urls
from eruca_controller.api.metrics import ControllerMetrics
from eruca_controller.arbiter import Arbiter
from eruca_controller.settings import ControllerSettings
from eruca_controller.store.etcd import EtcdGroups
from eruca_controller.store.etcd_client import EtcdClient
from eruca_controller.store.file import FileGroups
from eruca_controller.store.gate import StoreGate
from eruca_controller.store.postgres import PostgresGroups
from eruca_controller.store.seam import GroupStore
from eruca_controller.store.tables import SCHEMA
from eruca_controller.watching import NOTICED_POLL_SECONDS, POLL_SECONDS, GroupWatch
from eruca_postgres.announcing import Announcing
from eruca_postgres.database import Database
from eruca_postgres.gate import DatabaseGate
from eruca_postgres.notices import Notices
from eruca_postgres.server import server_of

MIGRATIONS: Final = Path(__file__).parent / "store" / "migrations"
TRANSACTION_SECONDS: Final = 5.0  # a broker that waits longer asks another controller


@asynccontextmanager
async def wired(
    app: ServiceApp, *, settings: ControllerSettings, clock: Clock
) -> AsyncIterator[None]:
    """Run the controller for the block, and let *app* answer requests by its parts.

    Raises:
        StartError: The schema was made by a newer version; or the embedded PostgreSQL does not
            start.
    """
    app.parts.add(settings, ControllerSettings)
    async with AsyncExitStack() as stack:
        if settings.store == "postgres":
            await _over_postgres(app, stack, settings, clock)
        else:
            store = await _other_store(stack, settings)
            watch = _compose(app, stack, settings, clock, store)
            gate = StoreGate(store, app.readiness)
            watch.start()
            stack.push_async_callback(watch.stop)
            await gate.start()
            stack.push_async_callback(gate.stop)
        await _announce(app, stack, settings)
        yield


async def _announce(app: ServiceApp, stack: AsyncExitStack, settings: ControllerSettings) -> None:
    """Announce this controller at the name servers, so that the docs explorer finds it."""
    if not app.addresses:
        return  # it does not listen
    url = settings.advertised_url or url_of(reached_at(app.addresses))
    client = await stack.enter_async_context(
        AsyncClient(
            settings.namesrv_urls,
            timeout_seconds=TIMEOUT_SECONDS_DEFAULT,  # not the environment's, for clients
        )
    )
    announcing = Announcing(
        client,
        None,
        "controller-" + re.sub(r"[^A-Za-z0-9.]+", "-", url.partition("//")[2]).strip("-"),
        namespace=CONTROLLERS_NAMESPACE,
        family="controller-",
        url=lambda: url,
    )
    announcing.start()
    stack.push_async_callback(announcing.stop)


async def _over_postgres(
    app: ServiceApp, stack: AsyncExitStack, settings: ControllerSettings, clock: Clock
) -> None:
    """Compose all parts over PostgreSQL; work begins once it is there."""
    url, server = await stack.enter_async_context(server_of(settings))
    database = Database(
        url,
        SCHEMA,
        connections_max=settings.database_connections_max,
        transaction_seconds=TRANSACTION_SECONDS,
    )
    stack.push_async_callback(database.close)
    store = PostgresGroups(database, history_count_max=settings.history_count_max)

    def poll_seconds() -> float:
        return NOTICED_POLL_SECONDS if notices.is_listening else POLL_SECONDS

    watch = _compose(app, stack, settings, clock, store, poll_seconds=poll_seconds)
    notices = Notices(
        database,
        f"controller-{secrets.token_hex(4)}",
        on_notice=lambda _broker_name: watch.wake(),
        on_gap=watch.wake,
    )

    async def begin() -> None:
        notices.start()
        watch.start()

    gate = DatabaseGate(
        database, url, MIGRATIONS, server=server, readiness=app.readiness, on_migrated=begin
    )
    stack.push_async_callback(watch.stop)
    stack.push_async_callback(notices.stop)
    stack.push_async_callback(gate.stop)
    await gate.start()


async def _other_store(stack: AsyncExitStack, settings: ControllerSettings) -> GroupStore:
    """Return the store that is no PostgreSQL."""
    if settings.store == "file":
        return FileGroups(settings.file, history_count_max=settings.history_count_max)
    transport = httpx_transport(ANONYMOUS)  # etcd must not receive our credentials
    stack.push_async_callback(transport.close)
    return EtcdGroups(
        EtcdClient(transport, split_urls(settings.etcd_urls)),
        prefix=settings.etcd_prefix,
        history_count_max=settings.history_count_max,
    )


def _compose(
    app: ServiceApp,
    stack: AsyncExitStack,
    settings: ControllerSettings,
    clock: Clock,
    store: GroupStore,
    *,
    poll_seconds: Callable[[], float] = lambda: POLL_SECONDS,
) -> GroupWatch:
    """Make the parts that answer requests, and open the routes; return the watch, not started."""
    held = HeldPlaces(maximum=settings.held_requests_max)
    app.stop_hooks.append(held.release_all)
    watch = GroupWatch(store, poll_seconds=poll_seconds)
    arbiter = app.parts.add(Arbiter(store, watch, held, clock, groups_max=settings.groups_max))
    app.open_routes()
    metrics = ControllerMetrics(arbiter)
    app.metrics_hooks.append(metrics.refresh)
    stack.enter_context(app.telling(metrics))
    return watch
