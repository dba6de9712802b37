"""A master and its replicas over HTTP on the loopback, without an arbiter: the test is the arbiter.

The master is the whole broker. A replica is its store and its follower, which restarts behind a
truncation as the broker's role does.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from eruca.services.http import ANONYMOUS, HttpTransport, http1_transport
from eruca_broker.app import create_app
from eruca_broker.core.replication.broker_group import Member
from eruca_broker.core.replication.master_lease import Promise
from eruca_broker.core.state.epoch_events import EpochBegan
from eruca_broker.processors.replication.feed import Feed
from eruca_broker.processors.replication.follower import Follower
from eruca_broker.processors.replication.replication import Replication
from eruca_broker.settings import BrokerSettings
from eruca_broker.store.message_store import MessageStore
from eruca_broker.store.settings import FlushMode, StoreSettings
from eruca_chassis.app import ServiceApp
from eruca_chassis.clock import Clock, SystemClock
from support.services import serving
from support.stores import STORE_HOST

MASTER = Member(1, "first")
SECOND = Member(2, "second")
THIRD = Member(3, "third")
SEGMENT_SIZE = 64 * 1024


class Master:
    """A broker that leads a term."""

    def __init__(self, app: ServiceApp, url: str, feed: Feed) -> None:
        self.app = app
        self.url = url
        self.feed = feed
        self.store = app.parts[MessageStore]


@asynccontextmanager
async def leading(
    directory: Path,
    *,
    epoch: int = 1,
    member: Member = MASTER,
    in_sync: frozenset[Member] = frozenset({MASTER}),
    unclean: bool = False,
    port: int = 0,
    clock: Clock | None = None,
    **settings: Any,  # noqa: ANN401  (BrokerSettings' fields, of their types)
) -> AsyncIterator[Master]:
    """Serve the broker over the store in *directory*, as the master of *epoch*."""
    clock = clock or SystemClock()
    chosen = {"namesrv_urls": "", "segment_bytes": SEGMENT_SIZE, "store_dir": directory, "port": 0}
    broker = BrokerSettings(**{**chosen, **settings})
    app = create_app(broker, clock)
    async with serving(app, broker, port=port) as (_, (host, bound)):
        store = app.parts[MessageStore]
        host_text = f"{host}:{bound}"
        store.follow()
        store.lead(
            EpochBegan(epoch, member.replica_id, member.uid, host_text, clock.now_ms(), unclean)
        )
        feed = Feed(store, epoch=epoch, master=member, known=in_sync, clock=clock)
        replication = app.parts[Replication]
        replication.role, replication.member, replication.feed = "master", member, feed
        try:
            yield Master(app, f"http://{host}:{bound}", feed)
        finally:
            feed.close()


class Replica:
    """A replica's store, and the follower over it."""

    def __init__(self, directory: Path, member: Member, settings: StoreSettings) -> None:
        self.directory = directory
        self.member = member
        self.settings = settings
        self.clock: Clock = SystemClock()
        self.promise = Promise(self.clock.boottime())
        self.transport: HttpTransport = http1_transport(ANONYMOUS)
        self.cuts: list[int] = []
        self.store: MessageStore
        self.follower: Follower
        self._task: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Open the store."""
        self.store = await MessageStore.open(self.directory, self.settings, self.clock)

    def follow(self, url: str, *, epoch: int = 1, shown_offset: int = 0) -> None:
        """Follow the master at *url*."""
        self.follower = Follower(
            self.store,
            member=self.member,
            epoch=epoch,
            url=url,
            transport=self.transport,
            promise=self.promise,
            clock=self.clock,
            shown_offset=shown_offset,
        )
        self._task = asyncio.create_task(self._run())

    async def stop_following(self) -> None:
        """End the follower, as at a change of the role."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
            self._task = None

    async def close(self) -> None:
        """End in order."""
        await self.stop_following()
        await self.transport.close()
        await self.store.close()

    async def _run(self) -> None:
        self.cuts.append(await self.follower.run())


def replica_settings(flush_mode: FlushMode = FlushMode.ASYNC) -> StoreSettings:
    """Return the settings of a small replica."""
    return StoreSettings(
        store_host=STORE_HOST,
        flush_mode=flush_mode,
        segment_bytes=SEGMENT_SIZE,
        queue_file_entries=64,
        index_slots=64,
        index_entries=256,
        is_replica=True,
    )


@asynccontextmanager
async def standing_by(
    directory: Path, member: Member = SECOND, flush_mode: FlushMode = FlushMode.ASYNC
) -> AsyncIterator[Replica]:
    """Open a replica."""
    async with AsyncExitStack() as stack:
        replica = Replica(directory, member, replica_settings(flush_mode))
        await replica.open()
        stack.push_async_callback(replica.close)
        yield replica
