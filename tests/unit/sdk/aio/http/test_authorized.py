"""Keys and tokens in requests: rotation without a restart, and what a refusal leads to."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest

import eruca
from eruca.aio.http import authorized
from eruca.aio.http import credentials as module
from eruca.aio.http.clients import http1_transport, httpx_client
from eruca.aio.http.credentials import credentials_of
from eruca.aio.http.transport import HttpTransport
from support.http_peers import OK, Peer, peer, read_request

pytestmark = pytest.mark.anyio

OLD, NEW = "eruca_ab12_" + "o" * 43, "eruca_ab12_" + "n" * 43
REFUSED = b"HTTP/1.1 401 Unauthorized\r\ncontent-length: 0\r\n\r\n"


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Lock:
    """The keys that a service accepts, and those that it was shown."""

    def __init__(self, *accepted: str) -> None:
        self.accepted = set(accepted)
        self.shown: list[str] = []
        self.bodies: list[bytes] = []


@asynccontextmanager
async def service(lock: Lock) -> AsyncIterator[Peer]:
    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            _, headers, body = await read_request(reader)
            key = headers.get("authorization", "").removeprefix("Bearer ")
            lock.shown.append(key)
            lock.bodies.append(body)
            writer.write(OK if key in lock.accepted else REFUSED)

    async with peer(script) as server:
        yield server


async def status_at(url: str, transport: HttpTransport) -> int:
    answer = await transport.request("POST", url, "/x", body=(b"a", b"b"), timeout=5)
    return answer.status


@pytest.mark.parametrize(("pause", "count"), [(b"1", 2), (b"3600", 1), (b"soon", 1)])
async def test_a_refusal_with_a_short_pause_is_repeated_once(pause: bytes, count: int) -> None:
    refusals = []

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            await read_request(reader)
            refusals.append(writer)
            writer.write(REFUSED.replace(b"\r\n\r\n", b"\r\nretry-after: %b\r\n\r\n" % pause))

    client = http1_transport(credentials_of({"ERUCA_API_KEY": OLD}))
    async with peer(script) as server:
        assert await status_at(server.url, client) == 401
        assert len(refusals) == count
        shorter = await client.request("GET", server.url, "/x", timeout=0.9)
        assert shorter.status == 401  # no time is left for the pause
        assert len(refusals) == count + 1
    await client.close()


async def test_requests_with_refused_credentials_come_ever_more_seldom(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also of a program that asks again at once; and a key that is good again ends it."""
    monkeypatch.setattr(authorized, "REST_SECONDS", 0.05)
    monkeypatch.setattr(authorized, "REST_SECONDS_MAX", 0.2)
    loop, lock = asyncio.get_running_loop(), Lock()
    client = http1_transport(credentials_of({"ERUCA_API_KEY": OLD}))
    async with service(lock) as server:
        began = loop.time()
        assert [await status_at(server.url, client) for _ in range(2)] == [401, 401]
        assert loop.time() - began < 1  # the first ones without a pause
        began = loop.time()
        assert [await status_at(server.url, client) for _ in range(4)] == [401] * 4
        assert loop.time() - began >= 0.05 + 0.1 + 0.2 + 0.2 - 0.01

        lock.accepted = {OLD}
        assert await status_at(server.url, client) == 200
        began = loop.time()
        assert [await status_at(server.url, client) for _ in range(20)] == [200] * 20
        assert loop.time() - began < 2
    await client.close()


async def test_a_refused_request_of_a_client_for_streams_is_repeated_after_the_pause() -> None:
    answers = [REFUSED.replace(b"\r\n\r\n", b"\r\nretry-after: 1\r\n\r\n"), OK]

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            await read_request(reader)
            writer.write(answers.pop(0))

    async with (
        peer(script) as server,
        httpx_client(credentials_of({"ERUCA_API_KEY": OLD})) as client,
    ):
        assert (await client.get(server.url)).status_code == 200


async def test_a_key_file_that_was_replaced_is_read_again_after_a_refusal(
    tmp_path: Path,
) -> None:
    path, lock = tmp_path / "key", Lock(OLD)
    path.write_text(f"{OLD}\n")
    client = http1_transport(credentials_of({"ERUCA_API_KEY_FILE": str(path)}))
    async with service(lock) as server:
        assert await status_at(server.url, client) == 200
        path.write_text(NEW)
        lock.accepted = {NEW}

        assert await status_at(server.url, client) == 200

        assert lock.shown == [OLD, OLD, NEW]
        assert lock.bodies == [b"ab"] * 3
    await client.close()


