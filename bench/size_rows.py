"""The read model at size: messages that are generated, so that no broker has to hold them.

The same projection writes the rows as in a query service. Its blocks are generated instead of read,
and one is prepared while the previous one is written. A query service then answers from these rows.
It cannot reach the broker, so bodies are missing from its answers, which say so.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import httpx

from bench.batches import TOPIC
from bench.generated_log import BLOCK_ROWS, PER_MS, GeneratedLog
from bench.read_model_size import (
    Progress,
    Sample,
    Span,
    compare_with_copy,
    disk,
    drops,
    look_up,
    pages_between,
    pages_to_the_end,
)
from bench.report import Report
from eruca.core.messages.log_block import LogBlock
from eruca_deploy.cluster import LocalCluster
from eruca_postgres.database import Database
from eruca_postgres.embedded import EmbeddedServer
from eruca_postgres.migrations import upgrade
from eruca_postgres.positions import write_position
from eruca_postgres.settings import sqlalchemy_url
from eruca_query.core.chunk_states import ChunkLimits
from eruca_query.projection.message_projection import (
    MessageProjection,
    ProjectionCounts,
    ReadBlock,
)
from eruca_query.projection.name_numbers import NameNumbers
from eruca_query.projection.settling import Settling
from eruca_query.projection.tables import SCHEMA
from eruca_query.settings import QuerySettings
from eruca_query.wiring import MIGRATIONS, chunk_limits

_ASKED: Final = 2_000  # different messages that are looked up
_WALKED_MAX: Final = 2_000_000  # rows; pages of more are read at some times only
_SPANS: Final = 10
_SPAN_MS: Final = 200


def run(report: Report, seconds: float, *, rows: int) -> None:
    """Measure every row, with *rows* messages."""
    with TemporaryDirectory(prefix="eruca-bench-") as directory:
        Path(directory).chmod(0o755)  # PostgreSQL runs as another user under root
        with EmbeddedServer(Path(directory) / "postgres") as server:
            upgrade(sqlalchemy_url(server.url), SCHEMA, MIGRATIONS)
            asyncio.run(_measure(report, seconds, GeneratedLog(TOPIC, rows), server.url))


async def _measure(report: Report, seconds: float, log: GeneratedLog, url: str) -> None:
    rate = await _fold(report, log, url, "filling")
    await asyncio.to_thread(compare_with_copy, report, url, rate)
    await asyncio.to_thread(disk, report, url, log.count)
    samples = [
        Sample(log.message_id(number), log.key(number))
        for number in range(0, log.count, max(log.count // _ASKED, 1))
    ][:_ASKED]
    async with (
        LocalCluster(queries=1, settings={"DATABASE_URL": url}) as cluster,
        httpx.AsyncClient(base_url=cluster.query_urls[0], trust_env=False, timeout=60) as query,
    ):
        [query_url] = cluster.query_urls
        await look_up(report, query_url, TOPIC, samples, rows=log.count, seconds=seconds)
        if log.count <= _WALKED_MAX:
            await pages_to_the_end(report, query, TOPIC, log.count)
        else:
            await pages_between(report, query, TOPIC, _spans(log), rows=log.count)
    await _fold(report, log, url, "rebuild")
    await drops(report, url)


def _spans(log: GeneratedLog) -> list[Span]:
    """Return spans of time throughout a log."""
    step_ms = (log.count // PER_MS - _SPAN_MS) // (_SPANS - 1)
    begins = [log.begin_ms + number * step_ms for number in range(_SPANS)]
    return [Span(begin, begin + _SPAN_MS, _SPAN_MS * PER_MS) for begin in begins]


async def _fold(report: Report, log: GeneratedLog, url: str, what: str) -> float:
    """Return the rows per second at which the rows are written from the log's beginning."""
    database = Database(sqlalchemy_url(url), SCHEMA, connections_max=3)
    limits: ChunkLimits = chunk_limits(QuerySettings())
    projection = MessageProjection(NameNumbers(), limits=limits, counts=ProjectionCounts())
    settling = Settling(database, asyncio.Lock())
    progress = Progress(report, what, log.count)

    def prepared(first: int) -> tuple[LogBlock, ReadBlock]:
        block = log.block(first)
        return block, projection.prepare(block)

    began = time.perf_counter()
    reading = asyncio.create_task(asyncio.to_thread(prepared, 0))
    for first in range(0, log.count, BLOCK_ROWS):
        block, read = await reading
        if first + BLOCK_ROWS < log.count:
            reading = asyncio.create_task(asyncio.to_thread(prepared, first + BLOCK_ROWS))
        async with database.transaction() as connection:
            then = await projection.fold_block(connection, block, read)
            await write_position(
                connection, block.broker_name, block.next_offset, end_offset=block.end_offset
            )
        if then is not None:
            then()
        await settling.settle(projection.take_unsettled())
        progress.show(first)
    await settling.finish()
    rate = log.count / (time.perf_counter() - began)
    await database.close()
    report.figure(f"{what} with {log.count:,} generated rows", f"{rate:,.0f} rows/s")
    return rate
