"""Workers of exports: processes that may die, of a service that may die."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import httpx
import psutil
import pyarrow as pa
import pytest
from structlog.contextvars import merge_contextvars
from structlog.testing import capture_logs

import eruca
from support.exports import ExportService, export_process, export_service
from support.in_process_cluster import in_process_cluster
from support.limits import open_files_limit
from support.processes import START_SECONDS
from support.services import raw_connection
from support.waiting import until

pytestmark = pytest.mark.anyio

COUNT = 200
BODY_SIZE = 100_000  # bytes; all of them are several times what sockets take in
ALL = f"broker-a/0:0-{COUNT}"


@asynccontextmanager
async def filled(
    directory: Path, *, worker_count: int = 1, patience_seconds: float = 0
) -> AsyncIterator[ExportService]:
    async with (
        in_process_cluster(directory, brokers=1) as cluster,
        export_service(
            cluster,
            export_worker_count=worker_count,
            export_patience_seconds=patience_seconds,
        ) as service,
    ):
        await service.client.admin.create_topic("orders", queue_count=1)
        async with service.client.producer(compression_threshold_bytes=None) as producer:
            await producer.send_many(
                [eruca.Message("orders", bytes(BODY_SIZE)) for _ in range(COUNT)]
            )
        yield service


async def offsets(service: ExportService) -> list[int]:
    rows: pa.Table = await service.table("orders", [ALL], columns="queue_offset,body")
    found: list[int] = rows["queue_offset"].to_pylist()
    return found


async def test_workers_are_started_by_the_first_export_and_stay(tmp_path: Path) -> None:
    async with filled(tmp_path) as service:
        assert service.exports.workers.process_ids == []
        assert await offsets(service) == list(range(COUNT))
        started = service.exports.workers.process_ids

        await offsets(service)

        assert service.exports.workers.process_ids == started
        assert len(started) == 1
    assert not psutil.pid_exists(started[0])


async def test_more_exports_than_workers_take_turns(tmp_path: Path) -> None:
    async with filled(tmp_path) as service:
        found = await asyncio.gather(*(offsets(service) for _ in range(6)))

        assert found == [list(range(COUNT))] * 6
        assert service.exports.workers.step_count == 0


async def test_a_reader_that_does_not_read_keeps_no_worker(tmp_path: Path) -> None:
    async with (
        filled(tmp_path) as service,
        raw_connection(service.address, receive_buffer=16 * 1024) as (reader, writer),
    ):
        target = f"/v1/exports/orders/records?range={ALL}"
        writer.write(f"GET {target} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        assert await reader.readexactly(12) == b"HTTP/1.1 200"
        await until(lambda: service.is_unread())

        assert await offsets(service) == list(range(COUNT))
        await until(lambda: service.exports.slots.running == 1)


async def test_a_worker_that_died_between_two_steps_is_replaced(tmp_path: Path) -> None:
    async with filled(tmp_path, patience_seconds=60) as service:
        await offsets(service)
        [first] = service.exports.workers.process_ids
        with capture_logs(processors=[merge_contextvars]) as logs:
            os.kill(first, signal.SIGKILL)
            await until(lambda: bool(logs))

        assert await offsets(service) == list(range(COUNT))
        [second] = service.exports.workers.process_ids

    assert second != first
    assert [entry["event"] for entry in logs] == ["an export worker died"]
    assert "request_id" not in logs[0]  # it was at nobody's rows


@pytest.mark.parametrize("patience_seconds", [0, 60])
async def test_a_worker_that_dies_in_a_step_is_told_or_waited_for(
    tmp_path: Path, patience_seconds: float
) -> None:
    async with filled(tmp_path, patience_seconds=patience_seconds) as service:
        await offsets(service)
        [worker] = service.exports.workers.process_ids
        os.kill(worker, signal.SIGSTOP)
        asking = asyncio.create_task(service.records("orders", [ALL]))
        await until(lambda: service.exports.workers.step_count >= 1)
        os.kill(worker, signal.SIGKILL)
        answer = await asking

        if patience_seconds:
            assert answer.status_code == 200
        else:
            assert (answer.status_code, answer.json()["code"]) == (503, "unavailable")
            assert "worker" in answer.json()["detail"]
            assert "retry-after" in answer.headers
        assert await offsets(service) == list(range(COUNT))


async def test_a_worker_that_cannot_be_started_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with filled(tmp_path) as service:
        with monkeypatch.context() as patched:
            patched.setattr(sys, "executable", str(tmp_path / "nothing"))
            refused = await service.records("orders", [ALL])
        assert refused.status_code == 503
        assert "no worker can be started" in refused.json()["detail"]

        assert await offsets(service) == list(range(COUNT))


async def test_a_worker_for_which_no_file_may_be_opened_is_told(tmp_path: Path) -> None:
    async with filled(tmp_path) as service:
        await service.plan("orders")  # so that all else has its connection
        with open_files_limit(1):
            refused = await service.records("orders", [ALL])
        assert (refused.status_code, refused.json()["code"]) == (503, "unavailable")
        assert "no worker can be started" in refused.json()["detail"]

        assert await offsets(service) == list(range(COUNT))


async def test_an_interrupt_from_the_terminal_is_the_service_s_to_act_on(tmp_path: Path) -> None:
    async with filled(tmp_path) as service:
        await offsets(service)
        [worker] = service.exports.workers.process_ids
        os.kill(worker, signal.SIGINT)

        assert await offsets(service) == list(range(COUNT))
        assert service.exports.workers.process_ids == [worker]


@pytest.mark.parametrize("by", [signal.SIGKILL, signal.SIGTERM])
async def test_a_service_that_ends_leaves_no_worker(tmp_path: Path, by: signal.Signals) -> None:
    async with AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(in_process_cluster(tmp_path, brokers=1))
        async with eruca.AsyncClient(cluster.namesrv_urls) as client:
            await client.admin.create_topic("orders", queue_count=1)
            async with client.producer() as producer:
                await producer.send(eruca.Message("orders", b"body"))
        service = await stack.enter_async_context(export_process(cluster))
        async with httpx.AsyncClient(base_url=service.url) as http:
            answer = await http.get("/v1/exports/orders/records?range=broker-a/0:0-1")
            assert answer.status_code == 200
        workers = psutil.Process(service.pid).children()
        assert workers

        await asyncio.to_thread(service.stop, by)

        _, alive = await asyncio.to_thread(psutil.wait_procs, workers, START_SECONDS)
        assert alive == []
