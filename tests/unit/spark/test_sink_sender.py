"""A sink's rows at real brokers: each once, whatever runs again; refusals name the row."""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import anyio.to_thread
import httpx
import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.sql import types
from pyspark.sql.datasource import WriterCommitMessage

import eruca
from eruca.exporting.errors import SourceError
from pyspark_eruca.sending import TopicRoute, TopicSender
from pyspark_eruca.sink import Sent, SinkWriter
from pyspark_eruca.sink_columns import SinkColumns
from pyspark_eruca.sink_options import SinkOptions
from pyspark_eruca.sink_sender import KEYED_AT_ONCE, SinkSender
from support.clocks import WrongClock
from support.in_process_cluster import InProcessCluster, in_process_cluster

pytestmark = pytest.mark.anyio
QUEUES = 2
TYPES = {
    "topic": types.StringType(),
    "body": types.StringType(),
    "key": types.StringType(),
    "sharding_key": types.StringType(),
    "deliver_at": types.TimestampType(),
    "id": types.StringType(),
}
Row = Mapping[str, Any]


def options_of(cluster: InProcessCluster, **options: str) -> SinkOptions:
    given = {"namesrv": cluster.namesrv_urls[0], "topic": "orders", "retrySeconds": "30"}
    return SinkOptions.parse({**given, **options})


async def route_of(cluster: InProcessCluster) -> TopicRoute:
    """Return the route of ``orders``, as the driver looks it up."""

    def run() -> TopicRoute:
        with closing(TopicSender(options_of(cluster), "orders")) as sender:
            return sender.route

    return await anyio.to_thread.run_sync(run)


async def send(
    cluster: InProcessCluster,
    rows: Sequence[Row],
    *,
    prefix: str = "w",
    route: TopicRoute | None = None,
    checks_division: bool = False,
    **options: str,
) -> SinkSender:
    """Send *rows* as partition 0 of the write *prefix*: to ``orders``, or the topics they name."""
    parsed = options_of(cluster, **options)
    if "topic" in rows[0]:
        parsed = replace(parsed, topic=None)

    def run() -> SinkSender:
        names = [name for name in TYPES if name in rows[0]]
        fields = types.StructType([types.StructField(name, TYPES[name]) for name in names])
        columns = SinkColumns(fields, topic=parsed.topic, key_column=parsed.key_column)
        with closing(
            SinkSender(
                parsed,
                columns,
                prefix=prefix,
                partition=0,
                route=route,
                checks_division=checks_division,
            )
        ) as sender:
            sender.send(rows)
            sender.flush()
        return sender

    return await anyio.to_thread.run_sync(run)


async def stored(cluster: InProcessCluster, queue_count: int = QUEUES) -> Counter[str]:
    """Return the bodies in all queues of the topic, with how often each is there."""
    return Counter([body for queue in await queues(cluster, queue_count) for body in queue])


async def queues(cluster: InProcessCluster, queue_count: int = QUEUES) -> list[list[str]]:
    """Return the bodies of each queue of the topic, in order."""
    each = [await queues_at(url, queue_count) for url in cluster.broker_urls.values()]
    return [queue for its_queues in each for queue in its_queues]


async def count_at(cluster: InProcessCluster, broker_name: str) -> int:
    """Return the number of messages of the topic at one broker."""
    return sum(map(len, await queues_at(cluster.broker_urls[broker_name], QUEUES)))


async def queues_at(url: str, queue_count: int) -> list[list[str]]:
    """Return the bodies of each queue of the topic at one broker."""
    bodies: list[list[str]] = []
    async with httpx.AsyncClient() as http:
        for queue_id in range(queue_count):
            path = f"{url}/v1/topics/orders/queues/{queue_id}/messages"
            offset, end = 0, 1
            bodies.append([])
            while offset < end:
                query = {"offset": offset, "count_max": 8_192}
                answer = (await http.get(path, params=query)).raise_for_status().json()
                bodies[-1] += [message["body"]["text"] for message in answer["messages"]]
                offset, end = answer["next_offset"], answer["max_offset"]
    return bodies


