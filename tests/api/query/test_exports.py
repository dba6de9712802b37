"""Exports over HTTP, over real brokers: exactly the rows of the queues, or a problem that says why.

What readers do that are slow, or leave, is in ``tests/system/query``.
"""

from __future__ import annotations

import asyncio
import io
import json
from base64 import b64decode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest

import eruca
from eruca.contract.exports import (
    ARROW_MEDIA_TYPE,
    BATCH_RANGE_METADATA,
    EXPORT_COLUMNS,
    EXPORT_ROWS_HEADER,
    NDJSON_MEDIA_TYPE,
    ExportPlan,
    ExportRange,
    ExportSchema,
)
from eruca_broker.app import create_app
from eruca_broker.settings import BrokerSettings
from eruca_query.exports.rows.arrow_schema import EXPORT_ARROW_SCHEMA
from support.brokers import broker_of
from support.exports import ExportService, export_service
from support.in_process_cluster import InProcessCluster, in_process_cluster
from support.services import serving
from support.stores import delete_oldest_segments
from support.waiting import until

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def exports(
    directory: Path,
    *,
    brokers: int = 1,
    broker_settings: dict[str, Any] | None = None,
    **settings: Any,  # noqa: ANN401 - those of QuerySettings
) -> AsyncIterator[tuple[InProcessCluster, ExportService]]:
    async with (
        in_process_cluster(directory, brokers=brokers, **broker_settings or {}) as cluster,
        export_service(cluster, **settings) as service,
    ):
        yield cluster, service


async def send(
    service: ExportService, topic: str, count: int, *, body: str = "", first: int = 0
) -> None:
    """Send messages that count up, dealt out to three queues on each broker."""
    await service.client.admin.create_topic(topic, queue_count=3)
    messages = [
        eruca.Message(
            topic,
            f"{number} {body}",
            tag=f"tag-{number % 3}",
            keys=[f"key-{number}", "all"],
            properties={"number": str(number)},
        )
        for number in range(first, first + count)
    ]
    queues = sorted(await service.client.admin.queues(topic))
    async with service.client.producer() as producer:
        for index, queue in enumerate(queues):
            if share := messages[index :: len(queues)]:
                await producer.send_many(share, queue=queue)


def ranges_of(plan: ExportPlan) -> list[str]:
    return [a_range.text for partition in plan.partitions for a_range in partition.ranges]


def problem(answer: httpx.Response, status: int, code: str) -> dict[str, Any]:
    document: dict[str, Any] = answer.json()
    assert (answer.status_code, document["code"]) == (status, code), document
    assert answer.headers["content-type"] == "application/problem+json"
    return document


# --- Plans ----------------------------------------------------------------------------------------


async def test_the_partitions_of_a_plan_hold_every_message_once(tmp_path: Path) -> None:
    async with exports(tmp_path, brokers=2) as (_, service):
        await send(service, "orders", 1_000)

        plan = await service.plan("orders", partition_rows=150)

        assert plan.rows == 1_000
        assert [partition.index for partition in plan.partitions] == list(range(7))
        assert {partition.rows for partition in plan.partitions} <= {142, 143}
        rows: list[dict[str, Any]] = []
        for partition in plan.partitions:
            table = await service.table("orders", [r.text for r in partition.ranges])
            assert table.num_rows == partition.rows
            rows += table.to_pylist()
        assert sorted(int(row["body"].split()[0]) for row in rows) == list(range(1_000))
        places = {(row["broker_name"], row["queue_id"], row["queue_offset"]) for row in rows}
        assert places == {
            (queue.broker_name, queue.queue_id, offset)
            for queue in plan.queues
            for offset in range(queue.max_offset)
        }


async def test_a_plan_of_an_empty_topic_has_its_queues_and_no_partition(tmp_path: Path) -> None:
    async with exports(tmp_path) as (_, service):
        await service.client.admin.create_topic("orders", queue_count=2)

        plan = await service.plan("orders")

        assert (plan.rows, plan.partitions) == (0, [])
        assert [(queue.queue_id, queue.to_offset) for queue in plan.queues] == [(0, 0), (1, 0)]


