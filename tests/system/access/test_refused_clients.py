"""The SDK without rights, or with a revoked key: what it says, and how often it asks."""

from __future__ import annotations

import asyncio
import logging
import re
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

import eruca
from eruca.contract.errors import ForbiddenError, UnauthenticatedError
from eruca_deploy.cluster import LocalCluster
from support.rules import bearer, key_of, write_rules

pytestmark = pytest.mark.anyio

SERVICES: Final = "service:all"
SHOP: Final = "user:shop"
USES: Final = {
    "allow": ["produce", "consume"],
    "on": ["topic:orders", "group:billing"],
    "to": [SHOP],
}
PATIENCE_SECONDS: Final = 60.0
WINDOW_SECONDS: Final = 4.0  # over which refusals are counted
REFUSALS_MAX: Final = 40  # in a window, of all requests that a consumer repeats


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Closed:
    """A cluster with rules, and their file."""

    def __init__(self, cluster: LocalCluster, rules: Path) -> None:
        self.urls = ";".join(cluster.namesrv_urls)
        self._all = [*cluster.namesrv_urls, *cluster.broker_urls.values()]
        self._rules = rules

    def allow(self, *rules: dict[str, Any], principals: tuple[str, ...] = (SHOP,)) -> None:
        write_rules(self._rules, *rules, **everybody(principals))

    def client(self, principal: str) -> eruca.AsyncClient:
        return eruca.AsyncClient(self.urls, credentials=eruca.ApiKey(key_of(principal)))

    async def refusals(self) -> int:
        """Return how many requests all services have refused for their credentials."""
        count = 0
        async with httpx.AsyncClient(headers=bearer(SERVICES)) as http:
            for url in self._all:
                text = (await http.get(f"{url}/metrics")).text
                said = re.search(r'refusals_total\{reason="unauthenticated"\} ([0-9.]+)', text)
                assert said is not None
                count += int(float(said[1]))
        return count


def everybody(principals: tuple[str, ...]) -> dict[str, Any]:
    roles = {"administrator": [SERVICES], "broker": [SERVICES]}
    return {"roles": roles, "principals": principals}


@asynccontextmanager
async def closed_cluster(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *rules: dict[str, Any]
) -> AsyncIterator[Closed]:
    path = write_rules(tmp_path / "rules.toml", *rules, **everybody((SHOP,)))
    monkeypatch.setenv("ERUCA_API_KEY", key_of(SERVICES))
    monkeypatch.setenv("ERUCA_AUTH_FILE", str(path))
    async with LocalCluster() as cluster:
        closed = Closed(cluster, path)
        async with closed.client(SERVICES) as operator:
            await operator.admin.create_topic("orders", queue_count=1)
        yield closed


async def test_the_fix_names_the_right_that_the_caller_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        closed_cluster(tmp_path, monkeypatch) as closed,
        closed.client(SHOP) as client,
        client.producer() as producer,
    ):
        with pytest.raises(ForbiddenError) as sending:
            await producer.send(eruca.Message("orders", b"a"))
        with pytest.raises(ForbiddenError) as reading:
            async with client.pull_consumer(topics="orders") as consumer:
                await consumer.poll(wait_seconds=1)
        with pytest.raises(ForbiddenError) as looking:
            await client.admin.route("orders")

    assert sending.value.fix == f"grant produce on topic:orders to {SHOP}"
    assert reading.value.fix == f"grant consume on topic:orders to {SHOP}"
    everything = "produce or consume or query or administer"
    assert looking.value.fix == f"grant {everything} on topic:orders to {SHOP}"


async def test_the_command_line_names_the_right_that_a_sender_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with closed_cluster(tmp_path, monkeypatch) as closed:
        monkeypatch.setenv("ERUCA_API_KEY", key_of(SHOP))
        process = await asyncio.create_subprocess_exec(
            *(
                sys.executable,
                "-m",
                "eruca",
                "--namesrv",
                closed.urls,
                "send",
                "--topic",
                "orders",
                "a",
            ),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        output, _ = await asyncio.wait_for(process.communicate(), PATIENCE_SECONDS)

    assert process.returncode != 0
    assert f"grant produce on topic:orders to {SHOP}" in " ".join(output.decode().split())
    assert " or " not in output.decode()


@pytest.mark.parametrize("kind", ["pull", "push", "simple"])
async def test_a_consumer_whose_key_is_revoked_pauses_says_so_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    received: asyncio.Queue[str] = asyncio.Queue()
    caplog.set_level(logging.INFO)
    async with (
        closed_cluster(tmp_path, monkeypatch, USES) as closed,
        closed.client(SERVICES) as operator,
        operator.producer() as producer,
        closed.client(SHOP) as client,
    ):
        consuming = asyncio.create_task(consume(client, kind, received))
        await producer.send(eruca.Message("orders", b"first"))
        async with asyncio.timeout(PATIENCE_SECONDS):
            assert await received.get() == "first"
            before = await closed.refusals()
            closed.allow(principals=())
            while await closed.refusals() < before + 3:
                pass  # it is refused now, and asks again

        counted = await closed.refusals()
        await asyncio.sleep(WINDOW_SECONDS)  # the time over which refusals are counted
        assert await closed.refusals() - counted <= REFUSALS_MAX
        said = [r for r in caplog.records if "credentials are not valid here" in r.getMessage()]
        assert 1 <= len(said) <= 10
        assert key_of(SHOP)[-20:] not in caplog.text

        closed.allow(USES)
        await producer.send(eruca.Message("orders", b"second"))
        async with asyncio.timeout(PATIENCE_SECONDS):
            assert await received.get() == "second"
        consuming.cancel()
        await asyncio.gather(consuming, return_exceptions=True)


async def consume(client: eruca.AsyncClient, kind: str, received: asyncio.Queue[str]) -> None:
    """Consume as a program does that goes on after a refusal, at once."""
    if kind == "push":
        push = client.push_consumer("billing", start="earliest")

        @push.on("orders")
        async def handle(message: eruca.ReceivedMessage) -> None:
            received.put_nowait(message.text())

        async with push:
            await asyncio.Event().wait()
    if kind == "pull":
        async with client.pull_consumer(topics="orders", start="earliest") as consumer:
            while True:
                try:
                    for message in await consumer.poll(wait_seconds=5):
                        received.put_nowait(message.text())
                except UnauthenticatedError as error:
                    logging.getLogger("program").warning("%s", error)
    async with client.simple_consumer("billing", topics="orders", start="earliest") as simple:
        while True:
            try:
                for delivery in await simple.receive(wait_seconds=5):
                    received.put_nowait(delivery.message.text())
                    await simple.ack(delivery)
            except UnauthenticatedError as error:
                logging.getLogger("program").warning("%s", error)
