"""One cluster, every kind of program, and three masters: two are killed, one is switched.

All programs run at the same time, and over all changes of the master. What each of them saw is
judged afterwards, by a test of its own. A program that fails does not stop the others.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Final

import httpx

import eruca
from eruca_deploy.cluster import LocalCluster
from support.failover.parcels import Leases, Parcels
from support.failover.readers import BROKER, Exports, LogReader
from support.failover.reminders import Reminders
from support.failover.senders import Accounts, Handlers, Senders
from support.failover.transactions import Shop
from support.failover.works import Work, everything
from support.waiting import until_told

ORDERS: Final = "orders"
CLICKS: Final = "clicks"
REPLICAS: Final = 3
SUCCESSES_EACH: Final = 30  # of a program, between two changes
EXPORTS_EACH: Final = 2
CHANGES: Final = 3
SETTINGS: Final = {
    "ERUCA_BROKER_SEGMENT_BYTES": str(4 * 1024**2),
    "ERUCA_NAMESRV_SETTLE_SECONDS": "0",
    "ERUCA_TXN_CHECKER_TIMEOUT_SECONDS": "2",
    "ERUCA_TXN_CHECKER_INTERVAL_SECONDS": "1",
    "ERUCA_TXN_CHECKER_CHECKS_MAX": "100",
}


@dataclass
class Story:
    """The observations of the programs.

    Attributes:
        orders: Messages of the idempotent senders' topic, at the end; the others likewise.
        log: Log offset and size of each record.
        epochs: The last one.
        committed: The offsets of the group of handlers.
        found: Texts that the query service has found by their keys.
        replaced: The processes that were master, one after another, without the last one.
    """

    once: Senders
    often: Senders
    handlers: Handlers
    accounts: Accounts
    shop: Shop
    parcels: Parcels
    leases: Leases
    reminders: Reminders
    standby_reader: LogReader
    master_reader: LogReader
    exports: Exports
    replaced: list[str] = field(default_factory=list)
    orders: list[eruca.ReceivedMessage] = field(default_factory=list)
    clicks: list[eruca.ReceivedMessage] = field(default_factory=list)
    purchases: list[eruca.ReceivedMessage] = field(default_factory=list)
    log: list[tuple[int, int]] = field(default_factory=list)
    epochs: int = 0
    committed: dict[eruca.MessageQueue, eruca.CommittedOffset] = field(default_factory=dict)
    found: set[str] = field(default_factory=set)

    def works(self) -> list[Work]:
        """Return all programs."""
        return [work for work in vars(self).values() if isinstance(work, Work)]


async def tell() -> Story:
    """Let all programs work over three changes of the master, and return what they saw."""
    async with (
        LocalCluster(
            replicas=REPLICAS,
            namesrvs=2,
            controllers=2,
            txn_checkers=1,
            queries=1,
            settings=SETTINGS,
            restarts=False,
        ) as cluster,
        eruca.AsyncClient(cluster.namesrv_urls) as client,
    ):
        for topic in (ORDERS, CLICKS):
            await client.admin.create_topic(topic, queue_count=3)
        story = _story(client, cluster.query_urls[0])
        running = [asyncio.create_task(_run(work)) for work in story.works()]
        await _progress(story)

        async with _change(story, cluster, copies=3) as master:
            await cluster.kill(master)

        # Half of what could help is away, too.
        await asyncio.gather(*(cluster.kill(name) for name in ("namesrv-1", "controller")))
        async with _change(story, cluster, copies=2) as master:
            await cluster.kill(master)

        for name in ("controller", "namesrv-1", *story.replaced):
            await cluster.restart(name)
        async with (
            _change(story, cluster, copies=3) as master,
            httpx.AsyncClient(trust_env=False) as http,
        ):
            switch = f"{cluster.broker_urls[master]}/v1/replication/switch"
            answer = await http.post(switch, json={})
            assert answer.status_code == httpx.codes.OK, answer.text

        for work in story.works():
            work.is_over.set()
        await asyncio.wait(running)
        await _look(story, client)
        groups = await until_told(cluster.groups, lambda groups: BROKER in groups)
        story.epochs = groups[BROKER].epoch
    return story


def _story(client: eruca.AsyncClient, query_url: str) -> Story:
    once = Senders(client, ORDERS, idempotent=True)
    parcels = Parcels(client)
    return Story(
        once=once,
        often=Senders(client, CLICKS, idempotent=False),
        handlers=Handlers(client, once, ORDERS),
        accounts=Accounts(client),
        shop=Shop(client),
        parcels=parcels,
        leases=Leases(client, ORDERS),
        reminders=Reminders(client),
        standby_reader=LogReader(client, prefers_replica=True),
        master_reader=LogReader(client, prefers_replica=False),
        exports=Exports(query_url, once, ORDERS),
    )


async def _run(work: Work) -> None:
    try:
        await work.run()
    except BaseException as error:  # judged by the test of this program
        work.failure = error


@asynccontextmanager
async def _change(story: Story, cluster: LocalCluster, *, copies: int) -> AsyncIterator[str]:
    """Let the block replace the master that it gets; return once every program has gone on.

    Args:
        story: Of the run.
        cluster: The cluster.
        copies: Replicas to be in sync before.
    """
    await until_told(
        cluster.groups, lambda groups: BROKER in groups and len(groups[BROKER].in_sync) == copies
    )
    await _each(story, "before")
    former = (await until_told(cluster.masters, lambda masters: BROKER in masters))[BROKER]
    yield former
    await until_told(cluster.masters, lambda masters: masters.get(BROKER, former) != former)
    story.replaced.append(former)
    await _each(story, "after")
    await _progress(story)


async def _each(story: Story, step: str) -> None:
    """Let each program that works do a step."""

    async def do(work: Work) -> None:
        try:
            await getattr(work, step)()
        except BaseException as error:  # as above
            work.failure = work.failure or error

    await asyncio.gather(*(do(work) for work in story.works() if work.failure is None))


async def _progress(story: Story) -> None:
    """Return once each program has had some successes more."""
    await asyncio.gather(
        *(
            work.more(EXPORTS_EACH if isinstance(work, Exports) else SUCCESSES_EACH)
            for work in story.works()
            if not isinstance(work, Leases)
        )
    )


async def _look(story: Story, client: eruca.AsyncClient) -> None:
    """Look at what there is at the end."""
    story.orders = await everything(client, ORDERS)
    story.clicks = await everything(client, CLICKS)
    story.purchases = await everything(client, Shop.TOPIC)
    story.committed = await client.admin.groups.offsets(Handlers.GROUP, topic=ORDERS)
    end = (await client.admin.broker_status(BROKER)).log.max_offset
    async with client.log_follower(BROKER) as follower:
        while (follower.next_offset or 0) < end:
            for record in await follower.read():
                story.log.append((record.log_offset, record.size))
    for text in [*story.once.acknowledged][-20:]:
        await _find(client, text, story.once.acknowledged[text].message_id)
        story.found.add(text)


async def _find(client: eruca.AsyncClient, text: str, message_id: str) -> None:
    """Return once the query service finds one message by its key, the right one."""

    async def find() -> list[str | None]:
        page = await client.query.find(ORDERS, key=text)
        return [message.message_id for message in page.messages]

    await until_told(find, lambda ids: ids == [message_id])
