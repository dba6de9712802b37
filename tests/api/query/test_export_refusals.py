"""Exports that are refused: what is deleted, unreachable, not readable or beyond a limit."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx
import pytest

import eruca
from eruca.contract.exports import ARROW_MEDIA_TYPE, NDJSON_MEDIA_TYPE
from eruca_broker.app import create_app
from eruca_broker.settings import BrokerSettings
from support.brokers import broker_of
from support.exported_topics import exports, ranges_of, send
from support.exports import ExportService, export_service
from support.in_process_cluster import InProcessCluster, in_process_cluster
from support.services import serving
from support.stores import delete_oldest_segments
from support.waiting import until

pytestmark = pytest.mark.anyio


def problem(answer: httpx.Response, status: int, code: str) -> dict[str, Any]:
    document: dict[str, Any] = answer.json()
    assert (answer.status_code, document["code"]) == (status, code), document
    assert answer.headers["content-type"] == "application/problem+json"
    return document


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
