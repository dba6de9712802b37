"""Every operation over raw connections, twice on each: nobody enters, and nothing changes."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import httpx
import pytest

from eruca_broker.app import create_app as create_broker
from eruca_broker.settings import BrokerSettings
from eruca_chassis.admission.needs import RIGHT_MEMBER
from eruca_controller.app import create_app as create_controller
from eruca_controller.settings import ControllerSettings
from eruca_namesrv.app import create_app as create_namesrv
from eruca_namesrv.settings import NamesrvSettings
from eruca_query.app import create_app as create_query
from eruca_query.projection.tables import SCHEMA as QUERY_SCHEMA
from eruca_query.settings import QuerySettings
from eruca_txn_checker.app import create_app as create_checker
from eruca_txn_checker.projection.tables import SCHEMA as CHECKER_SCHEMA
from eruca_txn_checker.settings import TxnCheckerSettings
from support.controllers import CREATE, group
from support.in_process_cluster import in_process_cluster
from support.openapi_documents import kept_document
from support.postgres import drop_schema
from support.rules import bearer, key_of, write_rules
from support.services import raw_connection, serving
from support.waiting import until_told

pytestmark = pytest.mark.anyio

OWNER: Final = "user:owner"
NOBODY: Final = "user:nobody"
PATIENCE_SECONDS: Final = 60.0
STATIC: Final = re.compile(r"^[a-z or]+ on [a-z]+(:\{(?!body\.|found\.|query\.).*\})?$")
CHANGING: Final = re.compile(
    r'"[a-z_]*(uptime|seconds|_at|version|log_offset|end_offset|behind|transactions|rows|as_of)'
    r'[a-z_]*": ?[^,}]+'
)
BODY: Final = b'{"body": {"text": "a"}}'
FOLLOWS: Final = '"brokers":["broker-a"],"faults":{},"followed":[{'
WEBHOOK: Final = {"url": "http://127.0.0.1:1/"}
SEEN: Final = {
    "broker": ["/v1/topics?limit=100", "/v1/groups?limit=100", "/v1/topics/name/queues"],
    "namesrv": ["/v1/brokers", "/v1/status"],
    "controller": ["/v1/broker-groups", "/v1/broker-groups/name/history", "/v1/policy/history"],
    "query": ["/v1/status", "/v1/exports/name/plan", "/v1/messages?topic=name"],
    "txn-checker": ["/v1/status", "/v1/producer-groups/name/webhook"],
}


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Operation(NamedTuple):
    """An operation that is not open to everybody."""

    name: str
    method: str
    target: str
    needs_right_of_head: bool


def operations(service: str) -> Iterator[Operation]:
    numbers = {"queue_id": "0", "broker_id": "0", "log_offset": "0"}
    for path, item in kept_document(service)["paths"].items():
        for method, operation in item.items():
            rights = operation[RIGHT_MEMBER]
            if rights == ["public"]:
                continue
            target = re.sub(r"\{(\w+)\}", lambda found: numbers.get(found[1], "name"), path)
            needed = [
                f"{parameter['name']}={parameter.get('example', 'name')}"
                for parameter in operation.get("parameters", ())
                if parameter["in"] == "query" and parameter.get("required")
            ]
            yield Operation(
                operation["operationId"],
                method.upper(),
                target + ("?" + "&".join(needed) if needed else ""),
                any(STATIC.match(right) for right in rights),
            )


def request_of(operation: Operation, headers: dict[str, str]) -> bytes:
    has_body = operation.method in ("POST", "PUT", "PATCH")
    body = BODY if has_body else b""
    lines = [f"{operation.method} {operation.target} HTTP/1.1", "host: localhost"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    lines += [f"content-length: {len(body)}", "content-type: application/json"] if has_body else []
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


async def answers(address: tuple[str, int], request: bytes) -> list[tuple[int, str]]:
    """Return statuses and bodies of a request that comes twice on one connection."""
    found = []
    async with raw_connection(address) as (reader, writer):
        for _ in range(2):
            writer.write(request)
            head = await reader.readuntil(b"\r\n\r\n")
            length = re.search(rb"content-length: (\d+)", head.lower())
            assert length is not None, head
            body = await reader.readexactly(int(length[1]))
            found.append((int(head.split(b" ", 2)[1]), body.decode()))
    return found


class Service(NamedTuple):
    """A service's settings and application, and what it takes to have something to protect."""

    settings: type[Any]
    create: Callable[[Any], Any]
    more: dict[str, Any]


