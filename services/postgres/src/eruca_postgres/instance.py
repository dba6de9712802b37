"""One instance of a service that follows the brokers' logs: what it stands on, and its life.

::

    server ─▶ database ─▶ client ─▶ the service's own parts ─▶ gate ──open──▶ at work
                                                                 leases, announcing, own parts

Everything begins in this order and ends in the opposite one. Work begins when the database is there
for the first time, and pauses by itself while it is away: whoever writes needs a lease.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Protocol

import structlog
from sqlalchemy.ext.asyncio import AsyncConnection

from eruca import AsyncClient
from eruca.contract.errors import DatabaseUnavailableError
from eruca.core.client_settings import TIMEOUT_SECONDS_DEFAULT
from eruca_chassis.app import ServiceApp
from eruca_chassis.clock import Clock
from eruca_chassis.listening import reached_at, url_of
from eruca_chassis.loops import BackgroundLoop
from eruca_postgres.announcing import Announcing
from eruca_postgres.broker_shares import BrokerShares, WorkT
from eruca_postgres.database import Database
from eruca_postgres.embedded import EmbeddedServer
from eruca_postgres.gate import DatabaseGate
from eruca_postgres.leases import LeaseKeeper
from eruca_postgres.positions import read_positions
from eruca_postgres.server import server_of
from eruca_postgres.settings import ProjectionSettings

LEASE_STEPS: Final = 4  # within the time of a lease

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class ServiceKind:
    """What tells one such service from another."""

    schema: str
    migrations: Path
    namespace: str  # of the name servers' key-value table: where its instances are found


class Part(Protocol):
    """What works while the database is there, beside what follows the logs."""

    def start(self) -> None:
        """Begin."""
        ...

    async def stop(self) -> None:
        """End; also where it has not begun."""
        ...


async def _nothing() -> None:
    """Prepare nothing."""


class Instance:
    """What a service's parts are made of, and the life they have together.

    Attributes:
        name: No other process has it, and this one not after a restart: its old leases are not
            ours.
        started_at: When this was made.
        database: The service's schema.
        client: Of the cluster.
    """

    def __init__(
        self,
        settings: ProjectionSettings,
        kind: ServiceKind,
        clock: Clock,
        *,
        database: Database,
        client: AsyncClient,
        postgres: tuple[str, EmbeddedServer | None],
    ) -> None:
        self.name = f"{settings.name}-{secrets.token_hex(4)}"
        self.started_at = datetime.now(UTC)
        self.database = database
        self.client = client
        self._settings = settings
        self._kind = kind
        self._postgres = postgres
        self._keeper = LeaseKeeper(database, self.name, seconds=settings.lease_seconds, clock=clock)

    def share_brokers(
        self,
        work: Callable[[str], WorkT],
        *,
        known: Callable[[AsyncConnection], Awaitable[Iterable[str]]] = read_positions,
    ) -> BrokerShares[WorkT]:
        """Return what has *work* done on the brokers whose leases are this instance's."""
        return BrokerShares(self.database, self.client, self._keeper, work, known=known)

    @asynccontextmanager
    async def at_work(
        self,
        app: ServiceApp,
        shares: BrokerShares[Any],
        parts: Sequence[Part],
        *,
        prepare: Callable[[], Awaitable[None]] = _nothing,
    ) -> AsyncIterator[None]:
        """Let all work while the block runs and the database is there; tell *app* whether it is.

        Args:
            app: The service's; its readiness is thrown.
            shares: Of the brokers.
            parts: What else works.
            prepare: Called before work begins, and with each renewal of the leases.

        Raises:
            StartError: The schema was made by a newer version.
        """

        async def share() -> None:
            try:
                await prepare()
                await shares.step()
            except DatabaseUnavailableError:
                return  # the service says so; work pauses by itself when the leases end

        sharing = BackgroundLoop(
            "leases", share, period_seconds=self._settings.lease_seconds / LEASE_STEPS
        )
        announcing = self._announcing(app)

        async def begin() -> None:
            await prepare()
            sharing.start()
            for part in parts:
                part.start()
            if app.addresses:
                announcing.start()
            _log.info("working", instance=self.name, schema=self._kind.schema)

        url, server = self._postgres
        gate = DatabaseGate(
            self.database,
            url,
            self._kind.migrations,
            server=server,
            readiness=app.readiness,
            on_migrated=begin,
        )
        try:
            await gate.start()
            yield
        finally:
            await gate.stop()
            await sharing.stop()
            await asyncio.gather(announcing.stop(), shares.stop(), *(part.stop() for part in parts))
            await self._leave()

    def _announcing(self, app: ServiceApp) -> Announcing:
        def own_url() -> str:
            return self._settings.advertised_url or url_of(reached_at(app.addresses))

        return Announcing(
            self.client,
            self.database,
            self.name,
            namespace=self._kind.namespace,
            family=f"{self._settings.name}-",
            url=own_url,
        )

    async def _leave(self) -> None:
        try:
            await self._keeper.leave()
        except DatabaseUnavailableError:
            return  # the leases end by themselves


@asynccontextmanager
async def instance_of(
    settings: ProjectionSettings, kind: ServiceKind, clock: Clock
) -> AsyncIterator[Instance]:
    """Give an instance with its server, if that is its own, its database and its client."""
    async with AsyncExitStack() as stack:
        postgres = await stack.enter_async_context(server_of(settings))
        database = Database(
            postgres[0], kind.schema, connections_max=settings.database_connections_max
        )
        stack.push_async_callback(database.close)
        client = await stack.enter_async_context(
            AsyncClient(
                settings.namesrv_urls,
                network=settings.network,
                timeout=TIMEOUT_SECONDS_DEFAULT,  # or it would be that of clients started here
            )
        )
        yield Instance(settings, kind, clock, database=database, client=client, postgres=postgres)