async def test_a_plan_that_starts_where_the_last_one_ended_has_only_what_is_new(
    tmp_path: Path,
) -> None:
    async with exports(tmp_path) as (_, service):
        await send(service, "orders", 100)
        first = await service.plan("orders")
        await send(service, "orders", 30, first=100)
        starts = {f"{q.broker_name}/{q.queue_id}": q.to_offset for q in first.queues}

        second = await service.plan("orders", start=json.dumps(starts))

        table = await service.table("orders", ranges_of(second), columns="body")
        assert sorted(int(body.split()[0]) for body in table["body"].to_pylist()) == list(
            range(100, 130)
        )


async def test_a_queue_not_named_in_the_starts_begins_with_its_first_message(
    tmp_path: Path,
) -> None:
    async with exports(tmp_path) as (_, service):
        await send(service, "orders", 90)
        whole = await service.plan("orders")

        plan = await service.plan("orders", start=json.dumps({"broker-a/1": 5}))

        assert [queue.from_offset for queue in plan.queues] == [0, 5, 0]
        assert plan.rows == whole.rows - 5


async def test_a_span_of_time_has_what_was_stored_in_it(tmp_path: Path) -> None:
    async with exports(tmp_path) as (_, service):
        await send(service, "orders", 200)
        table = await service.table("orders", ranges_of(await service.plan("orders")))
        times = sorted(table["stored_at"].to_pylist())
        begin, end = times[50], times[150]

        plan = await service.plan(
            "orders", **{"since": begin.isoformat(), "until": end.isoformat()}
        )

        assert plan.rows == sum(begin <= time < end for time in times)
        narrowed = await service.table("orders", ranges_of(plan))
        assert all(begin <= time < end for time in narrowed["stored_at"].to_pylist())


async def test_a_time_between_two_milliseconds_parts_spans_that_adjoin(tmp_path: Path) -> None:
    async with exports(tmp_path) as (_, service):
        await send(service, "orders", 30)
        await send(service, "orders", 30, first=30)
        table = await service.table("orders", ranges_of(await service.plan("orders")))
        times = sorted(table["stored_at"].to_pylist())
        between = times[0] + timedelta(microseconds=500)

        before = await service.plan("orders", until=between.isoformat())
        behind = await service.plan("orders", **{"since": between.isoformat()})

        assert before.rows == sum(time < between for time in times)
        assert behind.rows == len(times) - before.rows


async def test_a_span_before_or_behind_everything_is_empty(tmp_path: Path) -> None:
    async with exports(tmp_path) as (_, service):
        await send(service, "orders", 20)
        now = datetime.now(UTC)

        before = await service.plan("orders", until=(now - timedelta(days=1)).isoformat())
        behind = await service.plan("orders", **{"since": (now + timedelta(days=1)).isoformat()})
        whole = await service.plan(
            "orders",
            **{
                "since": (now - timedelta(days=1)).isoformat(),
                "until": (now + timedelta(days=1)).isoformat(),
            },
        )

        assert (before.rows, behind.rows, whole.rows) == (0, 0, 20)


# --- Rows -----------------------------------------------------------------------------------------


async def test_rows_come_range_after_range_in_the_order_of_their_offsets(tmp_path: Path) -> None:
    async with exports(tmp_path) as (_, service):
        await send(service, "orders", 900)
        wanted = ["broker-a/2:10-40", "broker-a/0:0-20", "broker-a/2:0-5", "broker-a/1:7-7"]

        answer = await service.records("orders", wanted)

        assert answer.headers[EXPORT_ROWS_HEADER] == "55"
        table = pa.ipc.open_stream(answer.content).read_all()
        places = zip(table["queue_id"].to_pylist(), table["queue_offset"].to_pylist(), strict=True)
        assert list(places) == [
            *((2, offset) for offset in range(10, 40)),
            *((0, offset) for offset in range(20)),
            *((2, offset) for offset in range(5)),
        ]


