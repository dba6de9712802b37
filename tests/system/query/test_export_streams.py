"""Streams of exports: readers that leave or do not read, brokers that die, services that stop."""

from __future__ import annotations

import asyncio
import io
import os
import random
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import httpx
import pyarrow as pa
import pytest

import eruca
from eruca_query.exports.rows.encoders import ArrowEncoder
from eruca_query.exports.topic_brokers import STEP_SIZE
from support.exports import ExportService, export_service
from support.forked import started_by_fork
from support.in_process_cluster import InProcessCluster, in_process_cluster
from support.processes import ServiceProcess
from support.services import raw_connection
from support.waiting import until, until_told

pytestmark = pytest.mark.anyio

COUNT = 400
BODY_SIZE = 100_000  # bytes; all of them are several times what sockets take in
SMALL_BUFFER = 16 * 1024
WHOLE_BATCHES_SIZE = 2 * STEP_SIZE  # bytes behind which a stream's first batch surely is
END_OF_STREAM = b"\xff\xff\xff\xff\0\0\0\0"


async def fill(client: eruca.AsyncClient) -> None:
    """Put 40 MB into one queue."""
    await client.admin.create_topic("orders", queue_count=1)
    async with client.producer(compression_threshold_bytes=None) as producer:
        await producer.send_many([eruca.Message("orders", bytes(BODY_SIZE)) for _ in range(COUNT)])


def offsets_of(stream: bytes) -> list[int]:
    """Return the queue offsets of the rows in a stream that may be cut anywhere."""
    offsets: list[int] = []
    try:
        with pa.ipc.open_stream(io.BytesIO(stream)) as batches:
            for batch in batches:
                offsets += batch["queue_offset"].to_pylist()
    except (pa.ArrowInvalid, OSError):
        pass
    return offsets


def request_for(ranges: Sequence[str], *, keeps_alive: bool = False) -> bytes:
    query = "&".join(f"range={text}" for text in ranges)
    connection = "" if keeps_alive else "Connection: close\r\n"
    target = f"/v1/exports/orders/records?{query}"
    return f"GET {target} HTTP/1.1\r\nHost: localhost\r\n{connection}\r\n".encode()


class Before:
    """The state before some exports, to compare with the state after them."""

    def __init__(self, service: ExportService) -> None:
        self._service = service
        self._tasks = asyncio.all_tasks()
        self._connections = set(service.server.watch.connections)

    async def is_as_now(self) -> None:
        """Wait until no export runs any more, and nothing is left that one of them began."""
        service = self._service
        await until(lambda: service.exports.slots.running == 0)
        await until(lambda: set(service.server.watch.connections) <= self._connections)
        await until(lambda: not [t for t in asyncio.all_tasks() - self._tasks if is_of_exports(t)])


def is_of_exports(task: asyncio.Task[object]) -> bool:
    return "eruca_query/exports" in repr(task)


# --- Readers --------------------------------------------------------------------------------------


@asynccontextmanager
async def filled(
    directory: Path,
    **settings: object,
) -> AsyncIterator[tuple[InProcessCluster, ExportService]]:
    async with (
        in_process_cluster(directory, brokers=1) as cluster,
        export_service(cluster, **settings) as service,
    ):
        await fill(service.client)
        yield cluster, service


async def test_two_hundred_readers_that_leave_leave_nothing_behind(tmp_path: Path) -> None:
    async with filled(tmp_path, export_count_max=10) as (_, service):
        before = Before(service)
        chance = random.Random(7)

        async def read_some_and_leave() -> None:
            async with raw_connection(service.address, receive_buffer=SMALL_BUFFER) as (
                reader,
                writer,
            ):
                writer.write(request_for([f"broker-a/0:0-{COUNT}"]))
                await reader.read(chance.choice([1, 1_000, 100_000, 1_000_000]))
                if chance.random() < 0.5:
                    writer.transport.abort()

        for _ in range(20):
            await asyncio.gather(*(read_some_and_leave() for _ in range(10)))
            await until(lambda: service.exports.slots.running == 0)

        await before.is_as_now()
        whole = await service.records("orders", [f"broker-a/0:0-{COUNT}"])
        assert offsets_of(whole.content) == list(range(COUNT))


