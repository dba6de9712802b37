"""Quotas at the doors of a real broker: hot requests, ordinary ones, connections, the SDK."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

import eruca
from eruca.contract.errors import QuotaExceededError
from eruca_broker.app import create_app
from eruca_broker.settings import BrokerSettings
from eruca_namesrv.app import create_app as create_namesrv
from eruca_namesrv.settings import NamesrvSettings
from support.brokers import RECORDS, batch, record
from support.rules import bearer, key_of, write_rules
from support.services import serving
from support.waiting import until_told

pytestmark = pytest.mark.anyio

OWNER: Final = "user:owner"
SHOP: Final = "user:shop"
OTHER: Final = "user:other"
BODY: Final = b'{"body": {"text": "a"}}'


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def quota(**limits: float) -> str:
    lines = [f"{name} = {value}" for name, value in limits.items()]
    return "\n".join(["[[quotas]]", f'to = ["{SHOP}"]', *lines]) + "\n"


def write(tmp_path: Path, more: str) -> Path:
    return write_rules(
        tmp_path / "rules.toml",
        {"allow": ["produce", "consume"], "on": ["topic:orders"], "to": [SHOP, OTHER]},
        roles={"administrator": [OWNER]},
        more=more,
    )


class Broker:
    def __init__(self, address: tuple[str, int], client: httpx.AsyncClient) -> None:
        self.address = address
        self.client = client

    async def metric(self, name: str) -> float:
        text = (await self.client.get("/metrics", headers=bearer(OWNER))).text
        return sum(float(value) for value in re.findall(rf"^{name}\{{.*\}} (.*)$", text, re.M))


@asynccontextmanager
async def broker_with(tmp_path: Path, more: str, **settings: Any) -> AsyncIterator[Broker]:  # noqa: ANN401
    path = write(tmp_path, more)
    made = BrokerSettings.model_validate(
        {
            "store_dir": tmp_path / "store",
            "segment_bytes": 16 * 1024**2,
            "ERUCA_AUTH_FILE": str(path),
            "namesrv_urls": "",
            **settings,
        }
    )
    async with (
        serving(create_app(made), made) as (_, (host, port)),
        httpx.AsyncClient(base_url=f"http://{host}:{port}", timeout=60) as client,
    ):
        created = await client.put(
            "/v1/topics/orders",
            json={"read_queue_count": 1, "write_queue_count": 1},
            headers=bearer(OWNER),
        )
        assert created.is_success, created.text
        yield Broker((host, port), client)


class Wire:
    """A connection, request by request."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def to(cls, broker: Broker) -> Wire:
        return cls(*await asyncio.open_connection(*broker.address))

    async def ask(self, head: bytes, body: bytes = b"") -> tuple[int, bytes, bytes]:
        self._writer.write(head + b"\r\n" + body)
        return await self.answer()

    async def answer(self) -> tuple[int, bytes, bytes]:
        head = await self._reader.readuntil(b"\r\n\r\n")
        length = re.search(rb"content-length: (\d+)", head)
        body = b"" if length is None else await self._reader.readexactly(int(length[1]))
        return int(head.split(b" ", 2)[1]), head, body

    def close(self) -> None:
        self._writer.close()


def sending(principal: str, *, version: bytes = b"1.1", size: int = len(BODY)) -> bytes:
    return (
        b"POST /v1/topics/orders/messages HTTP/%b\r\nhost: localhost\r\nconnection: keep-alive\r\n"
        b"authorization: Bearer %b\r\ncontent-type: application/json\r\ncontent-length: %d\r\n"
        % (version, key_of(principal).encode(), size)
    )


def listing(principal: str) -> bytes:
    return (
        b"GET /v1/topics HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer %b\r\n"
        % key_of(principal).encode()
    )


async def test_a_hot_request_beyond_the_rate_is_429_with_the_headers_of_the_draft(
    tmp_path: Path,
) -> None:
    async with broker_with(tmp_path, quota(requests_per_second=0.01)) as broker:
        wire = await Wire.to(broker)
        statuses = [(await wire.ask(sending(SHOP), BODY))[0] for _ in range(3)]
        _, head, body = await wire.ask(sending(SHOP), BODY)
        others = [(await wire.ask(sending(OTHER), BODY))[0] for _ in range(20)]
        wire.close()

    assert statuses == [201, 429, 429]
    assert b'ratelimit-policy: "requests_per_second";q=1;w=100\r\n' in head
    assert re.search(rb'ratelimit: "requests_per_second";r=0;t=\d+\r\n', head)
    retry_after = re.search(rb"retry-after: (\d+)", head)
    assert retry_after is not None
    assert 0 < int(retry_after[1]) <= 100
    assert b'"code":"quota-exceeded"' in body
    assert b'"quota":"requests_per_second","limit":0.01' in body
    assert others == [201] * 20


