"""Following one broker's log into rows: what was read and how far come in one transaction.

A step reads what the log has next, folds it, and notes the position, all or nothing: whatever
happens between, the next step begins where the rows end. Every transaction proves the lease of the
broker, so an instance that lost it without noticing writes nothing; and it finds the position where
it left it, so one that was set back by somebody else is noticed; where nothing comes, it is looked
at every second. While a stretch of the log is being folded the next one is already read, and what
needs no database is done for it.

A log that does not have the position any more (retention has deleted it while nobody followed, or
the broker has lost its disk) is read anew from its beginning, after the projection has forgotten
what it held of it. So is one that has the position and holds other records before it: a broker
which lost the end of its log in a power cut has written on from there. That can only have happened
while the log was not being read, so whenever reading begins, or goes on after a failure, the last
block that was read is compared with what the log holds there. Nothing is forgotten because of what
another broker says, which has got the address of this one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, Protocol, TypeVar

import structlog
from sqlalchemy.ext.asyncio import AsyncConnection

from eruca.contract.errors import (
    DatabaseUnavailableError,
    ErucaError,
    RecordNotFoundError,
    TransportError,
)
from eruca.contract.limits import LOG_READ_SIZE_DEFAULT
from eruca.contract.records import DamagedRecordError
from eruca_postgres.database import Database
from eruca_postgres.leases import Lease, LeaseLostError
from eruca_postgres.positions import (
    LastBlock,
    delete_position,
    locked_position,
    read_positions,
    write_position,
)

if TYPE_CHECKING:
    from eruca import AsyncClient
    from eruca.aio.log_follower import AsyncLogFollower
    from eruca.core.messages.log_block import LogBlock

HOLD_SECONDS: Final = 10.0  # a read waits for news
LOOK_SECONDS: Final = 1.0  # … and the position is looked at meanwhile
PAUSE_SECONDS: Final = 0.2  # after a failure; doubles
PAUSE_SECONDS_MAX: Final = 3.0

_P = TypeVar("_P")  # what a projection prepares of a block
_log = structlog.get_logger()


class Projection(Protocol[_P]):
    """What a service makes of brokers' logs, many records in one step."""

    def prepare(self, block: LogBlock) -> _P:
        """Return what can be known of *block* without the database; called in a thread.

        Raises:
            DamagedRecordError: It is no stretch of a log.
        """
        ...

    async def fold_block(
        self, connection: AsyncConnection, block: LogBlock, prepared: _P
    ) -> Callable[[], None] | None:
        """Make rows of what *block* holds; return what is to be called once they are committed."""
        ...

    async def forget(self, connection: AsyncConnection, broker_name: str) -> bool:
        """Prepare for the log to be told again from its beginning; tell whether there is more.

        If so it is called again, in another transaction: what takes longer than one may last is
        done in pieces.
        """
        ...


class PositionMovedError(Exception):
    """The position is not where this projector left it: what it has read does not follow on."""


class _Prepared(NamedTuple, Generic[_P]):
    """A block, and what is known of it without the database."""

    block: LogBlock
    known: _P | DamagedRecordError