@asynccontextmanager
async def service_of(kind: str, folder: Path, postgres_url: str) -> AsyncIterator[tuple[Any, Any]]:
    """Yield a service's application and its settings, with rules by which only the owner enters."""
    rules = write_rules(
        folder / "rules.toml", roles={"administrator": [OWNER]}, principals=[NOBODY]
    )
    of_broker = {"store_dir": folder / "store", "segment_bytes": 16 * 1024**2, "namesrv_urls": ""}
    of_controller = {
        "store": "file",
        "file": folder / "groups.json",
        "policy_file": folder / "policy.json",
        "ERUCA_AUTH": "controller",
    }
    services = {
        "broker": Service(BrokerSettings, create_broker, of_broker),
        "namesrv": Service(NamesrvSettings, create_namesrv, {"settle_seconds": 0}),
        "controller": Service(ControllerSettings, create_controller, of_controller),
        "query": Service(QuerySettings, create_query, {"DATABASE_URL": postgres_url}),
        "txn-checker": Service(
            TxnCheckerSettings,
            create_checker,
            {"DATABASE_URL": postgres_url, "webhook_reach": "machine"},
        ),
    }
    made = services[kind]
    more = {**made.more, "ERUCA_AUTH_FILE": str(rules), "port": 0}
    if "DATABASE_URL" not in more:
        settings = made.settings.model_validate(more)
        yield made.create(settings), settings
        return
    drop_schema(postgres_url, QUERY_SCHEMA if kind == "query" else CHECKER_SCHEMA)
    async with in_process_cluster(folder, brokers=1) as cluster:
        [broker_url] = cluster.broker_urls.values()
        async with httpx.AsyncClient(base_url=broker_url, trust_env=False) as broker:
            assert (await broker.put("/v1/topics/name", json={})).status_code == 201
            await broker.post("/v1/topics/name/messages", json={"body": {"text": "a"}})
        more["namesrv_urls"] = ";".join(cluster.namesrv_urls)
        settings = made.settings.model_validate(more)
        yield made.create(settings), settings


async def fill(kind: str, owner: httpx.AsyncClient) -> None:
    """Give the service something that a stranger could change."""
    await until_told(lambda: owner.get("/readyz"), lambda answer: answer.status_code == 200)
    if kind in ("query", "txn-checker"):
        await until_told(lambda: owner.get("/v1/status"), lambda answer: FOLLOWS in answer.text)
    if kind == "broker":
        answer = await owner.put("/v1/topics/name", json={})
    elif kind == "controller":
        answer = await owner.put("/v1/broker-groups/name", json=group(), headers=CREATE)
    elif kind == "txn-checker":
        answer = await owner.put("/v1/producer-groups/name/webhook", json=WEBHOOK)
    else:
        return
    assert answer.is_success, answer.text


@pytest.mark.parametrize("kind", SEEN)
async def test_no_operation_lets_a_stranger_in_or_changes_anything(
    tmp_path: Path, kind: str, postgres_url: str
) -> None:
    async with (
        service_of(kind, tmp_path, postgres_url) as (app, settings),
        serving(app, settings) as (_, address),
        httpx.AsyncClient(
            base_url=f"http://{address[0]}:{address[1]}", headers=bearer(OWNER)
        ) as owner,
        asyncio.timeout(PATIENCE_SECONDS),
    ):
        await fill(kind, owner)
        before = [await seen(owner, target) for target in SEEN[kind]]
        wrong = {"authorization": f"Bearer {key_of(OWNER)[:-1]}A"}
        for operation in operations(kind):
            for headers in ({}, wrong):
                found = await answers(address, request_of(operation, headers))
                assert [status for status, _ in found] == [401, 401], (operation, found)
            found = await answers(address, request_of(operation, bearer(NOBODY)))
            if operation.needs_right_of_head:
                assert [status for status, _ in found] == [403, 403], (operation, found)
                assert all(NOBODY in body for _, body in found), (operation, found)
        assert [await seen(owner, target) for target in SEEN[kind]] == before


async def seen(owner: httpx.AsyncClient, target: str) -> object:
    """Return what is there, without what the time, or a log that is followed, alone changes."""
    answer = await owner.get(target)
    assert answer.status_code == 200, answer.text
    return CHANGING.sub("", answer.text)
