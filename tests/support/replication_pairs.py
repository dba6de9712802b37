"""A master and its replicas over HTTP on the loopback, without an arbiter: the test is the arbiter.

The master is the whole broker. A replica is its store and its follower.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx

from eruca.services.http import ANONYMOUS, HttpTransport, http1_transport
from eruca_broker.app import create_app
from eruca_broker.core.replication.broker_group import Member
from eruca_broker.core.replication.following import FollowState
from eruca_broker.core.replication.master_lease import Promise
from eruca_broker.core.state.epoch_events import EpochBegan
from eruca_broker.processors.replication.feed import Feed
from eruca_broker.processors.replication.follower import Follower
from eruca_broker.processors.replication.replication import Replication
from eruca_broker.settings import BrokerSettings
from eruca_broker.store.message_store import MessageStore
from eruca_broker.store.settings import FlushMode, StoreSettings
from eruca_broker.store.tiering.copying import TierCopies
from eruca_chassis.app import ServiceApp
from eruca_chassis.clock import Clock, SystemClock
from support.services import serving
from support.stores import STORE_HOST, abandon, all_answers
from support.waiting import until

MASTER = Member(1, "first")
SECOND = Member(2, "second")
THIRD = Member(3, "third")
BOTH = frozenset({MASTER, SECOND})
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
    in_sync: frozenset[Member] | None = None,
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
        store.role.follow()
        shown_offset = store.confirmed_offset
        begun = store.role.lead(
            EpochBegan(epoch, member.replica_id, member.uid, host_text, clock.now_ms(), unclean)
        )
        known = in_sync or frozenset({member})
        feed = Feed(
            store,
            epoch=epoch,
            master=member,
            known=known,
            clock=clock,
            shown_offset=shown_offset,
        )
        replication = app.parts[Replication]
        replication.role, replication.member, replication.feed = "master", member, feed
        if known == {member}:
            await begun
        try:
            yield Master(app, f"http://{host}:{bound}", feed)
        finally:
            feed.close()
            if not store.role.is_replica:
                store.role.follow()  # callers that await a confirmation learn that there is none


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
        self.is_open = False

    async def open(self) -> None:
        """Open the store."""
        self.store = await MessageStore.open(self.directory, self.settings, self.clock)
        self.is_open = True

    def follow(
        self,
        url: str,
        *,
        epoch: int = 1,
        shown_offset: int = 0,
        tier: TierCopies | None = None,
    ) -> None:
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
            tier=tier,
        )
        self._task = asyncio.create_task(self._run())

    @property
    def is_following(self) -> bool:
        """True while the follower runs."""
        return self._task is not None and not self._task.done()

    async def stop_following(self) -> None:
        """End the follower, as at a change of the role."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
            self._task = None

    async def cut(self) -> None:
        """Open the store again behind the last cut, as its role does."""
        await self.stop_following()
        await self.store.close()
        settings, self.settings = self.settings, replace(self.settings, cut_to=self.cuts[-1])
        await self.open()
        self.settings = settings

    async def kill(self) -> None:
        """End as a killed process does."""
        await self.stop_following()
        await abandon(self.store)
        self.is_open = False

    async def close(self) -> None:
        """End in order."""
        await self.stop_following()
        await self.transport.close()
        if self.is_open:
            await self.store.close()
            self.is_open = False

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


async def send(client: httpx.AsyncClient, count: int = 1, text: str = "x" * 900) -> httpx.Response:
    """Send messages to the topic ``orders``, and return the answer once they are confirmed."""
    messages = [{"body": {"text": text}, "keys": ["all"], "tag": "red"} for _ in range(count)]
    answer = await client.post("/topics/orders/messages", json={"messages": messages})
    assert answer.status_code == 201, answer.text
    return answer


def client_of(master: Master) -> httpx.AsyncClient:
    """Return a client of the master; paths are below ``/v1``."""
    return httpx.AsyncClient(base_url=f"{master.url}/v1", timeout=20)


def log_of(store: MessageStore) -> bytes:
    """Return the bytes of a store's log."""
    return b"".join(store.log.pieces(store.log_min_offset, store.log_max_offset))


async def equal(master: Master, replica: Replica) -> None:
    """Wait until the replica has published everything; then compare all that both answer."""
    await until(lambda: replica.store.confirmed_offset == master.store.log_max_offset)
    assert log_of(replica.store) == log_of(master.store)
    assert all_answers(replica.store) == all_answers(master.store)
    assert replica.store.state.epochs == master.store.state.epochs


async def following(replica: Replica) -> None:
    """Wait until the replica has proved its lineage."""
    await until(lambda: replica.follower.state is FollowState.FOLLOWING)
