"""Positions of exports: they hold for one topic in one log, and for no other of that name."""

from __future__ import annotations

import json
import shutil
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

import eruca
from eruca.contract.exports import EXPORT_ROWS_HEADER, ExportPlan
from eruca_broker.app import create_app
from support.exports import ExportService, export_service
from support.in_process_cluster import InProcessCluster, in_process_cluster, small_broker
from support.services import serving
from support.waiting import until

pytestmark = pytest.mark.anyio

QUEUE = eruca.MessageQueue("orders", "broker-a", 0)


class Stage:
    """An export service, and one broker whose store comes and goes."""

    def __init__(self, directory: Path, cluster: InProcessCluster, service: ExportService) -> None:
        self.store = directory / "store"
        self.service = service
        self._cluster = cluster
        self._running: AsyncExitStack | None = None

    async def start(self) -> None:
        """Start the broker on what is in its store."""
        self._running = AsyncExitStack()
        settings = small_broker("broker-a", self._cluster.namesrv_urls, self.store)
        await self._running.enter_async_context(serving(create_app(settings), settings))
        await until(lambda: len(list(self._cluster.name_servers[0].table.brokers())) == 1)

    async def stop(self) -> None:
        """Stop the broker."""
        if self._running is not None:
            await self._running.aclose()
            self._running = None

    async def send(self, count: int, *, words: str = "first", topic: str = "orders") -> None:
        """Create the topic if need be, and send so many messages to its only queue."""
        client = self.service.client
        await client.admin.create_topic(topic, queue_count=1)
        messages = [eruca.Message(topic, f"{words} {number}") for number in range(count)]
        async with client.producer() as producer:
            await producer.send_many(messages, queue=QUEUE._replace(topic=topic))

    async def create_again(self, count: int) -> None:
        """Delete the topic, create it again, and send so many messages."""
        await self.service.client.admin.delete_topic("orders")
        await self.send(count, words="second")

    async def planned(self, start: str | None = None, **query: str) -> httpx.Response:
        given = {} if start is None else {"start": start}
        return await self.service.http.get("/v1/exports/orders/plan", params={**given, **query})

    async def bodies(self, plan: ExportPlan) -> list[str]:
        """Return the bodies of all rows of a plan."""
        ranges = [one.text for partition in plan.partitions for one in partition.ranges]
        table = await self.service.table("orders", ranges, columns="body")
        return [body.decode() for body in table["body"].to_pylist()]


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    async with (
        in_process_cluster(tmp_path / "cluster", brokers=0) as cluster,
        export_service(cluster) as service,
    ):
        stage = Stage(tmp_path, cluster, service)
        await stage.start()
        try:
            yield stage
        finally:
            await stage.stop()


def start_of(plan: ExportPlan) -> str:
    """Return the start of the plan that is to follow."""
    fields = {"topic_id", "latest_stored_at"}
    return json.dumps(
        {
            f"{queue.broker_name}/{queue.queue_id}": {
                "offset": queue.to_offset,
                **queue.model_dump(mode="json", include=fields),
            }
            for queue in plan.queues
        }
    )


def refusal(answer: httpx.Response, status: int = 410, code: str = "range-deleted") -> str:
    """Return what a refusal says."""
    document = answer.json()
    assert (answer.status_code, document["code"]) == (status, code), document
    return str(document["detail"])


@pytest.mark.parametrize("count", [3, 10, 16])
async def test_a_topic_that_was_created_again_is_another_one(stage: Stage, count: int) -> None:
    await stage.send(10)
    before = await stage.service.plan("orders")
    assert await stage.bodies(before) == [f"first {number}" for number in range(10)]
    await stage.create_again(count)

    told = refusal(await stage.planned(start_of(before)))
    assert told.startswith("broker-a/0: topic orders was deleted and created again (its id is ")
    assert f"from offset 10 on are lost; the new one has messages 0 to {count - 1}" in told
    after = await stage.service.plan("orders", start=start_of(before), missing="skip")
    assert after.queues[0].lost is not None
    assert await stage.bodies(after) == [f"second {number}" for number in range(count)]


async def test_ranges_of_an_earlier_topic_are_gone_whatever_the_new_one_holds(
    stage: Stage,
) -> None:
    await stage.send(10)
    before = await stage.service.plan("orders")
    await stage.create_again(10)

    ranges = [one.text for one in before.partitions[0].ranges]
    answer = await stage.service.records("orders", ranges)
    assert "created again" in refusal(answer)
    assert answer.json()["errors"][0]["pointer"] == "/query/range/0"


