"""Announce this instance's URL, under its name, in every name server's key-value table.

The entry is written repeatedly, for name servers that lost their table or were unreachable. An
orderly shutdown removes it. Entries of killed instances are removed by the others, once PostgreSQL
has not heard from them for the duration of a claim. A service whose instances PostgreSQL does not
know leaves them: such a service announces itself under a name that is made of its address, so the
entry is valid again after its restart. A client that gets the URL of a dead instance tries another
one, so nothing depends on exact entries.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import structlog

from eruca.contract.errors import ErucaError, KeyNotFoundError
from eruca.contract.limits import HEARTBEAT_SECONDS_DEFAULT
from eruca_chassis.loops import BackgroundLoop

if TYPE_CHECKING:
    from eruca import AsyncClient
    from eruca_postgres.database import Database

RETRY_SECONDS: Final = 0.5  # services start together: a name server may be ready a moment later
PERIOD_SECONDS: Final = HEARTBEAT_SECONDS_DEFAULT  # a starting name server waits that long

_log = structlog.get_logger()


class Announcing:
    """Announces one instance.

    Args:
        client: Knows the name servers.
        database: Knows the live instances; None: nobody does.
        name: This instance's name.
        namespace: Namespace of the key-value table in which clients look for this service.
        family: Prefix of the names of all instances of this service; other entries are left alone.
        url: Returns the URL of this instance, once it is known.
    """

    def __init__(
        self,
        client: AsyncClient,
        database: Database | None,
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
        """Start announcing."""
        self._is_started = True
        self._loop.start()

    async def stop(self) -> None:
        """Stop announcing, and remove the entry."""
        if not self._is_started:
            return
        await self._loop.stop()
        try:
            await self._client.admin.delete_kv(self._namespace, self._name)
        except ErucaError as error:
            _log.info("own entry not removed from the name servers", why=str(error))

    async def _step(self) -> float | None:
        try:
            await self._client.admin.put_kv(self._namespace, self._name, self._url())
            if self._database is not None:
                await self._take_out_the_dead(self._database)
        except ErucaError as error:
            if self._fault is None:  # log it once, not with every attempt
                _log.warning("not announced", why=str(error))
            self._fault = str(error)
            return RETRY_SECONDS
        self._fault = None
        return None

    async def _take_out_the_dead(self, database: Database) -> None:
        from sqlalchemy import select  # here: not every service has a database

        from eruca_postgres.tables import instances

        announced = await self._client.admin.list_kv(self._namespace)
        async with database.transaction() as connection:
            living = set(await connection.scalars(select(instances.c.holder)))
        dead = announced.keys() - living - {self._name}
        for name in sorted(name for name in dead if name.startswith(self._family)):
            try:
                await self._client.admin.delete_kv(self._namespace, name)
            except KeyNotFoundError:
                continue  # another instance has removed it
