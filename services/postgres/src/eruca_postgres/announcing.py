"""Being found: this instance's URL in every name server's key-value table, under its name.

It is put there again and again, for a name server that lost its table, or came back. An orderly
stop takes it out; what instances that were killed have left there the others take out, once
PostgreSQL has not heard from them for as long as a lease lasts. A client that is led to an instance
that is gone tries another one, so nobody depends on this being exact.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import structlog
from sqlalchemy import select

from eruca.contract.errors import ErucaError, KeyNotFoundError
from eruca.contract.limits import HEARTBEAT_SECONDS_DEFAULT
from eruca_chassis.loops import BackgroundLoop
from eruca_postgres.database import Database
from eruca_postgres.tables import instances

if TYPE_CHECKING:
    from eruca import AsyncClient

PERIOD_SECONDS: Final = HEARTBEAT_SECONDS_DEFAULT  # name servers that start wait for it

_log = structlog.get_logger()


class Announcing:
    """Announces one instance.

    Args:
        client: Knows the name servers.
        database: Knows which instances live.
        name: This instance's.
        namespace: Of the key-value table: where clients look for this kind of service.
        family: What the names of all instances of this service begin with; others are let alone.
        url: Returns where this one is reached, once that is known.
    """

    def __init__(
        self,
        client: AsyncClient,
        database: Database,
        name: str,
        *,
        namespace: str,
        family: str,
        url: Callable[[], str],
    ) -> None:
        self._client = client
        self._database = database
        self._name = name
        self._namespace = namespace
        self._family = family
        self._url = url
        self._fault: str | None = None
        self._is_started = False
        self._loop = BackgroundLoop("announcing", self._step, period_seconds=PERIOD_SECONDS)

    def start(self) -> None:
        """Begin."""
        self._is_started = True
        self._loop.start()

    async def stop(self) -> None:
        """Take it out."""
        if not self._is_started:
            return
        await self._loop.stop()
        try:
            await self._client.admin.delete_kv(self._namespace, self._name)
        except ErucaError as error:
            _log.info("not taken out of the name servers", why=str(error))

    async def _step(self) -> None:
        try:
            await self._client.admin.put_kv(self._namespace, self._name, self._url())
            await self._take_out_the_dead()
        except ErucaError as error:
            if self._fault is None:  # said once, not every time
                _log.warning("not announced", why=str(error))
            self._fault = str(error)
        else:
            self._fault = None

    async def _take_out_the_dead(self) -> None:
        announced = await self._client.admin.list_kv(self._namespace)
        async with self._database.transaction() as connection:
            living = set(await connection.scalars(select(instances.c.holder)))
        dead = announced.keys() - living - {self._name}
        for name in sorted(name for name in dead if name.startswith(self._family)):
            try:
                await self._client.admin.delete_kv(self._namespace, name)
            except KeyNotFoundError:
                continue  # somebody else was faster
