"""Figures of a read model of any size: look-ups, pages to the end, disk, the drop of a chunk."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Final, NamedTuple
from urllib.parse import urlsplit

import httpx
import psycopg
from psycopg.sql import SQL, Identifier

from bench.load import request, run_load
from bench.report import Report
from eruca_chassis.clock import SystemClock
from eruca_postgres.database import Database
from eruca_postgres.settings import sqlalchemy_url
from eruca_query.projection.tables import MESSAGE_INDEXES, SCHEMA
from eruca_query.projection.upkeep import Upkeep

_PAGE: Final = 1_000
_PROGRESS_SECONDS: Final = 5.0
_RETENTION_MS: Final = 7 * 24 * 3_600_000
_COPIED_MAX: Final = 1_000_000  # rows that are copied again, for comparison: those of a chunk
_ROWS: Final = "COPY (SELECT * FROM messages LIMIT {}) TO STDOUT (FORMAT binary)"
_DISK: Final = (
    "SELECT sum(pg_table_size(inhrelid)), sum(pg_indexes_size(inhrelid)), count(*) "
    "FROM pg_inherits WHERE inhparent = 'messages'::regclass"
)
_FIRST: Final = "SELECT chunk, row_count FROM chunks WHERE NOT is_open ORDER BY chunk LIMIT 1"

Connection = psycopg.Connection[tuple[object, ...]]


class Sample(NamedTuple):
    """A message that will be looked up."""

    message_id: str
    key: str


class Span(NamedTuple):
    """A span of time, in ms since the epoch, and the number of messages that were stored in it."""

    from_ms: int
    to_ms: int
    messages: int


class Progress:
    """Shows from time to time how far a long measurement is."""

    def __init__(self, report: Report, what: str, total: int) -> None:
        self._report = report
        self._what = what
        self._total = total
        self._count = 0
        self._began = self._shown_at = time.perf_counter()

    def add(self, count: int) -> None:
        """Add *count*, and show all, unless that was done a moment ago."""
        self._count += count
        self.show(self._count)

    def show(self, count: int) -> None:
        """Show *count*, unless that was done a moment ago."""
        now = time.perf_counter()
        if now < self._shown_at + _PROGRESS_SECONDS:
            return
        self._shown_at = now
        rate = count / (now - self._began)
        self._report.console.print(
            f"  [dim]{self._what}: {count:,} of {self._total:,}, {rate:,.0f} a second[/dim]"
        )


def connected(url: str) -> Connection:
    """Return a connection that sees the read model's tables."""
    return psycopg.connect(url, options=f"-c search_path={SCHEMA}", autocommit=True)


def compare_with_copy(report: Report, url: str, rate: float) -> None:
    """Compare with COPY of the same rows: into a bare table, and into one with the same indexes."""
    with connected(url) as connection:
        with connection.cursor().copy(SQL(_ROWS).format(_COPIED_MAX)) as copied:
            pieces = [bytes(piece) for piece in copied]
        connection.execute("CREATE TABLE plain (LIKE messages)")
        connection.execute("CREATE TABLE indexed (LIKE messages)")
        for definition in MESSAGE_INDEXES.values():
            connection.execute(SQL("CREATE INDEX ON indexed {}").format(SQL(definition)))
        plain = _copy_rate(connection, "plain", pieces)
        indexed = _copy_rate(connection, "indexed", pieces)
        connection.execute("DROP TABLE plain, indexed")
    report.figure("COPY of the same rows, no index", f"{plain:,.0f} rows/s")
    report.figure("COPY of the same rows, the same indexes", f"{indexed:,.0f} rows/s")
    report.ratio("projection", rate / plain)
    report.ratio("projection-indexed", rate / indexed)


def _copy_rate(connection: Connection, table: str, pieces: Sequence[bytes]) -> float:
    began = time.perf_counter()
    cursor = connection.cursor()
    with cursor.copy(SQL("COPY {} FROM STDIN (FORMAT binary)").format(Identifier(table))) as copied:
        for piece in pieces:
            copied.write(piece)
    return cursor.rowcount / (time.perf_counter() - began)