@asynccontextmanager
async def cluster_with_orders(
    tmp_path: Path,
    brokers: int = 1,
    **settings: Any,  # noqa: ANN401 - BrokerSettings' fields, of their types
) -> AsyncIterator[InProcessCluster]:
    async with (
        in_process_cluster(tmp_path, brokers=brokers, **settings) as cluster,
        eruca.AsyncClient(cluster.namesrv_urls) as client,
    ):
        await client.admin.create_topic("orders", queue_count=QUEUES)
        yield cluster


def rows_of(count: int, *, sharded: bool = False) -> list[Row]:
    return [
        {
            "body": f"order {n}",
            "key": f"k{n}",
            "sharding_key": f"s{n % 7}" if sharded else None,
            "deliver_at": None,
        }
        for n in range(count)
    ]


@pytest.mark.parametrize("sharded", [False, True])
async def test_rows_that_are_sent_again_are_stored_once(tmp_path: Path, sharded: bool) -> None:
    rows = rows_of(2_500, sharded=sharded)
    async with cluster_with_orders(tmp_path, brokers=2) as cluster:
        broken_off = await send(cluster, rows[:1_700])
        whole = await send(cluster, rows[:1_700])
        assert (broken_off.sent, whole.sent, whole.known) == (1_700, 0, 1_700)
        assert await stored(cluster) == Counter(row["body"] for row in rows[:1_700])


async def test_an_attempt_that_broke_off_between_batches_is_completed(tmp_path: Path) -> None:
    rows = rows_of(2_500)
    async with cluster_with_orders(tmp_path) as cluster:
        bad = [*rows[:2_300], {**rows[0], "body": None}]
        with pytest.raises(SourceError, match=r"partition 0, row 2300: .*Acknowledged .* 2000 mes"):
            await send(cluster, bad)
        completed = await send(cluster, rows)

        assert (completed.known, completed.sent) == (2_000, 500)
        assert await stored(cluster) == Counter(row["body"] for row in rows)


async def test_a_partition_that_had_more_batches_is_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = rows_of(2_500)
    told = "an earlier attempt of partition 0 had more rows: its message 'w-0-1-0' of topic orders"
    async with cluster_with_orders(tmp_path, brokers=2) as cluster:
        assert (await send(cluster, rows, checks_division=True)).sent == 2_500
        assert (await send(cluster, rows, checks_division=True)).known == 2_500
        with pytest.raises(SourceError, match=told):
            await send(cluster, rows[:1_000], checks_division=True)
        assert told not in capsys.readouterr().err
        await send(cluster, rows[:1_000], checks_division=True, failOnDoubledRows="false")

    assert told in capsys.readouterr().err


async def test_another_write_is_another_message(tmp_path: Path) -> None:
    rows = rows_of(3)
    async with cluster_with_orders(tmp_path) as cluster:
        await send(cluster, rows)
        await send(cluster, rows, prefix="w2")

        assert set((await stored(cluster)).values()) == {2}


async def test_rows_in_another_order_are_refused_and_not_doubled(tmp_path: Path) -> None:
    rows = rows_of(1_500)
    async with cluster_with_orders(tmp_path, brokers=2) as cluster:
        await send(cluster, rows)
        with pytest.raises(SourceError, match=r"rows 0 to 999: .*sortWithinPartitions"):
            await send(cluster, rows[::-1])

        assert await stored(cluster) == Counter(row["body"] for row in rows)


async def test_with_keys_of_their_own_rows_may_come_in_any_order(tmp_path: Path) -> None:
    rows = [{**row, "id": f"id-{n}"} for n, row in enumerate(rows_of(40))]
    async with cluster_with_orders(tmp_path, brokers=2) as cluster:
        await send(cluster, rows[:25], idempotencyKeyColumn="id")
        again = await send(cluster, rows[::-1], prefix="other", idempotencyKeyColumn="id")

        assert (again.sent, again.known) == (15, 25)
        assert await stored(cluster) == Counter(row["body"] for row in rows)


