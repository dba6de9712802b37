"""A replica of a broker group as a process, without an arbiter: the set of members is fixed.

``python -m bench.group_process master PORT DIRECTORY COPIES`` is a broker that leads epoch 1.
``python -m bench.group_process follower URL DIRECTORY`` copies its log.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Final

import uvloop

from eruca.aio.http.clients import http1_transport
from eruca.aio.http.credentials import ANONYMOUS
from eruca.contract.records import Host
from eruca_broker.app import create_app
from eruca_broker.core.replication.broker_group import Member
from eruca_broker.core.replication.master_lease import Promise
from eruca_broker.core.state.epoch_events import EpochBegan
from eruca_broker.processors.replication.feed import Feed
from eruca_broker.processors.replication.follower import Follower
from eruca_broker.processors.replication.replication import Replication
from eruca_broker.settings import BrokerSettings
from eruca_broker.store.message_store import MessageStore
from eruca_broker.store.settings import StoreSettings
from eruca_chassis.clock import SystemClock
from eruca_chassis.running.process import keep_freed_memory
from eruca_chassis.running.serving import embedded

SEGMENT_SIZE: Final = 2_000_000_000
_MASTER: Final = Member(1, "bench-master")
_REPLICA: Final = Member(2, "bench-replica")
_CLOCK: Final = SystemClock()


async def _lead(port: int, directory: Path, copies: int) -> None:
    settings = BrokerSettings(
        port=port,
        store_dir=directory,
        namesrv_urls="",
        segment_bytes=SEGMENT_SIZE,
        warm_segments=True,
    )
    app = create_app(settings)
    async with embedded(app, settings):
        store = app.parts[MessageStore]
        store.role.follow()
        store.role.lead(EpochBegan(1, *_MASTER, f"127.0.0.1:{port}", _CLOCK.now_ms()))
        members = frozenset((_MASTER, _REPLICA)[:copies])
        shown_offset = store.confirmed_offset
        feed = Feed(
            store,
            epoch=1,
            master=_MASTER,
            known=members,
            clock=_CLOCK,
            shown_offset=shown_offset,
        )
        replication = app.parts[Replication]
        replication.role, replication.member, replication.feed = "master", _MASTER, feed
        await asyncio.Event().wait()


async def _follow(url: str, directory: Path) -> None:
    settings = StoreSettings(
        store_host=Host.parse("127.0.0.1", 10_911), segment_bytes=SEGMENT_SIZE, is_replica=True
    )
    store = await MessageStore.open(directory, settings, _CLOCK)
    transport = http1_transport(ANONYMOUS)
    follower = Follower(
        store,
        member=_REPLICA,
        epoch=1,
        url=url,
        transport=transport,
        promise=Promise(_CLOCK.boottime()),
        clock=_CLOCK,
    )
    await follower.run()


def main() -> None:
    """Run one of the two, until a signal."""
    role, place, directory, *copies = sys.argv[1:]
    keep_freed_memory()
    if role == "master":
        uvloop.run(_lead(int(place), Path(directory), int(copies[0])))
    else:
        uvloop.run(_follow(place, Path(directory)))


if __name__ == "__main__":
    main()
