"""One instance of a service that follows the brokers' logs: its resources, and its life cycle.

::

    server ─▶ database ─▶ client ─▶ the service's own parts ─▶ gate ──open──▶ at work
                                                                 claims, announcing, own parts

Everything starts in this order and stops in the reverse order. Work begins when the database is
first available. It pauses by itself while the database is unreachable, because every write needs a
claim.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

import structlog
from sqlalchemy.ext.asyncio import AsyncConnection

from eruca import AsyncClient
from eruca.contract.errors import DatabaseUnavailableError
from eruca.core.client_settings import TIMEOUT_SECONDS_DEFAULT
from eruca_chassis.app import ServiceApp
from eruca_chassis.clock import Clock
from eruca_chassis.loops import BackgroundLoop
from eruca_chassis.sockets.listening import reached_at, url_of
from eruca_postgres.announcing import Announcing
from eruca_postgres.broker_shares import BrokerShares, WorkT
from eruca_postgres.claims import ClaimKeeper
from eruca_postgres.database import Database
from eruca_postgres.gate import DatabaseGate
from eruca_postgres.positions import read_positions
from eruca_postgres.server import server_of
from eruca_postgres.settings import ProjectionSettings

if TYPE_CHECKING:
    from eruca_postgres.embedded import EmbeddedServer

CLAIM_STEPS: Final = 4  # renewals within the time of a claim

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class ServiceKind:
    """The properties that distinguish one such service from another."""

    schema: str
    migrations: Path
    namespace: str  # of the name servers' key-value table, for finding its instances


class Part(Protocol):
    """A part that works while the database is available, beside following the logs."""

    def start(self) -> None:
        """Start the part."""
        ...

    async def stop(self) -> None:
        """Stop the part; also called if it was never started."""
        ...


async def _nothing() -> None:
    """Prepare nothing."""


class Instance:
    """The resources that a service's parts use, and their common life cycle.

    Attributes:
        name: Unique to this process, even across restarts: claims of an earlier run are not ours.
        started_at: When this object was created.
        database: The service's schema.
        client: A client of the cluster.
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
        self._keeper = ClaimKeeper(database, self.name, seconds=settings.claim_seconds, clock=clock)

    def share_brokers(
        self,
        work: Callable[[str], WorkT],
        *,
        known: Callable[[AsyncConnection], Awaitable[Iterable[str]]] = read_positions,
    ) -> BrokerShares[WorkT]:
        """Return an object that runs *work* on the brokers whose claims this instance holds."""
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
        """Run all parts while the block runs and the database is available; set *app*'s readiness.

        Args:
            app: The service's application.
            shares: This instance's share of the brokers.
            parts: The other parts.
            prepare: Called before work begins, and with each renewal of the claims.

        Raises:
            StartError: The schema was made by a newer version.
        """

        async def share() -> None:
            try:
                await prepare()
                await shares.step()
            except DatabaseUnavailableError:
                return  # readiness reports it; work pauses by itself when the claims expire

        sharing = BackgroundLoop(
            "claims", share, period_seconds=self._settings.claim_seconds / CLAIM_STEPS
        )
        announcing = self._announcing(app)

        async def begin() -> None:
            await prepare()
            sharing.start()
            for part in parts:
                part.start()
            if app.is_listening:
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
            settings = self._settings
            return settings.advertised_url or url_of(reached_at(app.addresses), settings.scheme)

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
            return  # the claims expire by themselves


@asynccontextmanager
async def instance_of(
    settings: ProjectionSettings, kind: ServiceKind, clock: Clock
) -> AsyncIterator[Instance]:
    """Open an instance with its server, if it is embedded, its database and its client."""
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
                timeout_seconds=TIMEOUT_SECONDS_DEFAULT,  # not the environment's, for clients
            )
        )
        yield Instance(settings, kind, clock, database=database, client=client, postgres=postgres)
