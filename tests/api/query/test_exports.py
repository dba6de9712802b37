"""Rows of exports: complete, in order, alike in all forms, and never cut without notice."""

from __future__ import annotations

import io
import json
from base64 import b64decode
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest

import eruca
from eruca.contract.exports import (
    BATCH_RANGE_METADATA,
    EXPORT_COLUMNS,
    EXPORT_ROWS_HEADER,
    NDJSON_MEDIA_TYPE,
    ExportRange,
    ExportSchema,
)
from eruca.rows.arrow_schema import EXPORT_ARROW_SCHEMA
from support.exported_topics import exports, ranges_of, send

pytestmark = pytest.mark.anyio


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
