"""A query service under test: the real application on a real port, over a real PostgreSQL."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import httpx
from sqlalchemy import text

import eruca
from eruca_chassis.app import ServiceApp
from eruca_postgres.broker_shares import BrokerShares
from eruca_postgres.database import Database
from eruca_query.app import create_app
from eruca_query.projection.broker_work import FollowedBroker
from eruca_query.settings import QuerySettings
from support.in_process_cluster import InProcessCluster
from support.services import serving
from support.waiting import until, until_told

_TAKE_CLAIM: Final = text(
    "INSERT INTO leases (name, holder, fence, expires_at) "
    "VALUES (:name, 'nobody', nextval('lease_fences'), now() + interval '1 hour') "
    "ON CONFLICT (name) DO UPDATE SET holder = excluded.holder, fence = excluded.fence, "
    "expires_at = excluded.expires_at"
)
QUICK: Final = {"port": 0, "claim_seconds": 5.0, "broker_seconds": 30.0}


@dataclass(slots=True)
class Queried:
    """A running query service and its clients."""

    app: ServiceApp
    url: str
    http: httpx.AsyncClient
    client: eruca.AsyncClient  # of the cluster
    is_following: bool = True

    @property
    def shares(self) -> BrokerShares[FollowedBroker]:
        """The brokers that it follows."""
        return self.app.parts[BrokerShares[FollowedBroker]]

    @property
    def database(self) -> Database:
        """The read model's."""
        return self.app.parts[Database]

    async def get(self, path: str, **params: Any) -> dict[str, Any]:  # noqa: ANN401
        """Return a good answer."""
        answer = await self.http.get(path, params=params)
        assert answer.status_code == httpx.codes.OK, answer.text
        shown: dict[str, Any] = answer.json()
        return shown

    async def stop_following(self) -> None:
        """Have somebody else hold all claims for longer than a test may take."""
        names = [group.broker_name for group in await self.client.admin.brokers()]
        async with self.database.transaction() as connection:
            for name in names:
                await connection.execute(_TAKE_CLAIM, {"name": name})
        await until(lambda: not self.shares.work)
        self.is_following = False

    async def caught_up(self) -> None:
        """Wait until the read model has everything that is in the logs now, if it follows them."""
        if not self.is_following:
            return
        ends = {
            group.broker_name: (
                await self.client.admin.broker_status(group.broker_name)
            ).log.max_offset
            for group in await self.client.admin.brokers()
        }
        await self.read_to(ends)

    async def read_to(self, ends: dict[str, int]) -> None:
        """Wait until the read model has come so far."""

        async def followed() -> dict[str, int]:
            status = await self.http.get("/v1/status")
            if status.status_code != httpx.codes.OK:
                return {}
            return {its["broker_name"]: its["log_offset"] or 0 for its in status.json()["followed"]}

        await until_told(
            followed,
            lambda offsets: all(offsets.get(name, 0) >= end for name, end in ends.items()),
        )


@asynccontextmanager
async def queried_by(
    cluster: InProcessCluster,
    database_url: str,
    **settings: Any,  # noqa: ANN401  (QuerySettings' fields, of their types)
) -> AsyncIterator[Queried]:
    """Yield a query service of *cluster* that is ready."""
    chosen = QuerySettings.model_validate(
        {
            **QUICK,
            "DATABASE_URL": database_url,
            "namesrv_urls": ";".join(cluster.namesrv_urls),
            **settings,
        }
    )
    app = create_app(chosen)
    async with serving(app, chosen) as (_, (host, port)):
        url = f"http://{host}:{port}"
        async with (
            httpx.AsyncClient(base_url=url, trust_env=False) as http,
            eruca.AsyncClient(cluster.namesrv_urls) as client,
        ):
            await until_told(
                lambda: http.get("/readyz"),
                lambda a: a.status_code == 200,
            )
            await until_told(partial(_found_by, client))
            yield Queried(app, url, http, client)


async def _found_by(client: eruca.AsyncClient) -> bool:
    """Tell whether name servers know the service: it is ready before that."""
    with suppress(eruca.NoRouteError):
        return bool(await client.query.urls())
    return False
