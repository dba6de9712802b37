"""Names are not to be guessed: what is there and what is not look the same without a right."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

import eruca
from eruca_query.projection.tables import SCHEMA
from support.closed_brokers import BILLING, CONSUMES, OWNER, Broker, broker_with
from support.in_process_cluster import in_process_cluster
from support.openapi_documents import kept_document
from support.postgres import drop_schema
from support.query_services import queried_by
from support.rules import bearer, write_rules
from support.waiting import until_told

pytestmark = pytest.mark.anyio

THERE: Final = "secret"
ABSENT: Final = "absent"  # as long, so that lengths are equal, too
BODY: Final = {"body": {"text": "a"}}
NUMBERS: Final = {"queue_id": "0", "dead_letter_id": "0"}
REQUEST_ID: Final = {"x-request-id": "guess"}


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def guesses() -> Iterator[tuple[str, str]]:
    """Yield method and path of each operation at a broker that names a topic or a group."""
    for path, item in kept_document("broker")["paths"].items():
        if "{topic}" in path or "{group}" in path:
            for method in item:
                yield method.upper(), path


def named(path: str, name: str) -> str:
    path = path.replace("{topic}", name).replace("{group}", name)
    return re.sub(r"\{(\w+)\}", lambda found: NUMBERS.get(found[1], "one"), path)


async def told(client: httpx.AsyncClient, method: str, target: str, name: str) -> tuple[Any, ...]:
    """Return status, headers and body that a guess gets, with *name* left out."""
    headers = {**bearer(BILLING), **REQUEST_ID}
    body = BODY if method in ("POST", "PUT") else None
    answer = await client.request(method, target, json=body, headers=headers)
    shown = sorted((key, text) for key, text in answer.headers.items() if key != "date")
    return answer.status_code, shown, answer.text.replace(name, "NAME")


async def made(broker: Broker, target: str, body: dict[str, Any]) -> dict[str, Any]:
    answer = await broker.call(OWNER, "POST", target, body)
    assert answer.status_code == 201, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def test_a_topic_and_a_group_that_are_there_look_like_absent_ones(tmp_path: Path) -> None:
    async with broker_with(tmp_path, CONSUMES) as broker:
        for kind in ("topics", "groups"):
            answer = await broker.call(OWNER, "PUT", f"/v1/{kind}/{THERE}", {})
            assert answer.status_code == 201, answer.text
        await made(broker, f"/v1/topics/{THERE}/messages", BODY)

        compared = 0
        for method, path in guesses():
            there, absent = [
                await told(broker.client, method, named(path, name), name)
                for name in (THERE, ABSENT)
            ]
            assert there == absent, (method, path)
            assert there[0] == 403, (method, path, there)
            compared += 1

        assert compared > 25
        for kind in ("topics", "groups"):
            assert THERE not in (await broker.call(BILLING, "GET", f"/v1/{kind}")).text


async def test_a_transaction_that_is_there_looks_like_an_absent_one(tmp_path: Path) -> None:
    async with broker_with(tmp_path, CONSUMES) as broker:
        assert (await broker.call(OWNER, "PUT", f"/v1/topics/{THERE}", {})).status_code == 201
        begun = await made(
            broker,
            "/v1/transactions",
            {"message": BODY, "topic": THERE, "producer_group": THERE},
        )
        there = begun["transaction_id"]
        absent = there[:-1] + ("0" if there[-1] != "0" else "1")

        for method, action in (("GET", ""), ("POST", ":commit"), ("POST", ":rollback")):
            one, other = [
                await told(broker.client, method, f"/v1/transactions/{name}{action}", name)
                for name in (there, absent)
            ]
            assert one == other, (method, action)

        state = await broker.call(OWNER, "GET", f"/v1/transactions/{there}")
        assert state.json()["state"] == "pending"


async def test_a_scheduled_message_that_is_there_looks_like_a_recalled_one(
    tmp_path: Path,
) -> None:
    async with broker_with(tmp_path, CONSUMES) as broker:
        assert (await broker.call(OWNER, "PUT", f"/v1/topics/{THERE}", {})).status_code == 201
        later = {**BODY, "delay_seconds": 3_600}
        handles = []
        for _ in range(2):
            sent = await made(broker, f"/v1/topics/{THERE}/messages", later)
            handles.append(sent["recall_handle"])
        there, recalled = handles
        gone = await broker.call(OWNER, "DELETE", f"/v1/scheduled/{recalled}")
        assert gone.is_success, gone.text

        one, other = [
            await told(broker.client, "DELETE", f"/v1/scheduled/{handle}", handle)
            for handle in handles
        ]

        assert one == other
        assert (await broker.call(OWNER, "DELETE", f"/v1/scheduled/{there}")).is_success


async def test_a_message_that_is_there_looks_like_an_absent_one_to_a_query(
    tmp_path: Path, postgres_url: str
) -> None:
    drop_schema(postgres_url, SCHEMA)
    rules = write_rules(
        tmp_path / "rules.toml", roles={"administrator": [OWNER]}, principals=[BILLING]
    )
    async with (
        in_process_cluster(tmp_path, brokers=1) as cluster,
        queried_by(cluster, postgres_url, ERUCA_AUTH_FILE=str(rules)) as queried,
    ):
        async with queried.client.producer() as producer:
            there = (await producer.send(eruca.Message(THERE, "a"))).message_id
        absent = there[:-1] + ("0" if there[-1] != "0" else "1")
        queried.http.headers.update(bearer(OWNER))
        await until_told(
            lambda: queried.http.get(f"/v1/messages/{there}"),
            lambda answer: answer.status_code == 200,
        )
        assert (await queried.http.get(f"/v1/messages/{absent}")).status_code == 404
        for path in ("/v1/messages/{}", "/v1/messages/{}/timeline"):
            one, other = [
                await told(queried.http, "GET", path.format(name), name) for name in (there, absent)
            ]
            assert one == other, path
