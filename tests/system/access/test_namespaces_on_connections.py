"""Namespaces over raw connections: known heads, pipelines, old clients, and rules that change."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from eruca_broker.app import create_app
from eruca_broker.settings import BrokerSettings
from support.rules import bearer, key_of, write_rules
from support.services import serving
from support.waiting import until_told

pytestmark = pytest.mark.anyio

OWNER: Final = "user:owner"
SHOP: Final = "user:shop"
BODY: Final = b'{"body": {"text": "a"}}'
ALL: Final = {
    "allow": ["produce", "consume", "administer"],
    "on": ["topic:*", "group:*"],
    "to": [SHOP],
}
NAMESPACE: Final = f'[[namespaces]]\nname = "shop-"\nto = ["{SHOP}"]\n'


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Broker:
    def __init__(self, address: tuple[str, int], client: httpx.AsyncClient, rules: Path) -> None:
        self.address = address
        self.client = client
        self._rules = rules

    def write(self, more: str) -> None:
        write_rules(self._rules, ALL, roles={"administrator": [OWNER]}, more=more)

    async def ends(self) -> dict[str, int]:
        """Return how many messages each topic has."""
        found = {}
        for topic in ("orders", "shop-orders"):
            target = f"/v1/topics/{topic}/queues"
            queues = (await self.client.get(target, headers=bearer(OWNER))).json()["queues"]
            found[topic] = sum(queue["max_offset"] for queue in queues)
        return found


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    rules = tmp_path / "rules.toml"
    write_rules(rules, ALL, roles={"administrator": [OWNER]})
    settings = BrokerSettings.model_validate(
        {
            "store_dir": tmp_path / "store",
            "segment_bytes": 16 * 1024**2,
            "ERUCA_AUTH_FILE": str(rules),
            "namesrv_urls": "",
        }
    )
    async with (
        serving(create_app(settings), settings) as (_, (host, port)),
        httpx.AsyncClient(base_url=f"http://{host}:{port}", timeout=60) as client,
    ):
        for topic in ("orders", "shop-orders"):
            created = await client.put(
                f"/v1/topics/{topic}",
                json={"read_queue_count": 1, "write_queue_count": 1},
                headers=bearer(OWNER),
            )
            assert created.is_success, created.text
        yield Broker((host, port), client, rules)


def request(method: str, target: str, body: bytes = b"", version: str = "1.1") -> bytes:
    return (
        f"{method} {target} HTTP/{version}\r\nhost: localhost\r\nconnection: keep-alive\r\n"
        f"authorization: Bearer {key_of(SHOP)}\r\ncontent-type: application/json\r\n"
        f"content-length: {len(body)}\r\n\r\n"
    ).encode() + body


async def answer_of(reader: asyncio.StreamReader, *, is_head: bool = False) -> tuple[int, Any]:
    head = await reader.readuntil(b"\r\n\r\n")
    length = re.search(rb"content-length: (\d+)", head)
    size = 0 if length is None or is_head else int(length[1])
    body = await reader.readexactly(size)
    return int(head.split(b" ", 2)[1]), json.loads(body) if body else None


async def test_a_connection_follows_when_its_caller_enters_and_leaves_a_namespace(
    broker: Broker,
) -> None:
    reader, writer = await asyncio.open_connection(*broker.address)
    sent = {"orders": 0, "shop-orders": 0}

    async def send() -> None:
        writer.write(request("POST", "/v1/topics/orders/messages", BODY))
        status, receipt = await answer_of(reader)
        assert (status, receipt["topic"]) == (201, "orders")

    async def where() -> str:
        before = await broker.ends()
        await send()
        after = await broker.ends()
        [topic] = [name for name in after if after[name] > before[name]]
        sent[topic] += 1
        return topic

    for _ in range(3):
        assert await where() == "orders"  # the second one's head is known
    for more, topic in ((NAMESPACE, "shop-orders"), ("", "orders"), (NAMESPACE, "shop-orders")):
        broker.write(more)
        assert await until_told(where, topic.__eq__) == topic
        assert await where() == topic
    assert await broker.ends() == sent
    writer.close()


async def test_requests_of_all_kinds_are_answered_in_their_order(broker: Broker) -> None:
    broker.write(NAMESPACE)

    async def is_in() -> bool:
        answer = await broker.client.get("/v1/topics", headers=bearer(SHOP))
        return [topic["topic"] for topic in answer.json()["topics"]] == ["orders"]

    await until_told(is_in, bool)
    reader, writer = await asyncio.open_connection(*broker.address)
    pull = "/v1/topics/orders/queues/0/messages?offset=0"
    writer.write(
        request("POST", "/v1/topics/orders/messages", BODY)
        + request("POST", "/v1/topics/orders/messages", BODY)
        + request("GET", pull)
        + request("GET", "/v1/topics/orders")
        + request("HEAD", "/v1/topics/orders")
        + request("GET", "/v1/topics/%zz")
        + request("GET", "/v1/topics/a%2fb")
        + request("GET", "/v1/topics/shop-orders")
        + request("DELETE", "/v1/nothing")
        + request("POST", "/v1/topics/orders/messages", b"{")
    )
    for _ in range(2):
        status, receipt = await answer_of(reader)
        assert (status, receipt["topic"]) == (201, "orders")
    status, pulled = await answer_of(reader)
    assert [message["topic"] for message in pulled["messages"]] == ["orders", "orders"]
    assert (await answer_of(reader))[1]["topic"] == "orders"
    assert (await answer_of(reader, is_head=True))[0] == 200
    refusals = [await answer_of(reader) for _ in range(5)]
    assert [status for status, _ in refusals] == [400, 422, 404, 404, 400]
    assert "shop-shop" not in json.dumps(refusals)
    writer.write(request("GET", pull, version="1.0"))
    assert len((await answer_of(reader))[1]["messages"]) == 2
    writer.close()


async def test_a_held_pull_ends_when_its_caller_enters_a_namespace(broker: Broker) -> None:
    reader, writer = await asyncio.open_connection(*broker.address)
    pull = "/v1/topics/orders/queues/0/messages?offset=0&wait_seconds=30"
    writer.write(request("GET", pull))
    await broker.client.get("/v1/topics", headers=bearer(SHOP))
    broker.write(NAMESPACE)
    status, refusal = await answer_of(reader)
    assert (status, refusal["detail"]) == (
        403,
        f"{SHOP} is in the namespace shop-, and topic:orders is not",
    )
    held = asyncio.ensure_future(answer_of(reader))
    writer.write(request("GET", pull))
    sent = await broker.client.post(
        "/v1/topics/orders/messages", content=BODY, headers=bearer(SHOP)
    )
    assert sent.status_code == 201
    status, pulled = await held
    assert [message["topic"] for message in pulled["messages"]] == ["orders"]
    writer.close()


async def test_a_chunked_body_and_one_that_is_too_large(broker: Broker) -> None:
    broker.write(NAMESPACE)

    async def pieces(count: int) -> AsyncIterator[bytes]:
        yield b'{"body": {"text": "'
        for _ in range(count):
            yield b"x" * 65_536
        yield b'"}}'

    async def send(count: int) -> httpx.Response:
        return await broker.client.post(
            "/v1/topics/orders/messages", content=pieces(count), headers=bearer(SHOP)
        )

    assert (await send(1)).json()["topic"] == "orders"
    for count in (100, 300):
        refused = await send(count)
        assert (refused.status_code, refused.json()["code"]) == (413, "too-large")