async def test_each_batch_tells_its_range(tmp_path: Path) -> None:
    async with exports(tmp_path) as (_, service):
        await send(service, "orders", 300)
        answer = await service.records("orders", ["broker-a/0:5-50", "broker-a/1:0-30"])

        told = []
        with pa.ipc.open_stream(answer.content) as stream:
            for _ in range(2):
                batch, metadata = stream.read_next_batch_with_custom_metadata()
                covered = ExportRange.parse(metadata[BATCH_RANGE_METADATA].decode())
                assert batch["queue_offset"].to_pylist() == list(
                    range(covered.from_offset, covered.to_offset)
                )
                told.append(covered.text)

        assert told == ["broker-a/0:5-50", "broker-a/1:0-30"]


async def test_ndjson_has_the_same_rows_as_arrow(tmp_path: Path) -> None:
    async with exports(tmp_path) as (_, service):
        await send(service, "orders", 500, body="ünï\tcode")
        ranges = ranges_of(await service.plan("orders"))

        table = await service.table("orders", ranges)
        answer = await service.records("orders", ranges, accept=NDJSON_MEDIA_TYPE)

        assert answer.headers["content-type"] == NDJSON_MEDIA_TYPE
        lines = [json.loads(line) for line in answer.text.split("\n")[:-1]]
        assert [_as_arrow_has_it(line) for line in lines] == table.to_pylist()


def _as_arrow_has_it(line: dict[str, Any]) -> dict[str, Any]:
    body = line["body"]
    return line | {
        "body": body["text"].encode() if "text" in body else b64decode(body["base64"]),
        "stored_at": datetime.fromisoformat(line["stored_at"]),
        "born_at": datetime.fromisoformat(line["born_at"]),
        "properties": list(line["properties"].items()),
    }


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
async def test_a_compressed_stream_reads_the_same_and_is_smaller(
    tmp_path: Path, codec: str
) -> None:
    async with exports(tmp_path) as (_, service):
        await send(service, "orders", 500, body="again and " * 20)
        ranges = ranges_of(await service.plan("orders"))

        plain = await service.records("orders", ranges)
        packed = await service.records("orders", ranges, codec=codec)

        tables = [pa.ipc.open_stream(answer.content).read_all() for answer in (plain, packed)]
        assert tables[0].equals(tables[1])
        assert len(packed.content) < len(plain.content) / 2


async def test_columns_are_those_asked_for_in_their_order(tmp_path: Path) -> None:
    async with exports(tmp_path) as (_, service):
        await send(service, "orders", 30)
        ranges = ranges_of(await service.plan("orders"))

        table = await service.table("orders", ranges, columns="keys, queue_offset")
        line = await service.records(
            "orders", ["broker-a/0:0-1"], columns="tag,queue_id", accept=NDJSON_MEDIA_TYPE
        )

        whole = await service.table("orders", ranges)
        assert table.schema.names == ["keys", "queue_offset"]
        assert table.equals(whole.select(["keys", "queue_offset"]))
        assert list(line.json()) == ["tag", "queue_id"]


async def test_the_schema_of_a_stream_is_the_one_that_is_told(tmp_path: Path) -> None:
    async with exports(tmp_path) as (_, service):
        await service.client.admin.create_topic("orders")

        told = ExportSchema.model_validate_json(
            (await service.http.get("/v1/exports/schema")).content
        )
        empty = await service.records("orders", ["broker-a/0:0-0"])

        assert told.columns == list(EXPORT_COLUMNS)
        schema = pa.ipc.open_stream(empty.content).schema
        assert schema.equals(EXPORT_ARROW_SCHEMA, check_metadata=True)
        assert schema.names == [column.name for column in told.columns]
        assert [str(field.type).replace("element: ", "") for field in schema] == [
            column.type for column in told.columns
        ]
        assert empty.headers[EXPORT_ROWS_HEADER] == "0"


