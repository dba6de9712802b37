"""Every operation of every service: nobody without a key, and nobody without the right."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from schemathesis import GenerationMode
from schemathesis.core import NotSet

from eruca_broker.app import create_app as create_broker
from eruca_broker.settings import BrokerSettings
from eruca_chassis.admission.needs import RIGHT_MEMBER
from eruca_chassis.app import ServiceApp
from eruca_chassis.running.settings import ServiceSettings
from eruca_console.app import create_app as create_console
from eruca_console.settings import ConsoleSettings
from eruca_controller.app import create_app as create_controller
from eruca_controller.settings import ControllerSettings
from eruca_namesrv.app import create_app as create_namesrv
from eruca_namesrv.settings import NamesrvSettings
from eruca_query.app import create_app as create_query
from eruca_query.settings import QuerySettings
from eruca_txn_checker.app import create_app as create_txn_checker
from eruca_txn_checker.settings import TxnCheckerSettings
from support.fuzzing import MadeUp, Operation, operations_of
from support.openapi_documents import kept_document
from support.rules import basic, bearer, key_of, write_rules

pytestmark = pytest.mark.anyio

KINDS: Final[dict[str, tuple[type[ServiceSettings], Callable[..., ServiceApp]]]] = {
    "broker": (BrokerSettings, create_broker),
    "console": (ConsoleSettings, create_console),
    "controller": (ControllerSettings, create_controller),
    "namesrv": (NamesrvSettings, create_namesrv),
    "query": (QuerySettings, create_query),
    "txn-checker": (TxnCheckerSettings, create_txn_checker),
}
NOBODY: Final = "user:nobody"
ADMIN: Final = "user:admin"
EXPLAINS: Final = "POST /v1/access:explain"
REFUSED_BY_FORM: Final = {400, 404, 405, 413, 414, 431}  # before anybody asks whose request it is
STATIC: Final = re.compile(r"^[a-z or]+ on ([a-z]+)(:\{(?!body\.|found\.|query\.).*\})?$")


def operations() -> Iterator[Any]:
    for service in KINDS:
        for path, item in kept_document(service)["paths"].items():
            for method, operation in item.items():
                yield pytest.param(
                    service,
                    method.upper(),
                    path,
                    operation,
                    id=operation["operationId"] + "@" + service,
                )


@asynccontextmanager
async def caller_of(service: str, path: Path) -> AsyncIterator[httpx.AsyncClient]:
    settings_of, create_app = KINDS[service]
    app = create_app(settings_of.model_validate({"ERUCA_AUTH_FILE": str(path)}))
    transport = httpx.ASGITransport(app, client=("127.0.0.1", 1))
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        yield client


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    return write_rules(
        tmp_path / "rules.toml", roles={"administrator": [ADMIN]}, principals=[NOBODY]
    )


def target_of(path: str, operation: dict[str, Any]) -> str:
    examples = {"queue_id": "0", "broker_id": "0", "log_offset": "0", "dead_letter_id": "0"}
    path = re.sub(r"\{(\w+)\}", lambda match: examples.get(match[1], "name"), path)
    needed = [
        f"{p['name']}={p.get('example', 'name')}"
        for p in operation.get("parameters", ())
        if p["in"] == "query" and p.get("required")
    ]
    return path + ("?" + "&".join(needed) if needed else "")


@pytest.mark.parametrize(("service", "method", "path", "operation"), list(operations()))
async def test_nobody_comes_in_without_a_key(
    rules: Path, service: str, method: str, path: str, operation: dict[str, Any]
) -> None:
    async with caller_of(service, rules) as client:
        answer = await client.request(method, target_of(path, operation))
    if operation[RIGHT_MEMBER] == ["public"]:
        assert answer.status_code in (200, 404, 503)
        assert operation["security"] == []
    else:
        assert answer.status_code == 401, answer.text
        assert answer.json()["code"] == "unauthenticated"
        assert answer.headers["www-authenticate"].startswith("Bearer")
        assert {"bearer": []} in operation["security"]


@pytest.mark.parametrize(("service", "method", "path", "operation"), list(operations()))
async def test_a_caller_without_the_right_is_told_which_one_it_is(
    rules: Path, service: str, method: str, path: str, operation: dict[str, Any]
) -> None:
    rights = operation[RIGHT_MEMBER]
    async with caller_of(service, rules) as client:
        target = target_of(path, operation)
        answer = await client.request(method, target, headers=bearer(NOBODY))
        if any(STATIC.match(right) for right in rights):
            assert answer.status_code == 403, answer.text
            assert answer.json()["code"] == "forbidden"
            assert answer.json()["fix"].startswith("grant ")
            assert answer.json()["fix"].endswith(f" to {NOBODY}")
        elif answer.status_code != 403:  # the endpoint decides, and the service has not begun
            assert answer.status_code in (200, 404, 503), answer.text


@pytest.mark.parametrize(("service", "method", "path", "operation"), list(operations()))
async def test_an_administrator_gets_past_the_gate(
    rules: Path, service: str, method: str, path: str, operation: dict[str, Any]
) -> None:
    async with caller_of(service, rules) as client:
        answer = await client.request(method, target_of(path, operation), headers=basic(ADMIN))
    assert answer.status_code in (200, 404, 503), answer.text


@pytest.mark.parametrize("service", KINDS)
async def test_made_up_requests_do_nothing_without_a_key_or_a_right(
    rules: Path, service: str
) -> None:
    """Some are refused for their form, before anybody asks whose they are."""
    by_nobody: list[int] = []
    without_right: list[tuple[str, int]] = []
    async with caller_of(service, rules) as client:
        for operation in operations_of(service):
            if operation.definition.raw[RIGHT_MEMBER] == ["public"]:
                continue
            for case in made_up(operation):
                by_nobody.append(await status_of(client, case, {}))
                status = await status_of(client, case, bearer(NOBODY))
                without_right.append((operation.label, status))

    assert {*by_nobody} <= {401} | REFUSED_BY_FORM
    assert by_nobody.count(401) >= 0.9 * len(by_nobody)
    # What is read may be empty for the caller; an explanation is about itself.
    done = {label for label, status in without_right if status < 400}
    assert {label for label in done if not label.startswith("GET ")} <= {EXPLAINS}
    assert 403 in (status for _, status in without_right)


def made_up(operation: Operation) -> list[MadeUp]:
    cases: list[MadeUp] = []

    @settings(max_examples=3, suppress_health_check=list(HealthCheck), database=None)
    @given(case=operation.as_strategy(generation_mode=GenerationMode.POSITIVE))
    def note(case: MadeUp) -> None:
        cases.append(case)

    note()
    return cases


async def status_of(client: httpx.AsyncClient, case: MadeUp, headers: dict[str, str]) -> int:
    body: str | bytes | None = None
    if not isinstance(case.body, NotSet):
        body = case.body if isinstance(case.body, bytes) else json.dumps(case.body, default=repr)
    answer = await client.request(
        case.method,
        case.formatted_path,
        params=case.query,
        content=body,
        headers=headers | ({} if body is None else {"content-type": case.media_type or ""}),
    )
    return answer.status_code


@pytest.mark.parametrize(
    "authorization",
    [
        "",
        "Bearer",
        "Bearer ",
        "Basic",
        "Basic !!!",
        "Basic dXNlcg==",
        "Digest x",
        "Bearer x" * 200,
        f"Bearer {key_of(ADMIN)}x",
        f"Bearer {key_of(ADMIN)[:-1]}",
        f"Bearer {key_of(ADMIN)},Bearer {key_of(ADMIN)}",
        f"Bearer {key_of(ADMIN, 1)}",
        f"Basic {key_of(ADMIN)}",
        f"Bearer {key_of(ADMIN).replace('eruca_', 'Eruca_')}",
        "Bearer \u00e9",
    ],
)
async def test_what_is_no_whole_key_is_refused_alike(rules: Path, authorization: str) -> None:
    async with caller_of("namesrv", rules) as client:
        header = [(b"authorization", authorization.encode("latin-1"))]
        answer = await client.get("/v1/brokers", headers=header)
    assert answer.status_code == 401
    assert answer.json()["detail"] == "the credentials are not valid here"
    assert key_of(ADMIN)[-20:] not in answer.text


@pytest.mark.parametrize("target", ["/docs", "/openapi.json", "/healthz", "/problems/forbidden"])
async def test_the_documentation_is_open_to_everybody(rules: Path, target: str) -> None:
    async with caller_of("broker", rules) as client:
        assert (await client.get(target)).status_code == 200


async def test_the_document_of_a_closed_service_offers_no_way_in_without_credentials(
    rules: Path,
) -> None:
    async with caller_of("broker", rules) as client:
        document = (await client.get("/openapi.json")).json()
    assert document["components"]["securitySchemes"].keys() == {"bearer", "basic"}
    for item in document["paths"].values():
        for operation in item.values():
            assert {} not in operation["security"]