async def test_an_httpx_client_reads_it_again_as_well(tmp_path: Path) -> None:
    path, lock = tmp_path / "key", Lock(NEW)
    path.write_text(OLD)
    async with (
        service(lock) as server,
        httpx_client(credentials_of({"ERUCA_API_KEY_FILE": str(path)}), timeout=5) as client,
    ):
        assert (await client.post(server.url, content=b"x")).status_code == 401
        path.write_text(NEW)

        assert (await client.post(server.url, content=b"x")).status_code == 200

        assert lock.shown == [OLD, OLD, NEW]


async def test_a_key_that_is_refused_and_does_not_change_costs_one_request(
    tmp_path: Path,
) -> None:
    path, lock = tmp_path / "key", Lock()
    path.write_text(OLD)
    async with service(lock) as server:
        for given in (eruca.ApiKey(OLD), eruca.ApiKeyFile(path)):
            client = http1_transport(credentials_of({}, given=given))
            assert await status_at(server.url, client) == 401
            await client.close()

    assert lock.shown == [OLD, OLD]


async def test_a_file_that_is_half_written_leaves_the_former_key_in_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "LOOK_SECONDS", 0.0)
    path, lock = tmp_path / "key", Lock(OLD, NEW)
    path.write_text(OLD)
    client = http1_transport(credentials_of({}, given=eruca.ApiKeyFile(path)))
    async with service(lock) as server:
        for text in (OLD, "", NEW):
            path.write_text(text)
            assert await status_at(server.url, client) == 200

    assert lock.shown == [OLD, OLD, NEW]
    assert [record.message for record in caplog.records if "former key" in record.message]
    await client.close()


async def test_a_missing_key_file_is_an_error_that_names_it(tmp_path: Path) -> None:
    path = tmp_path / "key"
    client = http1_transport(credentials_of({}, given=eruca.ApiKeyFile(path)))

    with pytest.raises(eruca.NoCredentialsError, match=f"{path} cannot be read: No such file"):
        await status_at("http://127.0.0.1:1", client)
    await client.close()


class Issuer:
    """A provider of numbered tokens."""

    def __init__(self, *, seconds: float | None = None, fault: Exception | None = None) -> None:
        self.count = 0
        self.seconds = seconds
        self.fault = fault
        self.threads: list[threading.Thread] = []

    def sync(self) -> eruca.Token:
        self.threads.append(threading.current_thread())
        if self.fault is not None:
            raise self.fault
        self.count += 1
        return eruca.Token(f"t{self.count}", self.seconds)

    async def asynchronous(self) -> eruca.Token:
        return self.sync()


@pytest.mark.parametrize("kind", ["sync", "asynchronous"])
async def test_requests_that_start_together_share_one_call_of_the_provider(kind: str) -> None:
    issuer, lock = Issuer(seconds=3600), Lock("t1")
    given = eruca.BearerTokens(getattr(issuer, kind))
    client = http1_transport(credentials_of({}, given=given))
    async with service(lock) as server:
        statuses = await asyncio.gather(*(status_at(server.url, client) for _ in range(20)))

    assert (set(statuses), issuer.count) == ({200}, 1)
    assert (threading.current_thread() in issuer.threads) is (kind == "asynchronous")
    await client.close()


async def test_a_token_is_replaced_before_it_expires_while_requests_go_on() -> None:
    issuer, lock = Issuer(seconds=3600), Lock("t1", "t2")
    held = credentials_of({}, given=eruca.BearerTokens(issuer.asynchronous))
    assert isinstance(held, module.TokenCredentials)
    client = http1_transport(held)
    async with service(lock) as server:
        await status_at(server.url, client)
        held._refresh_at = time.monotonic()  # its time has come
        await status_at(server.url, client)
        await status_at(server.url, client)

    assert lock.shown == ["t1", "t1", "t2"]
    await client.close()


async def test_a_token_is_fetched_once_after_a_refusal_and_not_for_each_request() -> None:
    issuer, lock = Issuer(), Lock("t2")
    client = http1_transport(credentials_of({}, given=eruca.BearerTokens(issuer.sync)))
    async with service(lock) as server:
        statuses = [await status_at(server.url, client)]
        lock.accepted = set()
        statuses += [await status_at(server.url, client) for _ in range(5)]

    assert statuses == [200, 401, 401, 401, 401, 401]
    assert issuer.count == 2
    await client.close()