async def test_messages_larger_than_a_block_come_one_by_one(tmp_path: Path) -> None:
    async with exports(tmp_path) as (_, service):
        await service.client.admin.create_topic("orders", queue_count=1)
        bodies = [bytes([n]) * 3_000_000 for n in range(4)]
        async with service.client.producer(compression_threshold_bytes=None) as producer:
            for body in bodies:
                await producer.send(eruca.Message("orders", body))

        table = await service.table("orders", ["broker-a/0:0-4"])

        assert table["body"].to_pylist() == bodies
        assert table["body"].num_chunks == 4


async def test_bodies_that_a_producer_compressed_are_what_it_sent(tmp_path: Path) -> None:
    async with exports(tmp_path) as (_, service):
        await service.client.admin.create_topic("orders", queue_count=1)
        body = b"many words " * 5_000
        async with service.client.producer() as producer:
            await producer.send(eruca.Message("orders", body))

        (row,) = (await service.table("orders", ["broker-a/0:0-1"])).to_pylist()

        assert row["size"] < len(body) / 2
        assert (row["body"], row["sys_flag"]) == (body, 0)


async def test_what_the_system_records_can_be_exported(tmp_path: Path) -> None:
    async with exports(tmp_path, brokers=2) as (_, service):
        await service.client.admin.create_topic("orders")

        plan = await service.plan("ERUCA_SYS_EVENTS")
        table = await service.table("ERUCA_SYS_EVENTS", ranges_of(plan))

        events = [json.loads(body) for body in table["body"].to_pylist()]
        created = [event for event in events if event["event"] == "topic_put"]
        assert [event["topic"] for event in created] == ["orders", "orders"]
        assert set(table["broker_name"].to_pylist()) == {"broker-a", "broker-b"}


async def test_half_messages_can_be_exported_though_nobody_can_consume_them(
    tmp_path: Path,
) -> None:
    async with exports(tmp_path) as (cluster, service):
        await service.client.admin.create_topic("orders")
        async with httpx.AsyncClient(base_url=cluster.broker_urls["broker-a"]) as broker:
            message = {"body": {"text": "half"}}
            begun = await broker.post(
                "/v1/transactions",
                json={"topic": "orders", "producer_group": "shop", "message": message},
            )
        assert begun.status_code == 201

        plan = await service.plan("RMQ_SYS_TRANS_HALF_TOPIC")
        (row,) = (await service.table("RMQ_SYS_TRANS_HALF_TOPIC", ranges_of(plan))).to_pylist()

        assert row["body"] == b"half"
        assert row["message_id"] == begun.json()["transaction_id"]
        assert dict(row["properties"])["REAL_TOPIC"] == "orders"


async def test_a_stream_cut_at_any_batch_is_not_taken_for_a_whole_one(tmp_path: Path) -> None:
    """An answer without the end-of-stream marker also lacks rows that its header has announced."""
    async with exports(tmp_path) as (_, service):
        await send(service, "orders", 300)
        answer = await service.records("orders", ["broker-a/0:0-50", "broker-a/1:0-50"])

        assert answer.content.endswith(b"\xff\xff\xff\xff\0\0\0\0")
        told = int(answer.headers[EXPORT_ROWS_HEADER])
        for size in range(0, len(answer.content) - 8, 97):
            assert _rows_of(answer.content[:size]) < told


def _rows_of(cut: bytes) -> int:
    rows = 0
    try:
        with pa.ipc.open_stream(io.BytesIO(cut)) as stream:
            for batch in stream:
                rows += batch.num_rows
    except (pa.ArrowInvalid, OSError):
        pass
    return rows


# --- What retention has deleted -------------------------------------------------------------------


async def delete_beginning(cluster: InProcessCluster, service: ExportService) -> None:
    """Fill several segments of the log and have retention delete the first ones."""
    await service.client.admin.create_topic("orders", queue_count=1)
    async with service.client.producer(compression_threshold_bytes=None) as producer:
        for _ in range(40):
            await producer.send(eruca.Message("orders", bytes(1_000_000)))
    store = broker_of(cluster.brokers["broker-a"]).store
    assert await delete_oldest_segments(store, 1)


