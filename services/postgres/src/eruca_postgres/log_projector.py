"""Following one broker's log into rows: what was read and how far come in one transaction.

A step reads what the log has next, folds it, and notes the position, all or nothing: whatever
happens between, the next step begins where the rows end. Every transaction proves the lease of the
broker, so an instance that lost it without noticing writes nothing.

A log that does not have the position any more (retention has deleted it while nobody followed, or
the broker has lost its disk) is read anew from its beginning, after the projection has forgotten
what it held of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, Protocol

import structlog
from sqlalchemy.ext.asyncio import AsyncConnection

from eruca.contract.errors import (
    BrokerNotFoundError,
    DatabaseUnavailableError,
    ErucaError,
    NameServersUnreachableError,
    OverloadedError,
    RecordNotFoundError,
    TimeoutExpiredError,
    TransportError,
    UnavailableError,
)
from eruca_postgres.database import Database
from eruca_postgres.leases import Lease, LeaseLostError
from eruca_postgres.positions import delete_position, read_positions, write_position

if TYPE_CHECKING:
    from eruca import AsyncClient
    from eruca.aio.log_follower import AsyncLogFollower
    from eruca.core.log_block import LogRecord

HOLD_SECONDS: Final = 10.0  # a read waits for news
PAUSE_SECONDS: Final = 0.2  # after a failure; doubles
PAUSE_SECONDS_MAX: Final = 3.0
_AWAY: Final = (
    BrokerNotFoundError,
    NameServersUnreachableError,
    OverloadedError,
    TimeoutExpiredError,
    TransportError,
    UnavailableError,
)

_log = structlog.get_logger()


class Projection(Protocol):
    """What a service makes of brokers' logs."""

    async def fold(
        self, connection: AsyncConnection, broker_name: str, records: Sequence[LogRecord]
    ) -> Callable[[], None] | None:
        """Make rows of *records*; return what is to be called once they are committed."""
        ...

    async def forget(self, connection: AsyncConnection, broker_name: str) -> None:
        """Drop what the log is about to tell again from its beginning."""
        ...


class LogProjector:
    """Follows one broker's log; ``step`` is called by a loop without a pause.

    Args:
        database: Where rows and positions are.
        client: Finds the broker and reads its log.
        broker_name: Whose log.
        lease: Returns the broker's lease, or None while it is another instance's.
        projection: Makes the rows.
    """

    def __init__(
        self,
        database: Database,
        client: AsyncClient,
        broker_name: str,
        *,
        lease: Callable[[], Lease | None],
        projection: Projection,
    ) -> None:
        self.broker_name = broker_name
        self.fault: str | None = None  # why the log cannot be followed just now
        self._database = database
        self._client = client
        self._lease = lease
        self._projection = projection
        self._follower: AsyncLogFollower | None = None
        self._fence: int | None = None  # of the lease under which the follower was opened
        self._pause = PAUSE_SECONDS
        self._stopping = asyncio.Event()

    @property
    def log_offset(self) -> int | None:
        """Where the next record to be read lies; None while it is not known."""
        return None if self._follower is None else self._follower.next_offset

    @property
    def end_offset(self) -> int | None:
        """Where the log ended when it was last read; None before that."""
        return None if self._follower is None else self._follower.end_offset

    def begin_stop(self) -> None:
        """Let the step under way end as soon as it may, and further ones do nothing."""
        self._stopping.set()

    async def step(self) -> None:
        """Read and fold once; waits for news where there is none."""
        try:
            await self._step()
        except _AWAY as error:
            await self._away(error)
        except LeaseLostError as error:
            await self._drop_follower()
            await self._away(error)
        else:
            self.fault = None
            self._pause = PAUSE_SECONDS

    async def _step(self) -> None:
        lease = self._lease()
        if lease is None:
            raise LeaseLostError(f"the lease of {self.broker_name} is not ours")
        if lease.fence != self._fence:
            await self._drop_follower()  # somebody else may have gone on meanwhile
            self._fence = lease.fence
        if self._follower is None:
            self._follower = await self._open()
        try:
            records = await self._read(self._follower)
        except RecordNotFoundError as error:
            _log.warning("log is read anew", broker=self.broker_name, why=str(error))
            await self._begin_anew(lease)
            return
        if not records:
            return
        try:
            then = await self._write(lease, records)
        except BaseException:
            await self._drop_follower()  # it is ahead of the rows now
            raise
        if then is not None:
            then()

    async def _open(self) -> AsyncLogFollower:
        async with self._database.transaction() as connection:
            position = (await read_positions(connection)).get(self.broker_name)
        return self._client.log_follower(
            self.broker_name, from_offset="earliest" if position is None else position.log_offset
        )

    async def _read(self, follower: AsyncLogFollower) -> list[LogRecord]:
        """Return the next records; none where the projector is to stop."""
        reading = asyncio.create_task(follower.read(HOLD_SECONDS))
        stopping = asyncio.create_task(self._stopping.wait())
        try:
            await asyncio.wait([reading, stopping], return_when=asyncio.FIRST_COMPLETED)
            return await reading if reading.done() else []
        finally:
            for task in (reading, stopping):
                task.cancel()
            await asyncio.gather(reading, stopping, return_exceptions=True)

    async def _write(self, lease: Lease, records: list[LogRecord]) -> Callable[[], None] | None:
        last = records[-1]
        end_offset = max(self.end_offset or 0, last.next_offset)
        async with self._database.transaction() as connection:
            await lease.prove(connection)
            then = await self._projection.fold(connection, self.broker_name, records)
            await write_position(
                connection, self.broker_name, last.next_offset, end_offset=end_offset
            )
        return then

    async def _begin_anew(self, lease: Lease) -> None:
        async with self._database.transaction() as connection:
            await lease.prove(connection)
            await self._projection.forget(connection, self.broker_name)
            await delete_position(connection, self.broker_name)
        await self._drop_follower()

    async def _drop_follower(self) -> None:
        if self._follower is not None:
            await self._follower.close()
            self._follower = None

    async def _away(self, error: ErucaError | LeaseLostError) -> None:
        if self.fault is None:  # said once, not with every attempt
            _log.warning("log not followed", broker=self.broker_name, why=str(error))
        self.fault = str(error)
        is_database = isinstance(error, DatabaseUnavailableError)
        pause = PAUSE_SECONDS_MAX if is_database else self._pause
        self._pause = min(2 * self._pause, PAUSE_SECONDS_MAX)
        try:
            async with asyncio.timeout(pause):
                await self._stopping.wait()
        except TimeoutError:
            pass  # time to try again
