"""Follow one broker's log into rows; rows and position are written in one transaction.

A step reads the next part of the log, folds it, and stores the position, all or nothing. So after
any interruption the next step begins where the rows end. Every transaction proves the broker's
claim, so an instance that lost it unnoticed writes nothing. It also verifies that the position is
where this projector left it; while nothing arrives, the position is checked every second. While one
part of the log is being folded, the next one is read and prepared as far as possible without the
database.

A transaction costs the same for one record as for hundreds. So after a small part at the log's end
the projector lingers a little before it reads on. A record after a pause is folded at once, and
readers that must not miss the newest records read the log's tail, not the rows.

The log may no longer have the position: retention deleted it while nobody followed, or the broker
lost its disk. Then the projection forgets the broker and the log is read from its beginning.

The log may also have the position but hold other records before it: a broker that lost the end of
its log in a power failure has continued from there. That can happen only while the log was not
being read. So when reading begins, or resumes after a failure, the last block read is compared with
the log; if they differ, the log is read from its beginning, too. Nothing is forgotten because of
what another broker says that has taken over the address.

A broker with replicas is read from a standby, which spares the master half of its reads. The
position has an epoch, so any replica can tell whether its log has the same records before it. After
an unclean election it may not (:class:`eruca.StaleEpochError`): then the log is read from its
beginning.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, NamedTuple, Protocol, TypeVar

import structlog
from sqlalchemy.ext.asyncio import AsyncConnection

from eruca.contract.errors import (
    DatabaseUnavailableError,
    ErucaError,
    RecordNotFoundError,
    StaleEpochError,
    TransportError,
)
from eruca.contract.limits import LOG_READ_SIZE_DEFAULT
from eruca.contract.records import DamagedRecordError
from eruca.core.messages.log_begin import log_begin
from eruca_postgres.claims import Claim, ClaimLostError
from eruca_postgres.database import Database
from eruca_postgres.positions import (
    LastBlock,
    delete_position,
    locked_position,
    read_positions,
    write_position,
)

if TYPE_CHECKING:
    from eruca import AsyncClient
    from eruca.core.messages.log_block import LogBlock
    from eruca.services.cluster import AsyncLogFollower

HOLD_SECONDS: Final = 10.0  # a read waits so long for records
LOOK_SECONDS: Final = 1.0  # between two checks of the position meanwhile
LINGER_SECONDS: Final = 0.05  # for more records, after few at the end of the log
FEW_BYTES: Final = 64 * 1024
PAUSE_SECONDS: Final = 0.2  # after a failure; doubles
PAUSE_SECONDS_MAX: Final = 3.0

_P = TypeVar("_P")  # the prepared form of a block
_log = structlog.get_logger()


class Projection(Protocol[_P]):
    """A service's projection of brokers' logs; folds many records per step."""

    def prepare(self, block: LogBlock) -> _P:
        """Process *block* as far as possible without the database; called in a thread.

        Raises:
            DamagedRecordError: The block is not a stretch of a log.
        """
        ...

    async def fold_block(
        self, connection: AsyncConnection, block: LogBlock, prepared: _P
    ) -> Callable[[], None] | None:
        """Write the rows of *block*; return a function to call once they are committed."""
        ...

    async def forget(self, connection: AsyncConnection, broker_name: str) -> bool:
        """Delete rows, so that the log can be read again; return whether there may be more.

        If so, it is called again, in another transaction: long deletions are split into portions.
        """
        ...


class PositionMovedError(Exception):
    """The position is not where this projector left it, so its next block does not follow on."""


class _Prepared(NamedTuple, Generic[_P]):
    """A block, and its prepared form."""

    block: LogBlock
    known: _P | DamagedRecordError


class LogProjector:
    """Follows one broker's log; a loop calls ``step`` without a pause.

    Args:
        database: Holds rows and positions.
        client: Finds the broker and reads its log.
        broker_name: The broker.
        claim: Returns the broker's claim, or None while another instance holds it.
        projection: Writes the rows.
        read_bytes: Approximate number of bytes that are read and folded in one transaction.
        begins_on_disk: Whether a log that was not read before is read from the first record on the
            broker's disk. That is a snapshot of the state, which is all that some need. Else it is
            read from its beginning, which is in the tier if there is one.
    """

    def __init__(
        self,
        database: Database,
        client: AsyncClient,
        broker_name: str,
        *,
        claim: Callable[[], Claim | None],
        projection: Projection[Any],
        read_bytes: int = LOG_READ_SIZE_DEFAULT,
        begins_on_disk: bool = False,
    ) -> None:
        self.broker_name = broker_name
        self.fault: str | None = None  # the reason why the log cannot be followed now
        self._database = database
        self._client = client
        self._claim = claim
        self._projection = projection
        self._read_bytes = read_bytes
        self._begins_on_disk = begins_on_disk
        self._follower: AsyncLogFollower | None = None
        self._reading: asyncio.Task[_Prepared[Any]] | None = None  # of the next block
        self._position: int | None = None  # as in the database; None: nothing was read yet
        self._epoch: int | None = None  # of the record before the position
        self._last_block: LastBlock | None = None  # before the position
        self._is_same_log = False  # whether the last block was compared since the last failure
        self._fence: int | None = None  # of the claim under which the follower was opened
        self._pause = PAUSE_SECONDS
        self._stopping = asyncio.Event()

    @property
    def log_offset(self) -> int | None:
        """Log offset of the next record to fold; None if unknown."""
        return None if self._follower is None else self._position

    @property
    def end_offset(self) -> int | None:
        """End of the log at the last read; None before the first."""
        return None if self._follower is None else self._follower.end_offset

    def begin_stop(self) -> None:
        """Make the current step end as soon as possible, and later ones do nothing."""
        self._stopping.set()
        if self._reading is not None:
            self._reading.cancel()

    async def step(self) -> None:
        """Read and fold one block; wait for records if there are none."""
        if self._stopping.is_set():
            return
        try:
            await self._step()
        except ErucaError as error:
            self._is_same_log = False  # when it returns it may have lost the end of its log
            await self._away(error)
        except ClaimLostError as error:
            await self._drop_follower()
            await self._away(error)
        except PositionMovedError as error:
            _log.info(
                "position moved, log read from there", broker=self.broker_name, why=str(error)
            )
        else:
            self._say_followed()
        if self._stopping.is_set():
            await self._drop_follower()

    async def _step(self) -> None:
        claim = self._claim()
        if claim is None:
            raise ClaimLostError(f"the claim of {self.broker_name} is not held here")
        if claim.fence != self._fence:
            await self._drop_follower()  # another instance may have advanced the position
            self._fence = claim.fence
        if self._follower is None:
            self._follower = await self._open()
        try:
            await self._compare_last_block()
            prepared = await self._read(self._follower)
        except (RecordNotFoundError, StaleEpochError) as error:
            await self._require_broker()
            _log.warning("log is read from its beginning", broker=self.broker_name, why=str(error))
            while not self._stopping.is_set() and await self._forget(claim):
                pass
            await self._drop_follower()
            return
        except PositionMovedError:
            await self._drop_follower()
            raise
        if prepared is None or not _is_news(prepared.block):
            return
        try:
            then = await self._write(claim, prepared)
        except BaseException:
            await self._drop_follower()  # it is ahead of the rows
            raise
        self._position = prepared.block.next_offset
        self._epoch = prepared.block.epoch or None
        self._last_block = LastBlock.of(prepared.block) or self._last_block
        if then is not None:
            then()

    async def _open(self) -> AsyncLogFollower:
        async with self._database.transaction() as connection:
            found = (await read_positions(connection)).get(self.broker_name)
        self._position = None if found is None else found.log_offset
        self._epoch = None if found is None else found.epoch
        self._last_block = None if found is None else found.last_block
        self._is_same_log = False
        return self._client.log_follower(
            self.broker_name,
            from_offset=await self._beginning() if self._position is None else self._position,
            from_epoch=self._epoch,
            prefers_replica=True,
        )

    async def _beginning(self) -> int | Literal["earliest"]:
        """Return where to begin with a log that was not read before."""
        if not self._begins_on_disk:
            return "earliest"
        return (await self._client.admin.broker_status(self.broker_name)).log.min_offset

    async def _compare_last_block(self) -> None:
        """Raise RecordNotFoundError if the log holds other records at the last block's place."""
        last = self._last_block
        if last is not None and not self._is_same_log:
            now = await self._read_again(last)
            if now is not None and LastBlock.of(now) != last:
                raise RecordNotFoundError(
                    f"the log at {last.log_offset} differs from the block read there before"
                )
        self._is_same_log = True

    async def _read_again(self, last: LastBlock) -> LogBlock | None:
        """Return the log's records at the place of *last*; None if retention has deleted them."""
        async with self._client.log_follower(
            self.broker_name, from_offset=last.log_offset
        ) as follower:
            try:
                return await follower.read_block(bytes_max=last.size)
            except RecordNotFoundError:
                status = await self._client.admin.broker_status(self.broker_name)
                if last.log_offset < log_begin(status):
                    return None
                raise

    async def _require_broker(self) -> None:
        """Raise unless the answer came from this broker: another may have its address now."""
        name = (await self._client.admin.broker_status(self.broker_name)).broker_name
        if name != self.broker_name:
            raise TransportError(f"expected broker {self.broker_name} at its address, found {name}")

    async def _read(self, follower: AsyncLogFollower) -> _Prepared[Any] | None:
        """Return the next block, and begin to read on; None when stopping."""
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
                        self._say_followed()  # the broker has confirmed that block since the fault
        finally:
            stopping.cancel()
        if self._stopping.is_set():
            return None
        self._reading = None
        prepared = reading.result()
        if _is_news(prepared.block):
            linger = LINGER_SECONDS if _is_little(prepared.block) else 0.0
            self._reading = self._begin_reading(follower, linger)
        return prepared

    async def _check_position(self) -> None:
        async with self._database.transaction() as connection:
            found = (await read_positions(connection)).get(self.broker_name)
        self._require(None if found is None else found.log_offset)

    def _require(self, found: int | None) -> None:
        if found != self._position:
            raise PositionMovedError(f"expected the rows to end at {self._position}, found {found}")

    def _begin_reading(
        self, follower: AsyncLogFollower, linger_seconds: float = 0.0
    ) -> asyncio.Task[_Prepared[Any]]:
        name = f"reading the log of {self.broker_name}"
        return asyncio.create_task(self._read_next(follower, linger_seconds), name=name)

    async def _read_next(self, follower: AsyncLogFollower, linger_seconds: float) -> _Prepared[Any]:
        if linger_seconds:
            await _linger(linger_seconds)
        block = await follower.read_block(HOLD_SECONDS, bytes_max=self._read_bytes)
        if not _is_news(block):
            return _Prepared(block, None)
        try:
            return _Prepared(block, await asyncio.to_thread(self._projection.prepare, block))
        except DamagedRecordError as error:
            return _Prepared(block, error)

    async def _write(self, claim: Claim, prepared: _Prepared[Any]) -> Callable[[], None] | None:
        block, known = prepared
        if isinstance(known, DamagedRecordError):
            raise TransportError(f"{block} is not a stretch of a log: {known}") from known
        async with self._database.transaction() as connection:
            await claim.prove(connection)
            self._require(await locked_position(connection, self.broker_name))
            then = await self._projection.fold_block(connection, block, known)
            await write_position(
                connection,
                self.broker_name,
                block.next_offset,
                end_offset=block.end_offset,
                last_block=LastBlock.of(block),
                epoch=block.epoch or None,
            )
        return then

    async def _forget(self, claim: Claim) -> bool:
        """Forget a portion of the log, and with the last one the position; return whether more.

        Until then the position stays, although the log does not have it, so that a successor
        continues here.
        """
        async with self._database.transaction() as connection:
            await claim.prove(connection)
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
        """Clear the fault, if there is one."""
        if self.fault is not None:
            _log.info("log followed again", broker=self.broker_name)
        self.fault = None
        self._pause = PAUSE_SECONDS

    async def _away(self, error: ErucaError | ClaimLostError) -> None:
        if self.fault is None:  # log it once, not with every attempt
            _log.warning("log not followed", broker=self.broker_name, why=str(error))
        self.fault = str(error)
        is_database = isinstance(error, DatabaseUnavailableError)
        pause = PAUSE_SECONDS_MAX if is_database else self._pause
        self._pause = min(2 * self._pause, PAUSE_SECONDS_MAX)
        try:
            async with asyncio.timeout(pause):
                await self._stopping.wait()
        except TimeoutError:
            pass  # try again


_linger = asyncio.sleep


def _is_news(block: LogBlock) -> bool:
    return block.next_offset > block.from_offset


def _is_little(block: LogBlock) -> bool:
    """Return whether *block* has few records, and the log had no more."""
    is_small = block.next_offset - block.from_offset < FEW_BYTES
    return is_small and block.next_offset >= block.end_offset