async def test_records_that_are_gathered_count_each(tmp_path: Path) -> None:
    sent = batch([record("orders")])
    head = (
        b"POST /v1/topics/orders/queues/0/records HTTP/1.1\r\nhost: localhost\r\n"
        b"authorization: Bearer %b\r\ncontent-type: %b\r\ncontent-length: %d\r\n"
        % (key_of(SHOP).encode(), RECORDS["content-type"].encode(), len(sent))
    )
    async with broker_with(tmp_path, quota(requests_per_second=0.01)) as broker:
        wire = await Wire.to(broker)
        statuses = [(await wire.ask(5 * (head + b"\r\n" + sent) + head, sent))[0]]
        statuses += [(await wire.answer())[0] for _ in range(5)]
        wire.close()

    assert statuses == [201] + 5 * [429]


@pytest.mark.parametrize("version", [b"1.1", b"1.0"], ids=["hot", "ordinary"])
async def test_a_refused_request_is_not_done_and_its_connection_goes_on(
    tmp_path: Path, version: bytes
) -> None:
    async with broker_with(tmp_path, quota(bytes_in_per_second=10)) as broker:
        large = b'{"body": {"text": "' + b"a" * 1_000_000 + b'"}}'
        head = sending(SHOP, version=version, size=len(large))
        first = await Wire.to(broker)
        assert (await first.ask(head, large))[0] == 201, "a body may exceed a second's worth"
        first.close()
        wire = await Wire.to(broker)
        status, _, body = await wire.ask(head, large)
        assert (status, b'"quota":"bytes_in_per_second"' in body) == (429, True)
        if version == b"1.0":  # after which a server closes the connection
            wire.close()
            wire = await Wire.to(broker)
        assert (await wire.ask(sending(OTHER), BODY))[0] == 201
        wire.close()
        found = await broker.client.get(
            "/v1/topics/orders/queues/0/messages?offset=0", headers=bearer(OTHER)
        )
    assert len(found.json()["messages"]) == 2


async def test_an_ordinary_request_beyond_the_rate_is_429(tmp_path: Path) -> None:
    async with broker_with(tmp_path, quota(requests_per_second=0.01)) as broker:
        wire = await Wire.to(broker)
        first, (status, head, _) = await wire.ask(listing(SHOP)), await wire.ask(listing(SHOP))
        wire.close()
        assert (first[0], status) == (200, 429)
        assert b"ratelimit: " in head
        assert await broker.metric("eruca_quota_refusals_total") == 1
        assert await broker.metric("eruca_quota_requests_total") == 1


async def test_bytes_of_an_answer_become_a_debt_and_the_answer_is_whole(tmp_path: Path) -> None:
    async with broker_with(tmp_path, quota(bytes_out_per_second=100)) as broker:
        text = "a" * 100_000
        sent = await broker.client.post(
            "/v1/topics/orders/messages", json={"body": {"text": text}}, headers=bearer(OTHER)
        )
        assert sent.status_code == 201
        target = "/v1/topics/orders/queues/0/messages?offset=0"
        pulled = await broker.client.get(target, headers=bearer(SHOP))
        assert pulled.json()["messages"][0]["body"]["text"] == text
        refused = await broker.client.get(target, headers=bearer(SHOP))
        assert refused.json()["quota"] == "bytes_out_per_second"
        assert int(refused.headers["retry-after"]) > 100


async def test_held_requests_are_limited_and_an_ended_one_makes_room(tmp_path: Path) -> None:
    async with broker_with(tmp_path, quota(requests_under_way_max=1)) as broker:
        pull = (
            b"GET /v1/topics/orders/queues/0/messages?offset=0&wait_seconds=30 HTTP/1.1\r\n"
            b"host: localhost\r\nauthorization: Bearer %b\r\n" % key_of(SHOP).encode()
        )
        held = await Wire.to(broker)
        holding = asyncio.create_task(held.ask(pull))
        wire = await Wire.to(broker)
        status = await until_told(lambda: wire.ask(listing(SHOP)), lambda answer: answer[0] == 429)
        assert b"requests_under_way_max" in status[2]
        assert (
            b'ratelimit-policy: "requests_under_way_max";q=1;qu="concurrent-requests"'
            in (status[1])
        )
        assert (await wire.ask(sending(OTHER), BODY))[0] == 201  # it ends the held one
        assert (await holding)[0] == 200
        await until_told(lambda: wire.ask(listing(SHOP)), lambda answer: answer[0] == 200)
        held.close()
        wire.close()


