"""Single records whose heads repeat get, byte for byte, the answers that they get as exchanges."""

from __future__ import annotations

import asyncio
import errno
import json
import re
import ssl
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Final

import pytest

from eruca.contract.errors import DiskFullError
from eruca.contract.records import RecordLayout, SysFlag, decode_record
from eruca.contract.topics import TopicSettings
from eruca.contract.wire import RECORDS_MEDIA_TYPE, decode_pull
from eruca_broker.app import create_app
from eruca_broker.processors.budgets import SendBudget
from eruca_broker.processors.send_message import Sender
from eruca_broker.processors.topics import Topics
from eruca_broker.settings import BrokerSettings
from eruca_broker.store.message_store import MessageStore
from eruca_chassis.app import ServiceApp
from eruca_chassis.connections.gathered import GatheredRequest
from support.authority import Authority
from support.brokers import batch, record, with_field
from support.exchanges import answer_of
from support.services import raw_connection, serving

pytestmark = pytest.mark.anyio

SEND: Final = (
    b"POST /v1/topics/%b/queues/%d/records HTTP/1.1\r\nHost: localhost\r\nContent-Type: %b\r\n"
    b"Content-Length: %d\r\n%b\r\n%b"
)
NAMED: Final = b"X-Request-Id: named\r\n"  # such heads are not cached, so they are never gathered
CHANGING: Final = re.compile(
    rb'"(queue_offset|log_offset|stored_at_ms)":\d+|"(request_id|instance)":"[^"]*"'
)
Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


def request(
    body: bytes, header: bytes = b"", *, topic: bytes = b"orders", queue_id: int = 1
) -> bytes:
    return SEND % (topic, queue_id, RECORDS_MEDIA_TYPE.encode(), len(body), header, body)


def single(number: int = 0, *, queue_id: int = 1, **fields: str) -> bytes:
    return batch([record("orders", b"%08d" % number, queue_id=queue_id, **fields)])


@asynccontextmanager
async def served(
    directory: Path, **settings: object
) -> AsyncIterator[tuple[ServiceApp, tuple[str, int]]]:
    chosen = {"namesrv_urls": "", "segment_bytes": 1 << 20, "store_dir": directory, "port": 0}
    options = BrokerSettings.model_validate(chosen | settings)
    app = create_app(options)
    async with serving(app, options) as (_, address):
        yield app, address


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[tuple[ServiceApp, tuple[str, int]]]:
    async with served(tmp_path / "store") as served_broker:
        yield served_broker