async def test_rows_with_keys_of_their_own_keep_the_order_of_their_sharding_key(
    tmp_path: Path,
) -> None:
    rows = [{**row, "id": f"id-{n}"} for n, row in enumerate(rows_of(600, sharded=True))]
    async with cluster_with_orders(tmp_path, brokers=2) as cluster:
        await send(cluster, rows, idempotencyKeyColumn="id")

        numbers = [[int(body.split()[1]) for body in queue] for queue in await queues(cluster)]
    assert sorted(number for queue in numbers for number in queue) == list(range(600))
    for queue in numbers:
        for shard in range(7):
            its = [number for number in queue if number % 7 == shard]
            assert its == sorted(its)


async def test_a_row_that_fails_among_rows_with_keys_of_their_own_is_named(tmp_path: Path) -> None:
    rows = [{**row, "id": f"id-{n}"} for n, row in enumerate(rows_of(50))]
    rows[30] = {**rows[30], "key": "two words"}
    async with cluster_with_orders(tmp_path) as cluster:
        with pytest.raises(SourceError, match=r"partition 0, row 30: .*Acknowledged") as caught:
            await send(cluster, rows, idempotencyKeyColumn="id")

        counted = int(str(caught.value).rpartition("partition: ")[2].split()[0])
        assert counted == (await stored(cluster)).total() < 50


async def test_a_key_that_brokers_have_forgotten_is_found_in_the_log(tmp_path: Path) -> None:
    clock = WrongClock(ahead_seconds=-90_000)  # a day and an hour
    rows = rows_of(1_200)
    async with cluster_with_orders(tmp_path, brokers=2, broker_clock=clock) as cluster:
        await send(cluster, rows)
        clock.ahead_seconds = 0
        again = await send(cluster, rows)
        assert (again.sent, again.known) == (0, 1_200)
        with pytest.raises(SourceError, match="has other content there"):
            await send(cluster, rows[::-1])
        with pytest.raises(SourceError, match=r"has more messages .*'w-0-0-700' follows them"):
            await send(cluster, rows[:700])

        assert await stored(cluster) == Counter(row["body"] for row in rows)


async def test_new_queues_do_not_double_rows_without_sharding_keys(tmp_path: Path) -> None:
    rows = rows_of(3_000)
    async with (
        cluster_with_orders(tmp_path, brokers=2) as cluster,
        eruca.AsyncClient(cluster.namesrv_urls) as client,
    ):
        await send(cluster, rows)
        await client.admin.create_topic("orders", queue_count=5)
        again = await send(cluster, rows)

    assert (again.sent, again.known) == (0, 3_000)


@pytest.mark.parametrize("keys", [1, 7])
async def test_new_queues_do_not_double_rows_with_sharding_keys(tmp_path: Path, keys: int) -> None:
    rows = [{**row, "sharding_key": f"s{n % keys}"} for n, row in enumerate(rows_of(1_100))]
    async with (
        cluster_with_orders(tmp_path, brokers=2) as cluster,
        eruca.AsyncClient(cluster.namesrv_urls) as client,
    ):
        await send(cluster, rows)
        await client.admin.create_topic("orders", queue_count=5)
        if keys == 1:
            assert (await send(cluster, rows)).known == 1_100
        else:
            with pytest.raises(SourceError, match=r"other content there: .*the topic's queues"):
                await send(cluster, rows)

        assert await stored(cluster, queue_count=5) == Counter(row["body"] for row in rows)


