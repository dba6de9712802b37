"""The controller, put together: the only place that says who is made of what.

Read it from the top, in the order of starting; it stops in the opposite order.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from eruca import AsyncClient
from eruca.contract.access import PolicyDocument
from eruca.contract.names import CONTROLLERS_NAMESPACE
from eruca.core.client_settings import TIMEOUT_SECONDS_DEFAULT
from eruca.services.http import ANONYMOUS, http1_transport
from eruca_access.kept_source import OwnSource
from eruca_access.reporting import at_name_servers, reporting_audit
from eruca_chassis.admission.held import HeldPlaces
from eruca_chassis.app import ServiceApp
from eruca_chassis.clock import Clock
from eruca_chassis.running.settings import split_urls
from eruca_chassis.sockets.listening import reached_at, url_of
from eruca_chassis.start import StartError
from eruca_controller.api.metrics import ControllerMetrics
from eruca_controller.arbiter import Arbiter
from eruca_controller.policy_keeper import PolicyKeeper
from eruca_controller.settings import ACCOUNT_DIR, ControllerSettings
from eruca_controller.store.etcd import EtcdGroups
from eruca_controller.store.etcd_client import EtcdClient
from eruca_controller.store.file import FileGroups
from eruca_controller.store.gate import StoreGate
from eruca_controller.store.kubernetes import KubernetesGroups
from eruca_controller.store.kubernetes_client import KubernetesClient, ServiceAccount
from eruca_controller.store.policies import PolicyStore
from eruca_controller.store.policies_etcd import EtcdPolicies
from eruca_controller.store.policies_file import FilePolicies
from eruca_controller.store.seam import GroupStore
from eruca_controller.watching import NOTICED_POLL_SECONDS, POLL_SECONDS, GroupWatch
from eruca_postgres.announcing import Announcing

MIGRATIONS: Final = Path(__file__).parent / "store" / "migrations"
# An API server has other work than ours, and counts the requests of each account.
POLLS: Final = {"etcd": POLL_SECONDS, "file": POLL_SECONDS, "kubernetes": 0.5}
POLICY_POLL_SECONDS: Final = 0.5  # a revocation is effective within two seconds everywhere
TRANSACTION_SECONDS: Final = 5.0  # a broker that waits longer asks another controller


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules of the controller's own gate.

    Attributes:
        own: The rules in the store; None: the gate has others, or there is no gate.
        first: The first policy; None: none is stored.
        is_closed: Whether there is a gate.
    """

    own: OwnSource | None
    first: PolicyDocument | None
    is_closed: bool


@dataclass(frozen=True, slots=True)
class Stores:
    """The stores of the rows and of the policy; None: that one is kept nowhere."""

    groups: GroupStore
    policies: PolicyStore | None


@asynccontextmanager
async def wired(
    app: ServiceApp, *, settings: ControllerSettings, clock: Clock, rules: Rules
) -> AsyncIterator[None]:
    """Run the controller for the block, and let *app* answer requests by its parts.

    Raises:
        StartError: The schema was made by a newer version; or the embedded PostgreSQL does not
            start.
    """
    app.parts.add(settings, ControllerSettings)
    async with AsyncExitStack() as stack:
        name_servers = split_urls(settings.namesrv_urls)
        await stack.enter_async_context(
            reporting_audit(app, lambda transport: at_name_servers(transport, name_servers))
        )
        if settings.store == "postgres":
            await _over_postgres(app, stack, settings, clock, rules)
        else:
            stores = await other_stores(stack, settings)
            watch, keeper = _compose(
                app,
                stack,
                settings,
                clock,
                stores=stores,
                rules=rules,
                poll_seconds=lambda: POLLS[settings.store],
                policy_poll_seconds=lambda: POLICY_POLL_SECONDS,
            )
            gate = StoreGate(stores.groups, app.readiness)
            watch.start()
            stack.push_async_callback(watch.stop)
            keeper.start()
            stack.push_async_callback(keeper.stop)
            await gate.start()
            stack.push_async_callback(gate.stop)
        await _announce(app, stack, settings)
        yield