@pytest.fixture
def gathered(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Return a list of the requests that are gathered from now on."""
    seen: list[bytes] = []
    take = GatheredRequest.take

    def seeing(self: GatheredRequest, data: bytes) -> bool:
        is_taken = take(self, data)
        if is_taken:
            seen.append(data)
        return is_taken

    monkeypatch.setattr(GatheredRequest, "take", seeing)
    return seen


async def answered(connection: Connection, sent: bytes) -> tuple[int, list[str], bytes]:
    """Return an answer's status, the names of its headers, and its body but for what changes."""
    reader, writer = connection
    writer.write(sent)
    status, headers, body = await answer_of(reader)
    return status, list(headers), CHANGING.sub(b"", body)


async def stored_bodies(connection: Connection, queue_id: int = 1) -> list[bytes]:
    """Return the bodies of a queue's messages, in their order."""
    reader, writer = connection
    path = f"/v1/topics/orders/queues/{queue_id}/messages?offset=0&count_max=4096&bytes_max=8000000"
    writer.write(
        f"GET {path} HTTP/1.1\r\nHost: localhost\r\nAccept: {RECORDS_MEDIA_TYPE}\r\n\r\n".encode()
    )
    pulled = decode_pull((await answer_of(reader))[2])
    bodies, position = [], 0
    for size in pulled.sizes:
        bodies.append(decode_record(pulled.records, position).body)
        position += size
    return bodies


DAMAGED: Final = {
    "plain": single(),
    "its CRC": single().replace(b"00000000", b"00000001"),
    "its queue": with_field(single(), 20 + RecordLayout.QUEUE_ID, b"\0\0\0\7"),
    "its topic": single().replace(b"\6orders", b"\6ordert"),
    "its flag": with_field(single(), 20 + RecordLayout.SYS_FLAG, b"\0\0\0\x08"),
    "its size": with_field(single(), 16, b"\0\0\0\7"),
    "a delay": single(properties="DELAY\x013\x02"),
    "its id": single(properties="UNIQ_KEY\x01..\x02"),
    "a key that is no text": single(properties="KEYS\x01\x02"),
    "room for IPv6": with_field(
        single(), 20 + RecordLayout.SYS_FLAG, int(SysFlag.BORN_HOST_V6).to_bytes(4)
    ),
    "a piece": single()[:30],
}


@pytest.mark.parametrize("body", DAMAGED.values(), ids=DAMAGED.keys())
async def test_gathered_or_not_the_answer_is_the_same(
    broker: tuple[ServiceApp, tuple[str, int]], gathered: list[bytes], body: bytes
) -> None:
    app, address = broker
    async with raw_connection(address) as connection:
        await answered(connection, request(single(), NAMED))  # the topic exists now
        as_exchange = await answered(connection, request(body, NAMED))
        assert await answered(connection, request(body)) == as_exchange  # its head is learnt
        assert not gathered

        assert await answered(connection, request(body)) == as_exchange
        assert gathered == [request(body)]
    assert app.parts[SendBudget].used == 0


async def test_one_that_is_invalid_does_not_harm_those_beside_it(
    broker: tuple[ServiceApp, tuple[str, int]], gathered: list[bytes]
) -> None:
    app, address = broker
    counts = app.parts[Sender].counts
    async with AsyncExitStack() as stack:
        connections = [await stack.enter_async_context(raw_connection(address)) for _ in range(16)]
        for connection in connections:
            for _ in range(2):
                assert (await answered(connection, request(single())))[0] == 201
        gathered.clear()
        before, requests = len(await stored_bodies(connections[0])), counts.requests
        bodies = [single(number) for number in range(16)]
        bodies[5] = bodies[5].replace(b"00000005", b"00000004")

        answers = await asyncio.gather(
            *(
                answered(connection, request(body))
                for connection, body in zip(connections, bodies, strict=True)
            )
        )

        statuses = [status for status, _, _ in answers]
        assert statuses == [400 if number == 5 else 201 for number in range(16)]
        assert len(gathered) == 16
        stored = await stored_bodies(connections[0])
        assert sorted(stored[before:]) == [b"%08d" % n for n in range(16) if n != 5]
        assert counts.requests == requests + 15


@pytest.mark.parametrize("flush_mode", ["async", "sync"])
async def test_pipelined_records_keep_their_order_and_their_answers(
    tmp_path: Path, gathered: list[bytes], flush_mode: str
) -> None:
    async with (
        served(tmp_path / "store", flush_mode=flush_mode) as (app, address),
        raw_connection(address) as connection,
    ):
        reader, writer = connection
        for _ in range(2):
            await answered(connection, request(single()))
        offsets = []
        for number in range(1, 61):
            writer.write(request(single(number)))
            if number % 7 == 0:
                await asyncio.sleep(0)  # so that some come together and some behind
        for _ in range(60):
            offsets.append(json.loads((await answer_of(reader))[2])["queue_offset"])

        assert offsets == [*range(2, 62)]
        assert (await stored_bodies(connection))[2:] == [b"%08d" % n for n in range(1, 61)]
        assert gathered
        assert app.parts[SendBudget].used == 0


async def test_over_tls_they_are_gathered_and_answered_alike(
    tmp_path: Path, gathered: list[bytes]
) -> None:
    authority = Authority(tmp_path)
    pair = authority.pair("127.0.0.1")
    context = ssl.create_default_context(cafile=str(authority.ca_file))
    async with served(tmp_path / "store", tls_cert_file=pair.cert, tls_key_file=pair.key) as (
        app,
        address,
    ):
        connection = await asyncio.open_connection(*address, ssl=context)
        for _ in range(3):
            as_exchange = await answered(connection, request(single(), NAMED))
            assert await answered(connection, request(single())) == as_exchange

        assert as_exchange[0] == 201
        assert gathered
        assert await stored_bodies(connection) == [b"%08d" % 0] * 6
        assert app.parts[SendBudget].used == 0
        connection[1].close()
        await connection[1].wait_closed()


async def test_a_topic_that_is_gone_is_refused_as_ever(
    tmp_path: Path, gathered: list[bytes]
) -> None:
    async with (
        served(tmp_path / "store", auto_create_topics=False) as (app, address),
        raw_connection(address) as connection,
    ):
        topics = app.parts[Topics]
        await topics.put("orders", TopicSettings())
        for _ in range(3):
            assert (await answered(connection, request(single())))[0] == 201
        await topics.delete("orders")
        gathered.clear()

        again = await answered(connection, request(single()))

        assert again[0] == 404
        assert len(gathered) == 1
        assert await answered(connection, request(single(), NAMED)) == again


async def test_a_queue_that_does_not_exist_is_refused_as_ever(
    broker: tuple[ServiceApp, tuple[str, int]], gathered: list[bytes]
) -> None:
    _, address = broker
    async with raw_connection(address) as connection:
        for _ in range(3):
            await answered(connection, request(single(queue_id=7), queue_id=7))
        refused = await answered(connection, request(single(queue_id=7), NAMED, queue_id=7))
        assert refused[0] == 404
        gathered.clear()

        again = await answered(connection, request(single(queue_id=7), queue_id=7))
        assert again == refused
        assert len(gathered) == 1


async def test_a_store_that_refuses_writes_refuses_a_gathered_one_with_the_same_words(
    broker: tuple[ServiceApp, tuple[str, int]], gathered: list[bytes]
) -> None:
    app, address = broker
    async with raw_connection(address) as connection:
        for _ in range(3):
            assert (await answered(connection, request(single())))[0] == 201
        gathered.clear()
        writer = app.parts[MessageStore]._writer
        writer.refusal = DiskFullError("the disk is full")

        refused = await answered(connection, request(single(), NAMED))

        assert refused[0] == 503
        assert await answered(connection, request(single())) == refused
        assert len(gathered) == 1
        writer.refusal = None
        assert (await answered(connection, request(single())))[0] == 201


async def test_a_write_that_fails_is_the_answer_of_each(
    broker: tuple[ServiceApp, tuple[str, int]],
    gathered: list[bytes],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A disk that fails in the very write of some requests cannot be had in time."""
    app, address = broker
    async with raw_connection(address) as connection:
        for _ in range(3):
            assert (await answered(connection, request(single())))[0] == 201
        store = app.parts[MessageStore]
        before = store.state, len(await stored_bodies(connection))

        def full(_accepted: object) -> None:
            raise OSError(errno.ENOSPC, "no space left on device")

        with monkeypatch.context() as patched:
            patched.setattr(store._writer, "_write_log", full)
            status, _, body = await answered(connection, request(single()))

        assert (status, b"disk-full" in body) == (503, True)
        assert len(await stored_bodies(connection)) == before[1]
        assert app.parts[SendBudget].used == 0