@pytest.mark.parametrize("sharded", [False, True])
async def test_an_attempt_that_cannot_ask_a_broker_fails_and_sends_nothing(
    tmp_path: Path, sharded: bool
) -> None:
    rows = rows_of(20, sharded=sharded)
    async with cluster_with_orders(tmp_path, brokers=2) as cluster:
        route = await route_of(cluster)
        await send(cluster, rows, route=route)
        counts = {name: await count_at(cluster, name) for name in cluster.broker_urls}
        left, gone = sorted(counts, key=lambda name: counts[name])
        await cluster.take_broker_away(gone)
        with pytest.raises(SourceError, match=r"row.*no progress for 0\.5 s"):
            await send(cluster, rows, route=route, retrySeconds="0.5")

        assert await count_at(cluster, left) == counts[left]


async def test_a_route_of_the_driver_is_used_as_it_is_but_for_the_addresses(tmp_path: Path) -> None:
    rows = rows_of(30, sharded=True)
    async with (
        cluster_with_orders(tmp_path) as cluster,
        eruca.AsyncClient(cluster.namesrv_urls) as client,
    ):
        route = await route_of(cluster)
        await client.admin.create_topic("orders", queue_count=5)
        moved = replace(route, urls={"broker-a": "http://127.0.0.1:9"})  # nothing listens there
        again = await send(cluster, rows, route=moved)

        assert again.sent == 30
        assert [bool(queue) for queue in await queues(cluster, 5)] == [True] * 2 + [False] * 3


async def test_a_broker_that_accepts_no_more_messages_is_asked_for_earlier_ones(
    tmp_path: Path,
) -> None:
    rows = rows_of(20)
    async with (
        cluster_with_orders(tmp_path, brokers=2) as cluster,
        eruca.AsyncClient(cluster.namesrv_urls) as client,
    ):
        await send(cluster, rows)
        counts = {name: await count_at(cluster, name) for name in cluster.broker_urls}
        _, full = sorted(counts, key=lambda name: counts[name])
        await client.admin.create_topic("orders", permission="r", broker_name=full)
        again = await send(cluster, rows)

    assert (again.sent, again.known) == (0, 20)


async def test_the_tasks_of_a_write_use_the_drivers_route(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fields = types.StructType([types.StructField("body", types.StringType())])
    rows = pa.RecordBatch.from_pylist([{"body": f"order {n}"} for n in range(20)])
    async with cluster_with_orders(tmp_path, brokers=2) as cluster:
        given = options_of(cluster, idempotencyPrefix="w", retrySeconds="0.5")
        writer = await anyio.to_thread.run_sync(lambda: SinkWriter(given, fields))
        monkeypatch.setattr(TaskContext, "_taskContext", None)  # a new one sets itself
        monkeypatch.setattr(TaskContext, "_taskContext", TaskContext(partitionId=0))
        for_tasks = pickle.dumps(writer)

        def attempt() -> Sent:
            sent = pickle.loads(for_tasks).write(iter([rows]))
            assert isinstance(sent, Sent)
            return sent

        assert (await anyio.to_thread.run_sync(attempt)).sent == 20
        counts = {name: await count_at(cluster, name) for name in cluster.broker_urls}
        await cluster.take_broker_away(max(counts, key=lambda name: counts[name]))
        with pytest.raises(SourceError, match="no progress"):
            await anyio.to_thread.run_sync(attempt)


@pytest.mark.parametrize(("tasks", "looked_for"), [(1, 16 * 16), (40, 40 * 6), (100, 64 * 4)])
async def test_a_commit_looks_for_a_bounded_number_of_messages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tasks: int, looked_for: int
) -> None:
    names = ("topic", "body")
    fields = types.StructType([types.StructField(name, TYPES[name]) for name in names])
    topics = [f"t{number:02}" for number in range(24)]
    asked: list[str] = []
    holder = TopicSender.holder

    def counted(sender: TopicSender, message_id: str) -> str | None:
        asked.append(message_id)
        return holder(sender, message_id)

    async with (
        cluster_with_orders(tmp_path) as cluster,
        eruca.AsyncClient(cluster.namesrv_urls) as client,
    ):
        for topic in topics:
            await client.admin.create_topic(topic, queue_count=1)
        given = replace(options_of(cluster, idempotencyPrefix="w"), topic=None)
        writer = await anyio.to_thread.run_sync(lambda: SinkWriter(given, fields))
        monkeypatch.setattr(TopicSender, "holder", counted)
        done: list[WriterCommitMessage | None] = [Sent(24, 0, "w", topics)] * tasks

        await anyio.to_thread.run_sync(writer.commit, done)

    assert len(asked) == looked_for


