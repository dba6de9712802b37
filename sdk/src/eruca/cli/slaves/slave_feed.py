"""Serve a broker's log to RocketMQ slaves: a master of RocketMQ's as far as its slaves can see.

Each slave has a reader of the log of its own (:class:`~eruca.aio.log_follower.AsyncLogFollower`),
which shows only what is visible. So a slave never has a record that a fail-over could take back,
and the slave follows the broker's master, wherever it is. One block of the log is in memory for
each slave.

A slave is refused, and not told why, for RocketMQ's protocol has no way to: the reason is logged
here. It connects again every five seconds.

==================================  ================================================================
A slave                             is refused because
==================================  ================================================================
ahead of the log's visible end      its log is another one's; RocketMQ's master would take it for
                                    one that has everything
where no record starts              the same; or retention has deleted the record, or the slave was
                                    cut off in the middle of a very large record
that reports what it was not sent   its log has another writer
whose records were replaced         an operator has elected a master that lacked them
that stays silent                   it may be dead; it reports every five seconds
==================================  ================================================================
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from eruca.cli.slaves.introduction import introduce
from eruca.cli.slaves.protocol import (
    REPORT_SIZE,
    Frame,
    SlaveError,
    SlaveProgress,
    frames,
    heartbeat,
    report_of,
)
from eruca.contract.errors import (
    BrokerNotFoundError,
    ErucaError,
    RecordNotFoundError,
    StaleEpochError,
)

if TYPE_CHECKING:
    from eruca.aio.client import AsyncClient
    from eruca.aio.log_follower import AsyncLogFollower
    from eruca.core.messages.log_block import LogBlock

SLAVES_MAX: Final = 8
HEARTBEAT_SECONDS: Final = 5.0  # RocketMQ's haSendHeartbeatInterval
SILENCE_SECONDS_MAX: Final = 20.0  # RocketMQ's haHousekeepingInterval
PAUSE_SECONDS: Final = 1.0  # after a failure to read the log
INTRODUCTION_SECONDS: Final = 5.0  # between two requests to a slave that has not connected
TOLD_SECONDS: Final = 10.0  # at least, between two events of one slave's progress
BLOCK_SIZE: Final = 1024**2  # bytes of the log read at a time; one record may be larger


class SlaveEvent(NamedTuple):
    """An event to tell the operator."""

    kind: Literal[
        "begins", "holds everything", "refused", "left", "waits", "goes on", "told", "not told"
    ]
    slave: str  # its address
    log_offset: int | None = None  # the end of its log
    reason: str | None = None

    def document(self) -> dict[str, object]:
        """Return it for programs."""
        return {
            "event": self.kind,
            "slave": self.slave,
            "log_offset": self.log_offset,
            "reason": self.reason,
        }

    def __str__(self) -> str:
        place = "" if self.log_offset is None else f" at log offset {self.log_offset}"
        reason = "" if self.reason is None else f": {self.reason}"
        return f"slave {self.slave} {self.kind}{place}{reason}"


class SlaveFeed:
    """Feeds slaves.

    Args:
        client: Of the cluster.
        broker_name: The broker whose log is fed.
        tell: Called with each event; a repeated refusal is reported once.
    """

    def __init__(
        self, client: AsyncClient, broker_name: str, tell: Callable[[SlaveEvent], None]
    ) -> None:
        self._client = client
        self.broker_name = broker_name
        self._tell = tell
        self._slaves: set[asyncio.Task[None]] = set()
        self._last_refusal: str | None = None

    async def serve(
        self,
        host: str,
        port: int,
        *,
        listening: Callable[[str, int], None],
        slaves: Sequence[tuple[str, int]] = (),
    ) -> None:
        """Serve slaves at *host* and *port* until cancelled; call *listening* with the address.

        Tell the RocketMQ brokers *slaves* that this is their master, while fewer are connected.

        Raises:
            OSError: The address cannot be used.
        """
        server = await asyncio.start_server(self._attend, host, port)
        try:
            address, bound, *_ = server.sockets[0].getsockname()
            listening(address, bound)
            async with asyncio.TaskGroup() as tasks:
                for slave in slaves:
                    tasks.create_task(self._introduce(slave, bound, len(slaves)))
                await server.serve_forever()
        finally:
            server.close()
            for connection in self._slaves:
                connection.cancel()
            await asyncio.gather(*self._slaves, return_exceptions=True)

    async def _attend(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection."""
        task = asyncio.current_task()
        assert task is not None
        self._slaves.add(task)
        host, port, *_ = writer.get_extra_info("peername")
        name = f"{host}:{port}"
        try:
            if len(self._slaves) > SLAVES_MAX:
                raise SlaveError(f"{SLAVES_MAX} slaves are connected already")
            await _Slave(self, name, reader, writer).run()
        except SlaveError as error:
            self._refuse(name, str(error))
        except asyncio.CancelledError:  # the feed ends; a stream's task must not end as cancelled
            pass
        finally:
            self._slaves.discard(task)
            writer.close()

    async def _introduce(self, slave: tuple[str, int], port: int, count: int) -> None:
        """Tell a slave where its master is, again and again while not all *count* are connected."""
        last: SlaveEvent | None = None
        name = f"{slave[0]}:{slave[1]}"
        while True:
            if len(self._slaves) < count:
                try:
                    await introduce(slave, port)
                    event = SlaveEvent("told", name, reason="where its master is")
                except SlaveError as error:
                    event = SlaveEvent("not told", name, reason=f"{error}")
                if event != last:
                    self._tell(event)
                last = event
            else:
                last = None
            await asyncio.sleep(INTRODUCTION_SECONDS)

    async def follower(self, log_offset: int) -> AsyncLogFollower:
        """Return a reader of the log for a slave that reports *log_offset*.

        An empty slave gets what is on the broker's disk, and not what only its tier has.

        Raises:
            SlaveError: The broker does not answer.
        """
        if not log_offset:
            try:
                status = await self._client.admin.broker_status(self.broker_name)
            except ErucaError as error:
                raise SlaveError(f"broker {self.broker_name} does not answer: {error}") from error
            log_offset = status.log.min_offset
        return self._client.log_follower(self.broker_name, from_offset=log_offset)

    def tell(self, event: SlaveEvent) -> None:
        """Tell an event of a slave that is served."""
        self._last_refusal = None
        self._tell(event)

    def _refuse(self, name: str, reason: str) -> None:
        if reason != self._last_refusal:
            self._last_refusal = reason
            self._tell(SlaveEvent("refused", name, reason=reason))