async def test_a_reader_that_leaves_before_the_first_row_leaves_nothing_behind(
    tmp_path: Path,
) -> None:
    async with filled(tmp_path) as (_, service):
        before = Before(service)
        for _ in range(20):
            async with raw_connection(service.address) as (_, writer):
                writer.write(request_for([f"broker-a/0:0-{COUNT}"]))
                await writer.drain()
                writer.transport.abort()

        await before.is_as_now()


async def test_a_reader_that_does_not_read_holds_a_few_pieces_and_is_cut_in_time(
    tmp_path: Path,
) -> None:
    async with (
        filled(tmp_path, unread_seconds=2) as (_, service),
        raw_connection(service.address, receive_buffer=SMALL_BUFFER) as (reader, writer),
    ):
        writer.write(request_for([f"broker-a/0:0-{COUNT}"]))
        assert (await reader.readexactly(12)) == b"HTTP/1.1 200"
        await until(lambda: service.is_unread())
        assert service.exports.slots.running == 1

        await until(lambda: service.exports.slots.running == 0)

        assert service.exports.slots.bytes < COUNT * BODY_SIZE / 2
        assert service.exports.slots.cut == 1


async def test_a_slow_reader_gets_everything(tmp_path: Path) -> None:
    async with filled(tmp_path) as (_, service):
        received = bytearray()
        async with service.http.stream(
            "GET",
            "/v1/exports/orders/records",
            params={"range": f"broker-a/0:0-{COUNT}", "codec": "zstd"},
        ) as answer:
            async for piece in answer.aiter_bytes():
                received += piece
                await asyncio.sleep(0)

        assert bytes(received).endswith(END_OF_STREAM)
        assert offsets_of(bytes(received)) == list(range(COUNT))


async def test_a_service_that_stops_cuts_its_exports_and_does_not_wait_for_their_readers(
    tmp_path: Path,
) -> None:
    async with AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(in_process_cluster(tmp_path, brokers=1))
        async with (
            export_service(cluster) as service,
            raw_connection(service.address, receive_buffer=SMALL_BUFFER) as (reader, writer),
        ):
            await fill(service.client)
            writer.write(request_for([f"broker-a/0:0-{COUNT}"]))
            await reader.readexactly(100_000)
            service.server.stop()
            await until(lambda: service.exports.slots.running == 0)
            rest = await reader.read()

        assert not rest.endswith(b"0\r\n\r\n")


# --- Brokers --------------------------------------------------------------------------------------


@asynccontextmanager
async def killable_broker(
    cluster: InProcessCluster, directory: Path
) -> AsyncIterator[ServiceProcess]:
    """Yield a broker that is a process of its own; over the same store each time."""
    settings = {
        "ERUCA_BROKER_NAME": "broker-k",
        "ERUCA_BROKER_NAMESRV_URLS": ";".join(cluster.namesrv_urls),
        "ERUCA_BROKER_STORE_DIR": str(directory / "broker-k"),
        "ERUCA_BROKER_SEGMENT_BYTES": str(64 * 1024**2),
        "ERUCA_BROKER_PORT": "0",
        "ERUCA_BROKER_LOG_STYLE": "json",
    }
    with started_by_fork("eruca_broker", settings) as process:
        await asyncio.to_thread(process.wait_until_listening)
        yield process


async def known(service: ExportService, url: str) -> None:
    """Return once the name server tells where the broker is."""
    await until_told(service.client.admin.brokers, lambda brokers: url in str(brokers))


async def read_until(stream: AsyncIterator[bytes], size: int, received: bytearray) -> None:
    while len(received) < size:
        received += await anext(stream)


async def read_while_it_dies(
    service: ExportService, broker: ServiceProcess, received: bytearray
) -> None:
    async with service.http.stream(
        "GET", "/v1/exports/orders/records", params={"range": f"broker-k/0:0-{COUNT}"}
    ) as answer:
        assert answer.headers["eruca-export-rows"] == str(COUNT)
        pieces = answer.aiter_raw(SMALL_BUFFER)
        await read_until(pieces, WHOLE_BATCHES_SIZE, received)
        await asyncio.to_thread(broker.stop, signal.SIGKILL)
        await read_until(pieces, COUNT * BODY_SIZE, received)


