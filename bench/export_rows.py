"""Exports: the cost of a row as a column, and the rate of a stream that is thrown away."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from typing import Final

import httpx
import numpy as np

from bench.batches import TOPIC, batch_request
from bench.load import run_load
from bench.machine import cpu_seconds, private_memory
from bench.read_model import until_read
from bench.report import Report
from eruca.contract.exports import ARROW_MEDIA_TYPE, EXPORT_COLUMNS, NDJSON_MEDIA_TYPE
from eruca.contract.properties import KEYS, TAGS, UNIQ_KEY, encode_properties
from eruca.contract.records import Host, Record, decode_record, encode_record
from eruca_deploy.cluster import LocalCluster
from eruca_query.exports.rows.blocks import Block
from eruca_query.exports.rows.encoders import ArrowEncoder
from eruca_query.exports.rows.ndjson import ndjson_lines
from eruca_query.exports.rows.pulled_rows import rows_of

_ROWS: Final = 4_096  # of one block, as in a broker's answer
_BODY_SIZE: Final = 200
_BATCH: Final = 1_000
_STREAMED: Final = 200_000
_ALL: Final = [column.name for column in EXPORT_COLUMNS]
_HOST: Final = Host.parse("127.0.0.1", 10_911)
_FORMS: Final = {
    "Arrow": (ARROW_MEDIA_TYPE, "none"),
    "Arrow, zstd": (ARROW_MEDIA_TYPE, "zstd"),
    "NDJSON": (NDJSON_MEDIA_TYPE, "none"),
}


def run(report: Report, seconds: float) -> None:
    """Measure every row."""
    _convert(report, seconds)
    asyncio.run(_stream(report))


def _convert(report: Report, seconds: float) -> None:
    """Measure without HTTP: records to bytes, by columns and one by one."""
    records = [_record(offset) for offset in range(_ROWS)]
    sizes = np.array([len(record) for record in records], np.int64)
    block = Block("broker-a", 0, 0, sizes, memoryview(b"".join(records)))
    made = rows_of(block, TOPIC, _ALL)
    batch = made.batch()
    encoder = ArrowEncoder(_ALL, "none")

    def to_arrow() -> None:
        encoder.rows(rows_of(block, TOPIC, _ALL), block.first(_ROWS))

    by_columns = _ns_per_row(to_arrow, seconds / 4)
    one_by_one = _ns_per_row(lambda: [_read_one(record) for record in records], seconds / 4)
    lines = _ns_per_row(lambda: ndjson_lines(batch, made.are_json()), seconds / 4)
    report.figure("records to an Arrow stream", f"{by_columns:.0f} ns a row")
    report.figure("records read one by one, to nothing", f"{one_by_one:.0f} ns a row")
    report.figure("a batch as NDJSON", f"{lines:.0f} ns a row more")
    report.ratio("export-columns", one_by_one / by_columns)


def _record(offset: int) -> bytes:
    properties = {KEYS: f"key-{offset}", UNIQ_KEY: f"{offset:032X}", TAGS: "AA", "region": "west"}
    return encode_record(
        Record(
            TOPIC,
            os.urandom(_BODY_SIZE),
            queue_offset=offset,
            log_offset=offset * 400,
            store_host=_HOST,
            properties=encode_properties(properties),
        ),
        with_checksum=True,
    )


def _read_one(raw: bytes) -> tuple[bytes, dict[str, str]]:
    record = decode_record(raw, check_crc=False)
    return record.body, record.property_map()


def _ns_per_row(work: Callable[[], object], seconds: float) -> float:
    """Return the least CPU time of some runs: a neighbour can only make a run slower."""
    work()
    best = float("inf")
    ends_at = time.process_time() + seconds
    while time.process_time() < ends_at:
        began = time.process_time()
        work()
        best = min(best, time.process_time() - began)
    return best / _ROWS * 1e9


async def _stream(report: Report) -> None:
    """Measure over HTTP, with the service's own cost; the reader drops the bytes."""
    async with LocalCluster(queries=1) as cluster:
        broker, query = cluster.broker_urls["broker-a"], cluster.query_urls[0]
        async with httpx.AsyncClient(trust_env=False, timeout=120) as http:
            put = await http.put(
                f"{broker}/v1/topics/{TOPIC}", json={"read_queue_count": 1, "write_queue_count": 1}
            )
            put.raise_for_status()
            await _fill(http, broker, int(broker.rpartition(":")[2]))
            await until_read(http, query)
            process_id = cluster.pid("query")
            assert process_id is not None
            await _read(http, query, *_FORMS["Arrow"])  # starts the workers
            before = private_memory(process_id)
            for name, (media_type, codec) in _FORMS.items():
                spent, began = cpu_seconds(process_id), time.perf_counter()
                size = await _read(http, query, media_type, codec)
                elapsed = time.perf_counter() - began
                cpu = (cpu_seconds(process_id) - spent) / _STREAMED * 1e9
                report.figure(
                    f"stream, {name}",
                    f"{_STREAMED / elapsed / 1e3:.0f} k rows/s, {cpu:.0f} ns of the service's CPU "
                    f"and {size / _STREAMED:.0f} bytes a row",
                )
            grown = (private_memory(process_id) - before) / 2**20
            report.ratio("export-memory", grown)


async def _fill(http: httpx.AsyncClient, broker: str, port: int) -> None:
    """Fill the queue with at least as many messages as will be read."""
    queues = f"{broker}/v1/topics/{TOPIC}/queues"
    while (await http.get(queues)).json()["queues"][0]["max_offset"] < _STREAMED:
        await asyncio.to_thread(run_load, port, [batch_request(_BATCH)], connections=2, seconds=0.5)


async def _read(http: httpx.AsyncClient, query: str, media_type: str, codec: str) -> int:
    size = 0
    async with http.stream(
        "GET",
        f"{query}/v1/exports/{TOPIC}/records",
        params={"range": f"broker-a/0:0-{_STREAMED}", "codec": codec},
        headers={"accept": media_type},
    ) as answer:
        answer.raise_for_status()
        async for piece in answer.aiter_raw():
            size += len(piece)
    return size