async def test_a_range_whose_beginning_is_deleted_is_gone(tmp_path: Path) -> None:
    async with exports(tmp_path) as (cluster, service):
        await delete_beginning(cluster, service)
        plan = await service.plan("orders")

        refused = problem(
            await service.records("orders", ["broker-a/0:30-31", "broker-a/0:0-40"]),
            410,
            "range-deleted",
        )

        (queue,) = plan.queues
        assert 0 < queue.min_offset == queue.from_offset < 40
        assert plan.rows == 40 - queue.min_offset
        assert refused["errors"] == [
            {
                "pointer": "/query/range/1",
                "detail": "broker-a/0:0-40: offset 0 has been deleted, the queue begins at "
                f"{queue.min_offset}",
            }
        ]


async def test_a_plan_does_not_pass_over_deleted_messages_unless_told_to(tmp_path: Path) -> None:
    async with exports(tmp_path) as (cluster, service):
        await delete_beginning(cluster, service)
        start = json.dumps({"broker-a/0": 3})

        refused = problem(
            await service.http.get("/v1/exports/orders/plan", params={"start": start}),
            410,
            "range-deleted",
        )
        plan = await service.plan("orders", start=start, missing="skip")

        (queue,) = plan.queues
        assert refused["errors"][0]["pointer"] == "/query/start"
        assert (queue.from_offset, queue.missing_rows) == (queue.min_offset, queue.min_offset - 3)


async def test_messages_that_are_deleted_but_too_old_to_be_wanted_are_not_missed(
    tmp_path: Path,
) -> None:
    async with exports(tmp_path) as (cluster, service):
        await delete_beginning(cluster, service)
        whole = await service.plan("orders")
        table = await service.table("orders", ranges_of(whole), columns="stored_at")
        late = table["stored_at"].to_pylist()[-1]

        plan = await service.plan(
            "orders", start=json.dumps({"broker-a/0": 0}), **{"since": late.isoformat()}
        )

        assert plan.queues[0].missing_rows == 0
        assert plan.rows >= 1


# --- Refusals -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "status", "code"),
    [
        ("no-such-topic/plan", 404, "topic-not-found"),
        ("no-such-topic/records?range=broker-a/0:0-1", 404, "topic-not-found"),
        ("%25DLQ%25nobody/plan", 404, "topic-not-found"),
        ("not%20a%20name/plan", 422, "validation-failed"),
        ("orders/plan?partition_rows=0", 422, "validation-failed"),
        ("orders/plan?partition_rows=5000001", 422, "validation-failed"),
        ("orders/plan?start=[]", 422, "validation-failed"),
        ("orders/plan?start={", 422, "validation-failed"),
        ('orders/plan?start={"broker-a":1}', 422, "validation-failed"),
        ('orders/plan?start={"broker-a/0":-1}', 422, "validation-failed"),
        ('orders/plan?start={"broker-a/0":"1"}', 422, "validation-failed"),
        ('orders/plan?start={"broker-a/0":9223372036854775808}', 422, "validation-failed"),
        ('orders/plan?start={"broker-a/7":0}', 404, "queue-not-found"),
        ('orders/plan?start={"broker-z/0":0}', 503, "broker-unreachable"),
        ("orders/plan?since=yesterday", 422, "validation-failed"),
        ("orders/plan?since=2026-11-21T08:00:00", 422, "validation-failed"),
        (
            "orders/plan?since=2026-11-21T08:00:00Z&until=2026-11-20T08:00:00Z",
            422,
            "validation-failed",
        ),
        ("orders/plan?missing=ignore", 422, "validation-failed"),
        ("orders/records", 422, "validation-failed"),
        ("orders/records?range=", 422, "validation-failed"),
        ("orders/records?range=broker-a/0", 422, "validation-failed"),
        ("orders/records?range=broker-a/0:5-4", 422, "validation-failed"),
        ("orders/records?range=broker-a/0:0-1&range=x", 422, "validation-failed"),
        ("orders/records?range=broker-a/0:0-5000001", 422, "validation-failed"),
        ("orders/records?range=broker-a/0:0-999999", 422, "validation-failed"),
        ("orders/records?range=broker-a/7:0-1", 404, "queue-not-found"),
        ("orders/records?range=broker-z/0:0-1", 503, "broker-unreachable"),
        ("orders/records?range=broker-a/0:0-1&codec=gzip", 422, "validation-failed"),
        ("orders/records?range=broker-a/0:0-1&columns=", 422, "validation-failed"),
        ("orders/records?range=broker-a/0:0-1&columns=body,colour", 422, "validation-failed"),
        ("orders/records?range=broker-a/0:0-1&columns=body,body", 422, "validation-failed"),
        ("orders/records?" + "range=broker-a/0:0-1&" * 257, 422, "validation-failed"),
    ],
)
async def test_what_cannot_be_exported_is_refused_with_the_reason(
    tmp_path: Path, path: str, status: int, code: str
) -> None:
    async with exports(tmp_path) as (_, service):
        await send(service, "orders", 30)

        refused = problem(await service.http.get(f"/v1/exports/{path}"), status, code)

        assert refused["detail"]
        assert service.exports.slots.running == 0