async def test_a_broker_that_dies_ends_the_stream_short_and_the_rest_is_read_later(
    tmp_path: Path,
) -> None:
    async with (
        in_process_cluster(tmp_path, brokers=0) as cluster,
        export_service(cluster, export_patience_seconds=0) as service,
    ):
        received = bytearray()
        async with killable_broker(cluster, tmp_path) as broker:
            await known(service, broker.url)
            await fill(service.client)
            with pytest.raises(httpx.RemoteProtocolError):
                await read_while_it_dies(service, broker, received)

        beginning = offsets_of(bytes(received))
        assert beginning == list(range(len(beginning)))
        assert 0 < len(beginning) < COUNT
        assert not received.endswith(END_OF_STREAM)
        assert service.exports.slots.cut == 1
        refused = await service.records("orders", [f"broker-k/0:{len(beginning)}-{COUNT}"])
        assert (refused.status_code, refused.json()["code"]) == (503, "broker-unreachable")
        assert "broker-k" in refused.json()["detail"]

        async with killable_broker(cluster, tmp_path) as broker:
            await known(service, broker.url)
            rest = await service.records("orders", [f"broker-k/0:{len(beginning)}-{COUNT}"])

        assert beginning + offsets_of(rest.content) == list(range(COUNT))


@pytest.mark.parametrize("by", [signal.SIGKILL, signal.SIGTERM])
async def test_a_broker_that_restarts_in_time_is_waited_for_and_nothing_is_missing(
    tmp_path: Path, by: signal.Signals
) -> None:
    """One that is told to stop takes leave of the name servers, and with it goes its topic."""
    async with (
        in_process_cluster(tmp_path, brokers=0) as cluster,
        export_service(cluster, export_patience_seconds=60) as service,
    ):
        received = bytearray()
        async with AsyncExitStack() as stack:
            broker = await stack.enter_async_context(killable_broker(cluster, tmp_path))
            await known(service, broker.url)
            await fill(service.client)
            async with service.http.stream(
                "GET", "/v1/exports/orders/records", params={"range": f"broker-k/0:0-{COUNT}"}
            ) as answer:
                pieces = answer.aiter_raw(SMALL_BUFFER)
                await read_until(pieces, WHOLE_BATCHES_SIZE, received)
                await asyncio.to_thread(broker.stop, by)
                await stack.enter_async_context(killable_broker(cluster, tmp_path))
                async for piece in pieces:
                    received += piece

        assert offsets_of(bytes(received)) == list(range(COUNT))
        assert bytes(received).endswith(END_OF_STREAM)


async def test_a_broker_that_is_stuck_keeps_nobody_waiting_who_wants_another_s_messages(
    tmp_path: Path,
) -> None:
    async with (
        in_process_cluster(tmp_path, brokers=1) as cluster,
        export_service(cluster, export_worker_count=1) as service,
        killable_broker(cluster, tmp_path) as broker,
    ):
        await known(service, broker.url)
        await service.client.admin.create_topic("orders", queue_count=1)
        async with service.client.producer(compression_threshold_bytes=None) as producer:
            for name, count in (("broker-a", 1), ("broker-k", COUNT)):
                queue = eruca.MessageQueue("orders", name, 0)
                messages = [eruca.Message("orders", bytes(BODY_SIZE)) for _ in range(count)]
                await producer.send_many(messages, queue=queue)
        received = bytearray()
        async with service.http.stream(
            "GET", "/v1/exports/orders/records", params={"range": f"broker-k/0:0-{COUNT}"}
        ) as answer:
            pieces = answer.aiter_raw(SMALL_BUFFER)
            await read_until(pieces, WHOLE_BATCHES_SIZE, received)
            os.kill(broker.pid, signal.SIGSTOP)
            reading = asyncio.create_task(read_until(pieces, 2 * COUNT * BODY_SIZE, received))

            for _ in range(20):
                other = await service.records("orders", ["broker-a/0:0-1"])
                assert offsets_of(other.content) == [0]

            assert not reading.done()
            os.kill(broker.pid, signal.SIGCONT)
            with pytest.raises(StopAsyncIteration):
                await reading
        assert offsets_of(bytes(received)) == list(range(COUNT))


def test_what_was_cut_between_two_batches_has_no_end_marker() -> None:
    """The marker is the encoder's last word, and no batch ends in it by chance."""
    encoder = ArrowEncoder(["queue_offset"], "none")

    assert encoder.end().endswith(END_OF_STREAM)