async def look_up(
    report: Report,
    query_url: str,
    topic: str,
    samples: Sequence[Sample],
    *,
    rows: int,
    seconds: float,
) -> None:
    """Measure one client's look-ups: by id with the body, and by key."""
    port = urlsplit(query_url).port
    assert port is not None
    paths = {
        "id": [f"/v1/messages/{sample.message_id}" for sample in samples],
        "key": [f"/v1/messages?topic={topic}&key={sample.key}" for sample in samples],
    }
    for what, targets in paths.items():
        requests = [request("GET", target) for target in targets]
        load = await asyncio.to_thread(run_load, port, requests, connections=1, seconds=seconds)
        assert load.errors == 0, f"{load.errors} of {load.requests} answers are no 2xx"
        report.figure(
            f"look-up by {what} among {rows:,}",
            f"p50 {load.percentile(0.5) / 1e3:.1f} ms, p99 {load.percentile(0.99) / 1e3:.1f} ms",
        )


async def pages_to_the_end(
    report: Report, query: httpx.AsyncClient, topic: str, messages: int
) -> None:
    """Measure pages from the newest message to the oldest; each must be there, once, in order."""
    progress = Progress(report, "pages", messages)
    latencies = await _pages(query, {"topic": topic}, messages, progress)
    _tell(report, f"pages of {_PAGE:,} to the end of {messages:,}", messages, latencies)


async def pages_between(
    report: Report, query: httpx.AsyncClient, topic: str, spans: Sequence[Span], *, rows: int
) -> None:
    """Measure the pages of some spans of time, each as :func:`pages_to_the_end` does."""
    messages = sum(span.messages for span in spans)
    progress = Progress(report, "pages", messages)
    latencies: list[float] = []
    for span in spans:
        params = {"topic": topic, "since": _moment(span.from_ms), "until": _moment(span.to_ms)}
        latencies += await _pages(query, params, span.messages, progress)
    _tell(report, f"pages of {_PAGE:,} at {len(spans)} times of {rows:,}", messages, latencies)


async def _pages(
    query: httpx.AsyncClient, params: Mapping[str, str], messages: int, progress: Progress
) -> list[float]:
    """Return the seconds that each page took."""
    latencies: list[float] = []
    seen, last, cursor = 0, None, None
    while True:
        began = time.perf_counter()
        asked: dict[str, str | int] = {**params, "limit": _PAGE}
        if cursor is not None:
            asked["cursor"] = cursor
        page = (await query.get("/v1/messages", params=asked)).raise_for_status().json()
        latencies.append(time.perf_counter() - began)
        offsets = [message["log_offset"] for message in page["messages"]]
        assert offsets == sorted(offsets, reverse=True), "a page is out of order"
        assert last is None or not offsets or offsets[0] < last, "pages overlap"
        seen, last = seen + len(offsets), offsets[-1] if offsets else last
        progress.add(len(offsets))
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert seen == messages, f"the pages have {seen} of {messages} messages"
    return latencies


def _tell(report: Report, what: str, messages: int, latencies: list[float]) -> None:
    seconds = sum(latencies)
    latencies.sort()
    report.figure(
        what,
        f"{messages / seconds:,.0f} messages/s, p50 {latencies[len(latencies) // 2] * 1e3:.0f} ms, "
        f"p99 {latencies[int(len(latencies) * 0.99)] * 1e3:.0f} ms",
    )


def _moment(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds")


def disk(report: Report, url: str, rows: int) -> None:
    """Measure the rows' disk."""
    with connected(url) as connection:
        found = connection.execute(_DISK).fetchone()
    assert found is not None
    of_rows, of_indexes, chunks = (int(str(value)) for value in found)
    report.figure(
        f"disk of a row, {chunks} chunks",
        f"{of_rows / rows:.0f} bytes, and {of_indexes / rows:.0f} of indexes",
    )


async def drops(report: Report, url: str) -> None:
    """Measure how chunks of a replaced build are dropped, beside the deletion of one's rows."""
    with connected(url) as connection, connection.transaction(force_rollback=True):
        found = connection.execute(_FIRST).fetchone()
        if found is not None:
            began = time.perf_counter()
            connection.execute(SQL("DELETE FROM {}").format(Identifier(f"messages_{found[0]}")))
            deleted = f"{time.perf_counter() - began:.2f} s for {found[1]:,} rows"
            report.figure("deletion of a chunk's rows, without its vacuum", deleted)
    database = Database(sqlalchemy_url(url), SCHEMA, connections_max=2)
    upkeep = Upkeep(database, SystemClock(), retention_ms=_RETENTION_MS)
    began = time.perf_counter()
    await upkeep.step()
    seconds = time.perf_counter() - began
    await database.close()
    if upkeep.dropped_count:
        report.figure(
            f"drop of {upkeep.dropped_count} chunks", f"{seconds / upkeep.dropped_count:.3f} s each"
        )