async def test_a_form_that_there_is_not_is_not_acceptable(tmp_path: Path) -> None:
    async with exports(tmp_path) as (_, service):
        await send(service, "orders", 30)

        refused = await service.records("orders", ["broker-a/0:0-1"], accept="text/csv")
        compressed_lines = await service.records(
            "orders", ["broker-a/0:0-1"], accept=NDJSON_MEDIA_TYPE, codec="zstd"
        )
        anything = await service.records("orders", ["broker-a/0:0-1"], accept="*/*")

        problem(refused, 406, "not-acceptable")
        problem(compressed_lines, 422, "validation-failed")
        assert anything.headers["content-type"] == ARROW_MEDIA_TYPE


async def test_partitions_beyond_counting_are_refused_with_the_size_that_would_do(
    tmp_path: Path,
) -> None:
    async with exports(tmp_path) as (_, service):
        await send(service, "orders", 10_001)

        refused = problem(
            await service.http.get("/v1/exports/orders/plan", params={"partition_rows": 1}),
            422,
            "validation-failed",
        )

        assert refused["errors"] == [
            {"pointer": "/query/partition_rows", "detail": "expected at least 2"}
        ]


async def test_a_topic_that_may_not_be_read_is_not_exported(tmp_path: Path) -> None:
    async with exports(tmp_path) as (_, service):
        await send(service, "orders", 30)
        await service.client.admin.create_topic("orders", queue_count=3, permission="w")

        refused = problem(
            await service.records("orders", ["broker-a/0:0-1"]), 403, "permission-denied"
        )

        assert "broker-a" in refused["detail"]


async def test_a_broker_that_has_gone_is_named_and_its_rows_are_not_left_out(
    tmp_path: Path,
) -> None:
    async with exports(tmp_path) as (cluster, service):
        other = BrokerSettings(
            name="broker-z",
            namesrv_urls=";".join(cluster.namesrv_urls),
            store_dir=tmp_path / "broker-z",
            segment_bytes=16 * 1024**2,
            port=0,
        )
        async with serving(create_app(other), other):
            while len(await service.client.admin.brokers()) < 2:
                pass
            await send(service, "orders", 60)
            plan = await service.plan("orders")
            assert {queue.broker_name for queue in plan.queues} == {"broker-a", "broker-z"}
        starts = {f"{q.broker_name}/{q.queue_id}": q.to_offset for q in plan.queues}

        rows = problem(await service.records("orders", ranges_of(plan)), 503, "broker-unreachable")
        next_plan = problem(
            await service.http.get("/v1/exports/orders/plan", params={"start": json.dumps(starts)}),
            503,
            "broker-unreachable",
        )
        # Another client has never heard of the broker, which has left the name server in order.
        async with export_service(cluster) as other_service:
            unknown = problem(
                await other_service.http.get(
                    "/v1/exports/orders/plan", params={"start": json.dumps(starts)}
                ),
                503,
                "broker-unreachable",
            )
            without_it = await other_service.plan(
                "orders", start=json.dumps(starts), missing="skip"
            )

        assert "broker-z" in rows["detail"]
        assert rows["retryable"]
        assert "broker-z" in next_plan["detail"]
        assert "broker-z" in unknown["detail"]
        assert {queue.broker_name for queue in without_it.queues} == {"broker-a"}