async def _announce(app: ServiceApp, stack: AsyncExitStack, settings: ControllerSettings) -> None:
    """Announce this controller at the name servers, so that the docs explorer finds it."""
    if not app.is_listening:
        return  # it does not listen
    url = settings.advertised_url or url_of(reached_at(app.addresses), settings.scheme)
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
    app: ServiceApp,
    stack: AsyncExitStack,
    settings: ControllerSettings,
    clock: Clock,
    rules: Rules,
) -> None:
    """Compose all parts over PostgreSQL; work begins once it is there."""
    # Here: SQLAlchemy takes a third of a controller's start, and other stores do without it.
    from eruca_controller.store.policies_postgres import PostgresPolicies
    from eruca_controller.store.postgres import PostgresGroups
    from eruca_controller.store.tables import SCHEMA
    from eruca_postgres.database import Database
    from eruca_postgres.gate import DatabaseGate
    from eruca_postgres.notices import Notices
    from eruca_postgres.server import server_of

    url, server = await stack.enter_async_context(server_of(settings))
    database = Database(
        url,
        SCHEMA,
        connections_max=settings.database_connections_max,
        transaction_seconds=TRANSACTION_SECONDS,
    )
    stack.push_async_callback(database.close)
    stores = Stores(
        PostgresGroups(database, history_count_max=settings.history_count_max),
        PostgresPolicies(database),
    )

    def poll_seconds() -> float:
        return NOTICED_POLL_SECONDS if notices.is_listening else POLL_SECONDS

    def policy_poll_seconds() -> float:
        return NOTICED_POLL_SECONDS if notices.is_listening else POLICY_POLL_SECONDS

    watch, keeper = _compose(
        app,
        stack,
        settings,
        clock,
        stores=stores,
        rules=rules,
        poll_seconds=poll_seconds,
        policy_poll_seconds=policy_poll_seconds,
    )

    def wake() -> None:
        watch.wake()
        keeper.wake()

    notices = Notices(
        database,
        f"controller-{secrets.token_hex(4)}",
        on_notice=lambda _notice: wake(),
        on_gap=wake,
    )

    async def begin() -> None:
        notices.start()
        watch.start()
        keeper.start()

    gate = DatabaseGate(
        database, url, MIGRATIONS, server=server, readiness=app.readiness, on_migrated=begin
    )
    stack.push_async_callback(keeper.stop)
    stack.push_async_callback(watch.stop)
    stack.push_async_callback(notices.stop)
    stack.push_async_callback(gate.stop)
    await gate.start()


async def other_stores(stack: AsyncExitStack, settings: ControllerSettings) -> Stores:
    """Return the stores that are no PostgreSQL."""
    if settings.store == "file":
        return Stores(
            FileGroups(settings.file, history_count_max=settings.history_count_max),
            FilePolicies(settings.file),
        )
    if settings.store == "kubernetes":
        return Stores(_in_kubernetes(stack, settings), None)
    transport = http1_transport(ANONYMOUS)  # etcd must not receive our credentials
    stack.push_async_callback(transport.close)
    account = (settings.etcd_user, settings.etcd_password.get_secret_value())
    client = EtcdClient(transport, split_urls(settings.etcd_urls), account=account)
    return Stores(
        EtcdGroups(
            client, prefix=settings.etcd_prefix, history_count_max=settings.history_count_max
        ),
        EtcdPolicies(client, prefix=settings.etcd_prefix),
    )


def _in_kubernetes(stack: AsyncExitStack, settings: ControllerSettings) -> GroupStore:
    """Return the store in ConfigMaps.

    Raises:
        StartError: The controller runs in no pod, and the settings name no namespace.
    """
    namespace = settings.kubernetes_namespace
    if not namespace:
        try:
            namespace = (ACCOUNT_DIR / "namespace").read_text().strip()
        except OSError as error:
            raise StartError(
                "the controller runs in no pod of Kubernetes, or without a service account; set "
                "ERUCA_CONTROLLER_KUBERNETES_NAMESPACE, _URL, _TOKEN_FILE and _CA_FILE"
            ) from error
    account = ServiceAccount(settings.kubernetes_token_file, settings.kubernetes_ca_file)
    transport = http1_transport(account)
    stack.push_async_callback(transport.close)
    [url] = split_urls(settings.kubernetes_url)
    return KubernetesGroups(
        KubernetesClient(transport, url, namespace),
        prefix=settings.kubernetes_prefix,
        history_count_max=settings.history_count_max,
    )


def _compose(
    app: ServiceApp,
    stack: AsyncExitStack,
    settings: ControllerSettings,
    clock: Clock,
    *,
    stores: Stores,
    rules: Rules,
    poll_seconds: Callable[[], float],
    policy_poll_seconds: Callable[[], float],
) -> tuple[GroupWatch, PolicyKeeper]:
    """Make the parts that answer requests, and open the routes; return those to be started."""
    held = HeldPlaces(maximum=settings.held_requests_max)
    app.stop_hooks.append(held.release_all)
    watch = GroupWatch(stores.groups, poll_seconds=poll_seconds)
    arbiter = app.parts.add(
        Arbiter(stores.groups, watch, held, clock, groups_max=settings.groups_max)
    )
    keeper = app.parts.add(
        PolicyKeeper(
            stores.policies,
            rules.own,
            held,
            clock,
            is_closed=rules.is_closed,
            first=rules.first,
            poll_seconds=policy_poll_seconds,
        )
    )
    app.open_routes()
    metrics = ControllerMetrics(arbiter)
    app.metrics_hooks.append(metrics.refresh)
    stack.enter_context(app.telling(metrics))
    return watch, keeper
