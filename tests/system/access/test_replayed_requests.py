"""Requests that somebody else may send again: with a revoked key, or from a foreign site's page."""

from __future__ import annotations

import asyncio
import base64
from pathlib import Path
from typing import Final

import pytest

from eruca_chassis.admission.needs import RIGHT_MEMBER
from support.closed_brokers import OWNER, PRODUCES, SHOP, Broker, answer_of, broker_with
from support.openapi_documents import kept_document
from support.rules import basic, key_of, write_rules
from support.services import raw_connection

pytestmark = pytest.mark.anyio

PATIENCE_SECONDS: Final = 60.0
BODY: Final = b'{"body": {"text": "a"}}'
SEND: Final = "/v1/topics/orders/messages"
FROM_ELSEWHERE: Final = {
    "origin": "https://elsewhere.example",
    "sec-fetch-site": "cross-site",
    "sec-fetch-mode": "cors",
    "cookie": "session=1",
}
CHANGING: Final = ("PUT", "POST", "DELETE", "PATCH")


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def request_of(method: str, target: str, headers: dict[str, str]) -> bytes:
    lines = [f"{method} {target} HTTP/1.1", "host: localhost"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    lines += [f"content-length: {len(BODY)}", "content-type: application/json"]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + BODY


async def stored(broker: Broker) -> int:
    """Return the number of messages in the topic."""
    answer = await broker.call(OWNER, "GET", "/v1/topics/orders/queues")
    assert answer.status_code == 200, answer.text
    return sum(queue["max_offset"] for queue in answer.json()["queues"])


async def test_a_recorded_request_is_refused_once_its_key_is_revoked(tmp_path: Path) -> None:
    async with broker_with(tmp_path, PRODUCES) as broker, asyncio.timeout(PATIENCE_SECONDS):
        recorded = request_of("POST", SEND, basic(SHOP))
        async with raw_connection(broker.address) as (reader, writer):
            writer.write(recorded)
            assert (await answer_of(reader))[0] == 201
            write_rules(broker.path, roles={"administrator": [OWNER]})
            status = 201
            while status == 201:  # the broker reads the rules again within a second
                before = await stored(broker)
                writer.write(recorded)
                status, body = await answer_of(reader)

            assert status == 401
            for _ in range(3):
                writer.write(recorded)
                assert (await answer_of(reader))[0] == 401
        async with raw_connection(broker.address) as (reader, writer):
            writer.write(recorded)
            assert (await answer_of(reader))[0] == 401

        assert await stored(broker) == before
        password = base64.b64decode(basic(SHOP)["authorization"].split()[1]).split(b":")[1]
        assert password == key_of(SHOP).encode()
        assert password not in body


async def test_a_page_of_a_foreign_site_changes_nothing_with_valid_credentials(
    tmp_path: Path,
) -> None:
    async with broker_with(tmp_path, PRODUCES) as broker, asyncio.timeout(PATIENCE_SECONDS):
        before = await stored(broker)
        asked = 0
        for path, item in kept_document("broker")["paths"].items():
            target = path.replace("{topic}", "orders").replace("{queue_id}", "0")
            for method in map(str.upper, item):
                if method not in CHANGING or item[method.lower()][RIGHT_MEMBER] == ["public"]:
                    continue
                async with raw_connection(broker.address) as (reader, writer):
                    writer.write(request_of(method, target, {**basic(OWNER), **FROM_ELSEWHERE}))
                    status, body = await answer_of(reader)
                assert (status, b'"code":"cross-site"' in body) == (403, True), (method, path, body)
                asked += 1

        assert asked > 20
        assert await stored(broker) == before
        assert (await broker.call(OWNER, "GET", "/v1/topics/orders")).status_code == 200


async def test_a_page_of_a_foreign_site_may_not_read_answers(tmp_path: Path) -> None:
    async with broker_with(tmp_path, PRODUCES) as broker:
        answer = await broker.client.get(
            "/v1/topics/orders", headers={**basic(OWNER), **FROM_ELSEWHERE}
        )

        assert not [name for name in answer.headers if name.startswith("access-control-")]
        assert "set-cookie" not in answer.headers


async def test_a_cookie_is_no_credential(tmp_path: Path) -> None:
    async with broker_with(tmp_path, PRODUCES) as broker:
        for name in ("authorization", "session", "key"):
            headers = {"cookie": f"{name}={key_of(OWNER)}"}
            answer = await broker.client.get("/v1/topics/orders", headers=headers)
            assert answer.status_code == 401, answer.text
