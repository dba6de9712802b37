"""This instance's share of the brokers: take claims, and run the work on the claimed brokers.

A loop calls ``step`` several times within a claim. Work runs on each broker whose claim this
instance holds, and on no other. Brokers known to the database are kept when they disappear from the
name servers, because they may return. When an operator has a broker forgotten, the database no
longer knows it (:mod:`eruca_postgres.forgetting`), and every instance drops it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

import structlog
from sqlalchemy.ext.asyncio import AsyncConnection

from eruca.contract.errors import NameServerSettlingError, NameServersUnreachableError
from eruca_postgres.claims import Claim, ClaimKeeper
from eruca_postgres.database import Database
from eruca_postgres.log_projector import LogProjector
from eruca_postgres.positions import read_positions

if TYPE_CHECKING:
    from eruca import AsyncClient

_log = structlog.get_logger()


class BrokerWork(Protocol):
    """The work on one broker while its claim is held here."""

    @property
    def projector(self) -> LogProjector:
        """The follower of the broker's log."""
        ...

    @property
    def fault(self) -> str | None:
        """The reason why the broker cannot be worked on just now, or None."""
        ...

    def start(self) -> None:
        """Start the work."""
        ...

    async def stop(self) -> None:
        """Stop the work; called when the claim is released or lost."""
        ...


WorkT = TypeVar("WorkT", bound=BrokerWork)


class BrokerShares(Generic[WorkT]):
    """Starts and stops the work on brokers as their claims come and go.

    Args:
        database: Holds the positions.
        client: Knows the live brokers.
        keeper: Takes the claims.
        work: Creates the work on a broker.
        known: Returns the names of all brokers known to the database.
    """

    def __init__(
        self,
        database: Database,
        client: AsyncClient,
        keeper: ClaimKeeper,
        work: Callable[[str], WorkT],
        *,
        known: Callable[[AsyncConnection], Awaitable[Iterable[str]]] = read_positions,
    ) -> None:
        self.name_server_fault: str | None = None  # the reason why the live brokers are unknown now
        self._database = database
        self._client = client
        self._keeper = keeper
        self._make_work = work
        self._known = known
        self._work: dict[str, WorkT] = {}
        self._living: set[str] = set()  # at the last answer of a name server

    def claim(self, broker_name: str) -> Claim | None:
        """Return a broker's claim if it is held here."""
        return self._keeper.held.get(broker_name)

    @property
    def work(self) -> dict[str, WorkT]:
        """The current work, by broker."""
        return dict(self._work)

    def faults(self) -> dict[str, str]:
        """Return the reasons why brokers cannot be worked on just now, by broker."""
        faults = {name: work.fault for name, work in self._work.items()}
        faults["name servers"] = self.name_server_fault
        return {name: fault for name, fault in faults.items() if fault is not None}

    async def step(self) -> None:
        """Renew the claims, and start and stop work accordingly.

        Raises:
            DatabaseUnavailableError: PostgreSQL is unreachable. Work continues until the claims
                expire, and then pauses by itself.
        """
        held = await self._keeper.step(await self._names())
        gone = [name for name in self._work if name not in held]
        await asyncio.gather(*(self._end(name) for name in gone))
        for name in held.keys() - self._work.keys():
            self._work[name] = work = self._make_work(name)
            _log.info("broker taken over", broker=name)
            work.start()

    async def stop(self) -> None:
        """Stop all work; the keeper releases the claims."""
        await asyncio.gather(*(self._end(name) for name in list(self._work)))

    async def _names(self) -> set[str]:
        """Return the names of all brokers to be shared."""
        try:
            self._living = {group.broker_name for group in await self._client.admin.brokers()}
        except (NameServersUnreachableError, NameServerSettlingError) as error:
            self.name_server_fault = str(error)
        else:
            self.name_server_fault = None
        async with self._database.transaction() as connection:
            return self._living | set(await self._known(connection))

    async def _end(self, name: str) -> None:
        work = self._work.pop(name)
        await work.stop()
        _log.info("broker given back", broker=name)