async def test_attempts_of_an_unnamed_write_that_differ_are_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fields = types.StructType([types.StructField("body", types.StringType())])
    rows = pa.RecordBatch.from_pylist([{"body": f"order {n}"} for n in range(2_000)])
    monkeypatch.setattr(TaskContext, "_taskContext", None)  # a new one sets itself
    monkeypatch.setattr(TaskContext, "_taskContext", TaskContext(partitionId=0))
    async with cluster_with_orders(tmp_path) as cluster:
        given = options_of(cluster)
        writer = await anyio.to_thread.run_sync(lambda: SinkWriter(given, fields))

        await anyio.to_thread.run_sync(lambda: writer.write(iter([rows])))
        with pytest.raises(SourceError, match="an earlier attempt of partition 0 had more rows"):
            await anyio.to_thread.run_sync(lambda: writer.write(iter([rows.slice(0, 1_000)])))


@pytest.mark.parametrize("keyed", [False, True])
async def test_topics_share_the_connections_to_a_broker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keyed: bool
) -> None:
    async with (
        cluster_with_orders(tmp_path) as cluster,
        eruca.AsyncClient(cluster.namesrv_urls) as client,
    ):
        for number in range(12):
            await client.admin.create_topic(f"t{number}", queue_count=QUEUES)
        opened: Counter[int | None] = Counter()
        connect = HTTPConnection.connect

        def counted(connection: HTTPConnection) -> None:
            opened[connection.port] += 1
            connect(connection)

        monkeypatch.setattr(HTTPConnection, "connect", counted)
        rows = [{**row, "topic": f"t{n % 12}"} for n, row in enumerate(rows_of(60))]
        if keyed:
            rows = [{**row, "id": f"id-{n}"} for n, row in enumerate(rows)]
        options: dict[str, Any] = {"idempotencyKeyColumn": "id"} if keyed else {}
        sent = await send(cluster, rows, **options)
        port = int(cluster.broker_urls["broker-a"].rpartition(":")[2])

        assert sent.sent == 60
        assert 1 <= opened[port] <= (KEYED_AT_ONCE if keyed else 1)


async def test_messages_with_a_delivery_time_wait_for_it_and_are_stored_once(
    tmp_path: Path,
) -> None:
    later = datetime.now(UTC) + timedelta(hours=1)
    rows = [{**row, "deliver_at": later if n % 2 else None} for n, row in enumerate(rows_of(30))]
    async with (
        cluster_with_orders(tmp_path) as cluster,
        eruca.AsyncClient(cluster.namesrv_urls) as client,
    ):
        await send(cluster, rows)
        again = await send(cluster, rows)
        waiting = [one async for one in client.admin.scheduled("orders")]

        assert again.known == 30
        assert len(waiting) == 15
        assert await stored(cluster) == Counter(row["body"] for row in rows[::2])


async def test_a_message_that_a_broker_refuses_is_named_by_its_row(tmp_path: Path) -> None:
    rows = rows_of(1_010)
    rows[1_004] = {**rows[1_004], "key": "two words"}
    async with cluster_with_orders(tmp_path) as cluster:
        with pytest.raises(SourceError, match=r"partition 0, row 1004: .* 1000 messages, 1000 of"):
            await send(cluster, rows)


async def test_a_topic_that_does_not_exist_is_named(tmp_path: Path) -> None:
    async with in_process_cluster(tmp_path, brokers=1) as cluster:
        with pytest.raises(SourceError, match=r"partition 0, row 0: .*topic-not-found"):
            await send(cluster, rows_of(1))