class _Slave:
    """One slave's connection."""

    def __init__(
        self,
        feed: SlaveFeed,
        name: str,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self._feed = feed
        self._name = name
        self._reader = reader
        self._writer = writer
        self._progress = SlaveProgress(0)
        self._told_at = 0.0  # by the loop's clock
        self._told_offset: int | None = None

    async def run(self) -> None:
        """Feed the slave until it leaves.

        Raises:
            SlaveError: It is refused.
        """
        requested = await self._report()
        if requested is None:
            return
        self._progress = SlaveProgress(requested)
        async with await self._feed.follower(requested) as follower:
            tasks = [
                asyncio.create_task(self._send(follower)),
                asyncio.create_task(self._listen(follower)),
            ]
            try:
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in tasks:
                    task.cancel()
                outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, Exception) and not isinstance(outcome, ConnectionError):
                raise outcome
        self._feed.tell(SlaveEvent("left", self._name, self._progress.held))

    async def _send(self, follower: AsyncLogFollower) -> None:
        """Send the log, as it becomes visible; heartbeats while there is nothing to send."""
        is_begun = False
        while True:
            block = await self._next_block(follower)
            if not is_begun:
                is_begun = True
                self._progress.begin(block.from_offset)
                self._feed.tell(SlaveEvent("begins", self._name, block.from_offset))
            if block.damaged:
                raise SlaveError(
                    f"the broker's record at log offset {min(block.damaged)} is damaged; repair it "
                    "or restore its file from a backup"
                )
            for frame in frames(block.data, block.from_offset, block.next_offset):
                await self._put(frame)
            if block.next_offset == block.from_offset:
                await self._put(heartbeat(self._progress.sent))

    async def _next_block(self, follower: AsyncLogFollower) -> LogBlock:
        """Return the next block, which is empty if nothing is new; wait for a broker that is away.

        Raises:
            SlaveError: The broker's log does not continue the slave's.
        """
        is_away = False
        while True:
            try:
                block = await follower.read_block(HEARTBEAT_SECONDS, bytes_max=BLOCK_SIZE)
            except (RecordNotFoundError, StaleEpochError) as error:
                raise SlaveError(
                    f"its log, which ends at log offset {self._progress.held}, is not one that "
                    f"broker {self._feed.broker_name} continues: {error}. Stop the slave, empty "
                    "its store directory and start it again; if it was cut off in the middle of a "
                    "record, a restart alone is enough"
                ) from error
            except ErucaError as error:
                if not error.retryable and not isinstance(error, BrokerNotFoundError):
                    raise SlaveError(str(error)) from error
                if not is_away:
                    self._feed.tell(SlaveEvent("waits", self._name, reason=str(error)))
                is_away = True
                await self._put(heartbeat(self._progress.sent))
                await asyncio.sleep(PAUSE_SECONDS)
            else:
                if is_away:
                    self._feed.tell(SlaveEvent("goes on", self._name))
                return block

    async def _put(self, frame: Frame) -> None:
        """Send a frame; wait until the slave has taken most of what was sent before."""
        self._progress.sending(frame)
        self._writer.write(frame.header)
        if frame.data:
            self._writer.write(frame.data)
        await self._writer.drain()

    async def _listen(self, follower: AsyncLogFollower) -> None:
        """Note the slave's reports, until it leaves."""
        while (report := await self._report()) is not None:
            self._progress.reported(report)
            now = asyncio.get_running_loop().time()
            has_all = report == follower.end_offset and report != self._told_offset
            if has_all and now >= self._told_at + TOLD_SECONDS:
                self._told_at, self._told_offset = now, report
                self._feed.tell(SlaveEvent("holds everything", self._name, report))

    async def _report(self) -> int | None:
        """Return the next report; None if the slave has left."""
        try:
            async with asyncio.timeout(SILENCE_SECONDS_MAX):
                return report_of(await self._reader.readexactly(REPORT_SIZE))
        except TimeoutError:
            raise SlaveError(f"it has reported nothing for {SILENCE_SECONDS_MAX:.0f} s") from None
        except (asyncio.IncompleteReadError, ConnectionError):
            return None