async def test_a_provider_that_fails_is_an_error_without_its_text() -> None:
    issuer = Issuer(fault=RuntimeError(f"POST with client_secret={OLD}"))
    client = http1_transport(credentials_of({}, given=eruca.BearerTokens(issuer.sync)))

    with pytest.raises(eruca.NoCredentialsError, match="RuntimeError") as caught:
        await status_at("http://127.0.0.1:1", client)

    assert OLD not in str(caught.value)
    await client.close()


async def test_an_issuer_that_is_away_matters_only_when_the_token_has_expired() -> None:
    issuer, lock = Issuer(seconds=3600), Lock("t1")
    held = credentials_of({}, given=eruca.BearerTokens(issuer.asynchronous))
    assert isinstance(held, module.TokenCredentials)
    client = http1_transport(held)
    async with service(lock) as server:
        await status_at(server.url, client)
        issuer.fault = OSError("away")
        held._refresh_at = 0.0
        assert await status_at(server.url, client) == 200
        held._refresh_at = held._expires_at = 0.0
        with pytest.raises(eruca.NoCredentialsError):
            await status_at(server.url, client)
    await client.close()


async def test_plain_http_to_another_machine_is_warned_of_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    module._has_warned.cache_clear()
    held = credentials_of({"ERUCA_API_KEY": OLD})

    with caplog.at_level(logging.WARNING):
        await held.headers("http://127.0.0.1:1")
        await held.headers("https://10.0.0.1:1")
        assert caplog.records == []
        await held.headers("http://10.0.0.1:1")
        await held.headers("http://10.0.0.2:1")

    assert len(caplog.records) == 1
    assert OLD not in caplog.text


@pytest.mark.parametrize("given", [OLD, OLD.encode(), {"key": OLD}])
def test_a_client_refuses_anything_else_without_quoting_it(given: object) -> None:
    with pytest.raises(eruca.ValidationError) as caught:
        eruca.AsyncClient(credentials=given)  # type: ignore[arg-type]  # that is the test

    assert OLD not in str(caught.value)


def test_a_provider_is_found_by_its_name() -> None:
    with pytest.raises(eruca.ValidationError, match="ERUCA_TOKEN_PROVIDER"):
        credentials_of({"ERUCA_TOKEN_PROVIDER": "os:nothing"})

    assert credentials_of({"ERUCA_TOKEN_PROVIDER": "os:getcwd"}).has_headers


async def test_the_sends_of_a_refused_client_fail_at_once_and_isolate_no_broker() -> None:
    problem = (
        b'{"code":"forbidden","detail":"checkout may not produce on orders",'
        b'"fix":"grant produce on topic orders to service:checkout"}'
    )
    head = b"HTTP/1.1 403 Forbidden\r\ncontent-type: application/problem+json\r\n"
    denied = head + b"content-length: %d\r\n\r\n" % len(problem) + problem
    lock = Lock(OLD)

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            line, headers, _ = await read_request(reader)
            lock.shown.append(headers.get("authorization", ""))
            if "/routes/" in line or line.startswith("GET"):
                body = ROUTE.replace("URL", f"http://127.0.0.1:{port}").encode()
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(body) + body)
            else:
                writer.write(denied)

    async with peer(script) as server:
        port = server.url.rpartition(":")[2]
        async with (
            eruca.AsyncClient(server.url, credentials=eruca.ApiKey(OLD)) as client,
            client.producer(latency_fault=True, retries_max=5) as producer,
        ):
            with pytest.raises(eruca.ForbiddenError) as caught:
                await producer.send(eruca.Message("orders", b"x"))
            health = producer.broker_health()

    assert caught.value.fix == "grant produce on topic orders to service:checkout"
    assert [h.condition for h in health if h.condition != "healthy"] == []
    assert set(lock.shown) == {f"Bearer {OLD}"}


ROUTE = (
    '{"topic":"orders","brokers":[{"cluster":"c","broker_name":"a","epoch":0,'
    '"urls":{"0":{"default":"URL"}},"store_hosts":{}}],"queues":[{"broker_name":"a","read_queue_count":4,'
    '"write_queue_count":4,"permission":"rw"}],"order_config":null}'
)


@pytest.mark.parametrize("body", [b"once", None])
async def test_a_stream_that_was_refused_is_not_sent_twice(body: bytes | None) -> None:
    lock = Lock("t2")

    async def pieces() -> AsyncIterator[bytes]:
        yield b"once"

    given = eruca.BearerTokens(Issuer().sync)
    async with (
        service(lock) as server,
        httpx_client(credentials_of({}, given=given), timeout=5) as client,
    ):
        answer: httpx.Response = await client.post(
            server.url, content=pieces() if body is None else body
        )

    assert answer.status_code == (401 if body is None else 200)
