"""This instance's share of the brokers: taking leases, and having work done on what they give.

A loop calls ``step`` a few times within a lease. Each broker whose lease is ours has its work
running, and no other has. Brokers of which the database knows something are kept when they go from
the name servers, for they come back; one that an operator has had forgotten is not known to it any
more (:mod:`eruca_postgres.forgetting`), and is dropped by every instance.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

import structlog
from sqlalchemy.ext.asyncio import AsyncConnection

from eruca.contract.errors import NameServerSettlingError, NameServersUnreachableError
from eruca_postgres.database import Database
from eruca_postgres.leases import Lease, LeaseKeeper
from eruca_postgres.log_projector import LogProjector
from eruca_postgres.positions import read_positions

if TYPE_CHECKING:
    from eruca import AsyncClient

_log = structlog.get_logger()


class BrokerWork(Protocol):
    """What is done about one broker while its lease is ours."""

    @property
    def projector(self) -> LogProjector:
        """What follows its log."""
        ...

    @property
    def fault(self) -> str | None:
        """Why the broker cannot be worked on just now."""
        ...

    def start(self) -> None:
        """Begin."""
        ...

    async def stop(self) -> None:
        """End; called when the lease is given back, or lost."""
        ...


WorkT = TypeVar("WorkT", bound=BrokerWork)


class BrokerShares(Generic[WorkT]):
    """Keeps the work on brokers in step with their leases.

    Args:
        database: Where the positions are.
        client: Knows the live brokers.
        keeper: Takes the leases.
        work: Makes the work on a broker.
        known: Returns the names of the brokers of which the database knows something.
    """

    def __init__(
        self,
        database: Database,
        client: AsyncClient,
        keeper: LeaseKeeper,
        work: Callable[[str], WorkT],
        *,
        known: Callable[[AsyncConnection], Awaitable[Iterable[str]]] = read_positions,
    ) -> None:
        self.name_server_fault: str | None = None  # why the brokers are not known just now
        self._database = database
        self._client = client
        self._keeper = keeper
        self._make_work = work
        self._known = known
        self._work: dict[str, WorkT] = {}
        self._living: set[str] = set()  # as a name server said when one last answered

    def lease(self, broker_name: str) -> Lease | None:
        """Return a broker's lease while it is ours."""
        return self._keeper.held.get(broker_name)

    @property
    def work(self) -> dict[str, WorkT]:
        """What is being done now, by broker."""
        return dict(self._work)

    def faults(self) -> dict[str, str]:
        """Return what cannot be worked on just now, and why."""
        faults = {name: work.fault for name, work in self._work.items()}
        faults["name servers"] = self.name_server_fault
        return {name: fault for name, fault in faults.items() if fault is not None}

    async def step(self) -> None:
        """Renew the leases, and start and stop work accordingly.

        Raises:
            DatabaseUnavailableError: PostgreSQL is not there. Work goes on while the leases are
                good, and is paused by itself when they are not.
        """
        held = await self._keeper.step(await self._names())
        gone = [name for name in self._work if name not in held]
        await asyncio.gather(*(self._end(name) for name in gone))
        for name in held.keys() - self._work.keys():
            self._work[name] = work = self._make_work(name)
            _log.info("broker taken over", broker=name)
            work.start()

    async def stop(self) -> None:
        """End all work; the leases are the keeper's to give back."""
        await asyncio.gather(*(self._end(name) for name in list(self._work)))

    async def _names(self) -> set[str]:
        """Return the brokers that there are to be shared."""
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