async def test_a_held_request_whose_client_leaves_makes_room(tmp_path: Path) -> None:
    target = "/v1/topics/orders/queues/0/messages?offset=0"
    async with broker_with(tmp_path, quota(requests_under_way_max=1)) as broker:
        with pytest.raises(httpx.ReadTimeout):
            await broker.client.get(f"{target}&wait_seconds=30", headers=bearer(SHOP), timeout=0.5)
        await until_told(
            lambda: broker.client.get(target, headers=bearer(SHOP)),
            lambda answer: answer.status_code == 200,
        )


@pytest.mark.parametrize("ask", [sending, listing], ids=["hot", "ordinary"])
async def test_connections_are_counted_until_they_close(tmp_path: Path, ask: Any) -> None:  # noqa: ANN401
    body = BODY if ask is sending else b""
    async with broker_with(tmp_path, quota(connections_max=2)) as broker:
        wires = [await Wire.to(broker) for _ in range(3)]
        statuses = [(await wire.ask(ask(SHOP), body))[0] < 300 for wire in wires]
        assert statuses == [True, True, False]
        assert (await wires[2].ask(ask(OTHER), body))[0] < 300
        assert (await wires[0].ask(ask(SHOP), body))[0] < 300
        wires[0].close()
        await until_told(lambda: wires[2].ask(ask(SHOP), body), lambda answer: answer[0] < 300)
        for wire in wires[1:]:
            wire.close()


@pytest.mark.parametrize("version", [b"1.1", b"1.0"], ids=["hot", "ordinary"])
async def test_a_principal_holds_its_share_of_bodies_in_flight_at_most(
    tmp_path: Path, version: bytes
) -> None:
    text = quota(in_flight_share=0.01)  # of 64 MiB
    async with broker_with(tmp_path, text, bytes_in_flight_max=64 * 1024**2) as broker:
        large = b'{"body": {"text": "' + b"a" * 1_000_000 + b'"}}'
        for principal, expected in ((SHOP, 429), (OTHER, 201), (SHOP, 429)):
            wire = await Wire.to(broker)
            answer = await wire.ask(sending(principal, version=version, size=len(large)), large)
            wire.close()
            assert answer[0] == expected, answer[2]
        wire = await Wire.to(broker)
        assert (await wire.ask(sending(SHOP, version=version), BODY))[0] == 201
        wire.close()


async def test_a_changed_quota_holds_for_heads_that_are_known(tmp_path: Path) -> None:
    async with broker_with(tmp_path, "") as broker:
        wire = await Wire.to(broker)
        assert [(await wire.ask(sending(SHOP), BODY))[0] for _ in range(5)] == [201] * 5
        write(tmp_path, quota(requests_per_second=0.01))
        await until_told(lambda: wire.ask(sending(SHOP), BODY), lambda answer: answer[0] == 429)
        write(tmp_path, "")
        await until_told(lambda: wire.ask(sending(SHOP), BODY), lambda answer: answer[0] == 201)
        wire.close()


async def test_a_throttled_sender_sends_all_and_its_broker_is_not_blamed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = 12
    monkeypatch.setenv("ERUCA_API_KEY", key_of(OWNER))
    path = write(tmp_path, quota(requests_per_second=5))
    namesrv = NamesrvSettings.model_validate(
        {"kv_file": tmp_path / "kv", "ERUCA_AUTH_FILE": str(path), "settle_seconds": 0}
    )
    async with AsyncExitStack() as stack:
        _, (host, port) = await stack.enter_async_context(serving(create_namesrv(namesrv), namesrv))
        url = f"http://{host}:{port}"
        broker = await stack.enter_async_context(
            broker_with(tmp_path, quota(requests_per_second=5), namesrv_urls=url)
        )
        client = await stack.enter_async_context(
            eruca.AsyncClient(url, credentials=eruca.ApiKey(key_of(SHOP)))
        )
        producer = await stack.enter_async_context(
            client.producer(send_timeout_seconds=120, latency_fault=True, retries_max=0)
        )
        for number in range(count):
            await producer.send(eruca.Message("orders", str(number)))

        pulled = await broker.client.get(
            f"/v1/topics/orders/queues/0/messages?offset=0&count_max={2 * count}",
            headers=bearer(OTHER),
        )
        bodies = [message["body"]["text"] for message in pulled.json()["messages"]]
        assert bodies == [str(number) for number in range(count)]
        assert await broker.metric("eruca_quota_refusals_total") > 0


def test_a_quota_is_no_fault_of_the_broker() -> None:
    from eruca.core.retry_policy import is_brokers_fault

    assert not is_brokers_fault(QuotaExceededError("no", retry_after_seconds=1))