async def test_a_topic_that_nobody_has_but_a_broker_that_is_away_is_waited_for(
    tmp_path: Path,
) -> None:
    """A broker that restarts takes along the topics that no other one has."""
    async with exports(tmp_path) as (_, service):
        service.holders.names = ["broker-z"]
        plan = await service.plan("parcels")
        start = '{"broker-z/0":5}'
        starting = await service.http.get("/v1/exports/parcels/plan", params={"start": start})
        rows = await service.records("parcels", ["broker-z/0:0-1"])
        of_a_live_one = await service.records("parcels", ["broker-a/0:0-1"])
        service.holders.names = ["broker-a"]
        live = await service.http.get("/v1/exports/parcels/plan")

    assert (plan.rows, plan.queues) == (0, [])
    assert [missing.broker_name for missing in plan.incomplete] == ["broker-z"]
    for refused in (starting, rows):
        assert "broker-z" in problem(refused, 503, "broker-unreachable")["detail"]
    for refused in (of_a_live_one, live):
        problem(refused, 404, "topic-not-found")


async def test_without_a_name_server_it_is_said_that_none_answers(tmp_path: Path) -> None:
    async with in_process_cluster(tmp_path, brokers=1) as cluster:
        cluster.namesrv_urls = ["http://127.0.0.1:1"]
        async with export_service(cluster) as service:
            refused = problem(await service.http.get("/v1/exports/orders/plan"), 503, "unavailable")

    assert refused["retryable"]


async def test_no_more_exports_run_than_are_allowed(tmp_path: Path) -> None:
    async with exports(tmp_path, export_count_max=1) as (_, service):
        await send(service, "orders", 30)
        with service.exports.slots.slot():
            refused = await service.records("orders", ["broker-a/0:0-1"])

        problem(refused, 429, "overloaded")
        assert int(refused.headers["retry-after"]) >= 1
        assert (await service.table("orders", ["broker-a/0:0-1"])).num_rows == 1


async def test_an_export_whose_first_rows_are_being_made_does_not_begin_once_the_service_stops(
    tmp_path: Path,
) -> None:
    async with exports(tmp_path) as (_, service):
        await send(service, "orders", 30)
        # It is the first export: before there are rows, a worker has to be started.
        asked = asyncio.create_task(service.records("orders", ["broker-a/0:0-1"]))
        await until(lambda: service.exports.slots.running == 1)
        service.exports.slots.stop()

        refused = await asked

    problem(refused, 503, "not-ready")


async def test_what_has_been_exported_is_counted(tmp_path: Path) -> None:
    async with exports(tmp_path) as (_, service):
        await send(service, "orders", 30)
        plan = await service.plan("orders")
        await service.table("orders", ranges_of(plan))

        metrics = (await service.http.get("/metrics")).text

        assert "eruca_query_export_rows_total 30.0" in metrics
        assert "eruca_query_exports_running 0.0" in metrics


async def test_the_head_of_an_export_is_told_without_its_rows(tmp_path: Path) -> None:
    async with exports(tmp_path) as (_, service):
        await send(service, "orders", 30)

        for method in ("HEAD", "GET", "HEAD"):  # on one connection, which stays in step
            answer = await service.http.request(
                method, "/v1/exports/orders/records", params={"range": "broker-a/0:0-1"}
            )
            assert answer.status_code == 200
            assert answer.headers["eruca-export-rows"] == "1"
            assert bool(answer.content) == (method == "GET")

        assert service.exports.workers.step_count == 0
