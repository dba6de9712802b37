"""Plans of exports: partitions that hold each message of the topic or of its time once."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from support.exported_topics import exports, ranges_of, send

pytestmark = pytest.mark.anyio


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
