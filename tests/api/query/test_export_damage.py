"""Damaged messages in exports: an error that names them, or rows that say so; never silence."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pyarrow as pa
import pytest

import eruca
from eruca.contract.exports import EXPORT_COLUMNS, NDJSON_MEDIA_TYPE, PLACE_COLUMNS
from support.brokers import rot
from support.exports import ExportService, export_service
from support.in_process_cluster import in_process_cluster

pytestmark = pytest.mark.anyio

RANGE = "broker-a/0:0-5"
MARKED = {"damaged": "mark"}


@asynccontextmanager
async def damaged_at_3(directory: Path) -> AsyncIterator[tuple[ExportService, int]]:
    """Yield exports of five messages of which one is damaged, and its log offset."""
    async with (
        in_process_cluster(directory, brokers=1) as cluster,
        export_service(cluster) as service,
    ):
        await service.client.admin.create_topic("orders", queue_count=1)
        async with service.client.producer() as producer:
            results = [
                await producer.send(eruca.Message("orders", f"body-{number}", tag="t", keys=["k"]))
                for number in range(5)
            ]
        rot(cluster.brokers["broker-a"], b"body-3")
        yield service, results[3].log_offset


async def test_a_damaged_message_is_refused_with_all_that_leads_to_it(tmp_path: Path) -> None:
    async with damaged_at_3(tmp_path) as (service, log_offset):
        answer = await service.records("orders", ["broker-a/0:3-5"])

    problem = answer.json()
    assert (answer.status_code, problem["code"]) == (410, "message-damaged")
    for part in ("orders", "broker-a/0", "offset 3", f"log offset {log_offset}", "checksum"):
        assert part in problem["detail"], problem
    assert "damaged=mark" in problem["fix"]
    assert problem["errors"][0]["pointer"] == "/query/range/0"


@pytest.mark.parametrize("accept", [None, NDJSON_MEDIA_TYPE])
async def test_an_answer_that_meets_a_damaged_message_ends_before_it_and_is_not_whole(
    tmp_path: Path, accept: str | None
) -> None:
    headers = {} if accept is None else {"accept": accept}
    async with damaged_at_3(tmp_path) as (service, _):
        url = f"{service.url}/v1/exports/orders/records"
        with pytest.raises(httpx.RemoteProtocolError):  # no last chunk
            await service.http.get(url, params={"range": RANGE}, headers=headers)


async def test_a_damaged_message_that_is_to_be_marked_has_its_place_and_its_fault_alone(
    tmp_path: Path,
) -> None:
    async with damaged_at_3(tmp_path) as (service, log_offset):
        table = await service.table("orders", [RANGE], **MARKED)
        lines = await service.records("orders", [RANGE], accept=NDJSON_MEDIA_TYPE, **MARKED)

    rows = table.to_pylist()
    assert [row["queue_offset"] for row in rows] == [0, 1, 2, 3, 4]
    assert [row["damage"] is not None for row in rows] == [False, False, False, True, False]
    damaged = rows[3]
    assert damaged["log_offset"] == log_offset
    assert "checksum" in damaged["damage"]
    known = {name for name, value in damaged.items() if value is not None}
    assert known == {*PLACE_COLUMNS, "damage"}
    assert [row["body"] for row in rows if row is not damaged] == [
        f"body-{number}".encode() for number in (0, 1, 2, 4)
    ]
    assert json.loads(lines.text.split("\n")[3]) == damaged


async def test_each_range_has_a_row_for_each_offset_though_messages_are_damaged(
    tmp_path: Path,
) -> None:
    async with damaged_at_3(tmp_path) as (service, _):
        answer = await service.records("orders", [RANGE], columns="queue_offset,damage", **MARKED)
        with pa.ipc.open_stream(answer.content) as stream:
            batches = []
            while True:
                try:
                    batches.append(stream.read_next_batch_with_custom_metadata())
                except StopIteration:
                    break

    told = [metadata[b"eruca.range"].decode() for _, metadata in batches]
    assert told == ["broker-a/0:0-3", "broker-a/0:3-4", "broker-a/0:4-5"]
    assert [batch.num_rows for batch, _ in batches] == [3, 1, 1]
    assert answer.headers["eruca-export-rows"] == "5"


async def test_damage_is_not_marked_where_no_column_would_tell_it(tmp_path: Path) -> None:
    async with damaged_at_3(tmp_path) as (service, _):
        answer = await service.records("orders", [RANGE], columns="queue_offset,body", **MARKED)

    assert (answer.status_code, answer.json()["code"]) == (422, "validation-failed")
    assert "damage" in answer.json()["detail"]


def test_every_column_that_a_damaged_message_has_is_one_of_the_schemas() -> None:
    assert {*PLACE_COLUMNS} <= {column.name for column in EXPORT_COLUMNS}