class LogProjector:
    """Follows one broker's log; ``step`` is called by a loop without a pause.

    Args:
        database: Where rows and positions are.
        client: Finds the broker and reads its log.
        broker_name: Whose log.
        lease: Returns the broker's lease, or None while it is another instance's.
        projection: Makes the rows.
        read_size: About how many bytes of the log are read, and folded in one transaction.
    """

    def __init__(
        self,
        database: Database,
        client: AsyncClient,
        broker_name: str,
        *,
        lease: Callable[[], Lease | None],
        projection: Projection[Any],
        read_size: int = LOG_READ_SIZE_DEFAULT,
    ) -> None:
        self.broker_name = broker_name
        self.fault: str | None = None  # why the log cannot be followed just now
        self._database = database
        self._client = client
        self._lease = lease
        self._projection = projection
        self._read_size = read_size
        self._follower: AsyncLogFollower | None = None
        self._reading: asyncio.Task[_Prepared[Any]] | None = None  # of what comes next
        self._position: int | None = None  # as the database has it; None: nothing was read yet
        self._last_block: LastBlock | None = None  # before that
        self._is_same_log = False  # since then, as far as is known
        self._fence: int | None = None  # of the lease under which the follower was opened
        self._pause = PAUSE_SECONDS
        self._stopping = asyncio.Event()

    @property
    def log_offset(self) -> int | None:
        """Where the next record to be folded lies; None while it is not known."""
        return None if self._follower is None else self._position

    @property
    def end_offset(self) -> int | None:
        """Where the log ended when it was last read; None before that."""
        return None if self._follower is None else self._follower.end_offset

    def begin_stop(self) -> None:
        """Let the step under way end as soon as it may, and further ones do nothing."""
        self._stopping.set()
        if self._reading is not None:
            self._reading.cancel()

    async def step(self) -> None:
        """Read and fold once; waits for news where there is none."""
        if self._stopping.is_set():
            return
        try:
            await self._step()
        except ErucaError as error:
            self._is_same_log = False  # a broker that comes back may have lost the end of its log
            await self._away(error)
        except LeaseLostError as error:
            await self._drop_follower()
            await self._away(error)
        except PositionMovedError as error:
            _log.info("log is read from another place", broker=self.broker_name, why=str(error))
        else:
            self._say_followed()
        if self._stopping.is_set():
            await self._drop_follower()

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
            await self._compare_last_block()
            prepared = await self._read(self._follower)
        except RecordNotFoundError as error:
            await self._require_broker()
            _log.warning("log is read anew", broker=self.broker_name, why=str(error))
            while not self._stopping.is_set() and await self._forget(lease):
                pass
            await self._drop_follower()
            return
        except PositionMovedError:
            await self._drop_follower()
            raise
        if prepared is None or not _is_news(prepared.block):
            return
        try:
            then = await self._write(lease, prepared)
        except BaseException:
            await self._drop_follower()  # it is ahead of the rows now
            raise
        self._position = prepared.block.next_offset
        self._last_block = LastBlock.of(prepared.block) or self._last_block
        if then is not None:
            then()

    async def _open(self) -> AsyncLogFollower:
        async with self._database.transaction() as connection:
            found = (await read_positions(connection)).get(self.broker_name)
        self._position = None if found is None else found.log_offset
        self._last_block = None if found is None else found.last_block
        self._is_same_log = False
        return self._client.log_follower(
            self.broker_name,
            from_offset="earliest" if self._position is None else self._position,
        )

    async def _compare_last_block(self) -> None:
        """Raise RecordNotFoundError where the log holds something else in place of it."""
        last = self._last_block
        if last is not None and not self._is_same_log:
            now = await self._read_again(last)
            if now is not None and LastBlock.of(now) != last:
                raise RecordNotFoundError(
                    f"the log from {last.log_offset} on is not what was read there"
                )
        self._is_same_log = True

    async def _read_again(self, last: LastBlock) -> LogBlock | None:
        """Return what the log holds in place of *last*; None where retention has deleted it."""
        async with self._client.log_follower(
            self.broker_name, from_offset=last.log_offset
        ) as follower:
            try:
                return await follower.read_block(max_bytes=last.size)
            except RecordNotFoundError:
                status = await self._client.admin.broker_status(self.broker_name)
                if last.log_offset < status.log.min_offset:
                    return None
                raise

    async def _require_broker(self) -> None:
        """Make sure that it is this broker that has said so: another may have got its address."""
        name = (await self._client.admin.broker_status(self.broker_name)).broker_name
        if name != self.broker_name:
            raise TransportError(f"at the address of {self.broker_name} is {name} now")

    async def _read(self, follower: AsyncLogFollower) -> _Prepared[Any] | None:
        """Return what the log has next, and begin to read on; None where it is time to stop."""
        reading = self._reading or self._begin_reading(follower)
        self._reading = reading
        stopping = asyncio.create_task(self._stopping.wait())
        try:
            while not (reading.done() or stopping.done()):
                await asyncio.wait(
                    [reading, stopping],
                    timeout=LOOK_SECONDS,
                    return_when=asyncio.FIRST_COMPLETED,
                )
                if not (reading.done() or stopping.done()):
                    await self._check_position()
                    if self._last_block is not None:
                        self._say_followed()  # the broker has told that block since the fault
        finally:
            stopping.cancel()
        if self._stopping.is_set():
            return None
        self._reading = None
        prepared = reading.result()
        if _is_news(prepared.block):
            self._reading = self._begin_reading(follower)
        return prepared

    async def _check_position(self) -> None:
        async with self._database.transaction() as connection:
            found = (await read_positions(connection)).get(self.broker_name)
        self._require(None if found is None else found.log_offset)

    def _require(self, found: int | None) -> None:
        if found != self._position:
            raise PositionMovedError(f"the rows end at {found}, and not at {self._position}")

    def _begin_reading(self, follower: AsyncLogFollower) -> asyncio.Task[_Prepared[Any]]:
        name = f"reading the log of {self.broker_name}"
        return asyncio.create_task(self._read_next(follower), name=name)

    async def _read_next(self, follower: AsyncLogFollower) -> _Prepared[Any]:
        block = await follower.read_block(HOLD_SECONDS, max_bytes=self._read_size)
        if not _is_news(block):
            return _Prepared(block, None)
        try:
            return _Prepared(block, await asyncio.to_thread(self._projection.prepare, block))
        except DamagedRecordError as error:
            return _Prepared(block, error)

    async def _write(self, lease: Lease, prepared: _Prepared[Any]) -> Callable[[], None] | None:
        block, known = prepared
        if isinstance(known, DamagedRecordError):
            raise TransportError(f"{block} is no stretch of a log: {known}") from known
        async with self._database.transaction() as connection:
            await lease.prove(connection)
            self._require(await locked_position(connection, self.broker_name))
            then = await self._projection.fold_block(connection, block, known)
            await write_position(
                connection,
                self.broker_name,
                block.next_offset,
                end_offset=block.end_offset,
                last_block=LastBlock.of(block),
            )
        return then

    async def _forget(self, lease: Lease) -> bool:
        """Forget some of the log, and the position with the last of it; tell whether more is left.

        Until then the position stays, which the log does not have: whoever comes next goes on here.
        """
        async with self._database.transaction() as connection:
            await lease.prove(connection)
            is_more = await self._projection.forget(connection, self.broker_name)
            if not is_more:
                await delete_position(connection, self.broker_name)
        return is_more

    async def _drop_follower(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)
            self._reading = None
        if self._follower is not None:
            await self._follower.close()
            self._follower = None

    def _say_followed(self) -> None:
        """Take back that the log cannot be followed, if that was said."""
        if self.fault is not None:
            _log.info("log followed again", broker=self.broker_name)
        self.fault = None
        self._pause = PAUSE_SECONDS

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


def _is_news(block: LogBlock) -> bool:
    return block.next_offset > block.from_offset