async def test_a_store_that_was_replaced_has_other_topics(stage: Stage) -> None:
    """Its topic was created at the very place in the log where the other one was."""
    await stage.send(10)
    before = await stage.service.plan("orders")
    await stage.stop()
    shutil.rmtree(stage.store)
    await stage.start()
    await stage.send(12, words="second")

    told = refusal(await stage.planned(start_of(before)))
    assert "the broker has another log now, with another topic orders" in told
    after = await stage.service.plan("orders", start=start_of(before), missing="skip")
    assert len(await stage.bodies(after)) == 12


async def test_a_broker_that_was_only_restarted_has_the_same_topic(stage: Stage) -> None:
    await stage.send(10)
    before = await stage.service.plan("orders")
    await stage.stop()
    await stage.start()
    await stage.send(3, words="later")

    after = await stage.service.plan("orders", start=start_of(before))
    assert await stage.bodies(after) == ["later 0", "later 1", "later 2"]
    assert after.queues[0].topic_id == before.queues[0].topic_id
    assert after.queues[0].broker_started_at != before.queues[0].broker_started_at


@pytest.mark.parametrize("later", [0, 5, 25])
async def test_a_store_restored_from_an_older_copy_has_lost_what_came_after_it(
    stage: Stage, tmp_path: Path, later: int
) -> None:
    """However many messages have been sent to it since."""
    await stage.send(10)
    await stage.stop()
    shutil.copytree(stage.store, tmp_path / "copy")
    await stage.start()
    await stage.send(7, words="lost")
    before = await stage.service.plan("orders")
    await stage.stop()
    shutil.rmtree(stage.store)
    (tmp_path / "copy").rename(stage.store)
    await stage.start()
    if later:
        await stage.send(later, words="second")

    told = refusal(await stage.planned(start_of(before)))
    if later < 7:
        assert f"expected messages up to offset 16, and the queue ends at {10 + later}" in told
    else:
        assert "restored from an older copy, or truncated: the earlier messages 10 to 16" in told
        assert "25 others have been stored since, from offset 10 on" in told
        after = await stage.service.plan("orders", start=start_of(before), missing="skip")
        assert await stage.bodies(after) == [f"second {number}" for number in range(25)]


async def test_a_start_beyond_the_end_is_refused_even_if_nothing_proves_it(stage: Stage) -> None:
    await stage.send(10)

    told = refusal(await stage.planned('{"broker-a/0": 11}'))
    assert "expected messages up to offset 10, and the queue ends at 10" in told
    plan = await stage.service.plan("orders", start='{"broker-a/0": 11}', missing="skip")
    assert (plan.rows, plan.queues[0].from_offset) == (0, 10)
    assert (await stage.service.plan("orders", start='{"broker-a/0": 10}')).rows == 0


@pytest.mark.parametrize(
    "start",
    [
        {"offset": -1},
        {"offset": 1, "topic": "orders"},
        {"topic_id": "9f2c-1"},
        {"offset": 1, "topic_id": "orders"},
        {"offset": 1, "latest_stored_at": "yesterday"},
        {"offset": 1, "latest_stored_at": "2026-11-21T08:00:00"},
        {"offset": True},
        [1],
        None,
    ],
)
async def test_what_is_no_position_is_refused(stage: Stage, start: Any) -> None:  # noqa: ANN401
    await stage.send(1)

    told = refusal(await stage.planned(json.dumps({"broker-a/0": start})), 422, "validation-failed")
    assert "an object of offset, topic_id and latest_stored_at" in told


async def test_a_topic_that_is_created_again_while_it_is_read_ends_no_answer_as_whole(
    stage: Stage,
) -> None:
    """The new one holds as many messages: nothing but its id tells them from those of before."""
    body = bytes(1_000_000)

    async def fill() -> None:
        await stage.service.client.admin.create_topic("orders", queue_count=1)
        async with stage.service.client.producer(compression_threshold_bytes=None) as producer:
            await producer.send_many([eruca.Message("orders", body)] * 40, queue=QUEUE)

    await fill()
    plan = await stage.service.plan("orders")
    ranges = [one.text for partition in plan.partitions for one in partition.ranges]

    async with stage.service.http.stream(
        "GET", "/v1/exports/orders/records", params={"range": ranges}
    ) as answer:
        assert answer.headers[EXPORT_ROWS_HEADER] == "40"
        pieces = answer.aiter_raw()
        await anext(pieces)
        await stage.service.client.admin.delete_topic("orders")
        await fill()
        with pytest.raises(httpx.RemoteProtocolError):
            async for _ in pieces:
                pass
