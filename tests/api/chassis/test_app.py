"""Any service's application, as a client sees it: refusals are problems, answers have ids."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated

import httpx
import pytest
import structlog
from anyio.lowlevel import checkpoint
from fastapi import Path, Query
from pydantic import BaseModel, ConfigDict
from structlog.testing import capture_logs

from eruca.contract.errors import ConflictError, OverloadedError
from eruca_chassis.admission.needs import PUBLIC
from eruca_chassis.app import ServiceApp
from eruca_chassis.asgi import ClientGoneError
from eruca_chassis.connections.exchange import JSON_CREATED, BodyLimit, Exchange
from eruca_chassis.documents.problems import problems
from eruca_chassis.requests.validation import ERROR_COUNT_MAX
from eruca_chassis.routes.router import Router
from support.budgets import ManualBudget
from support.hot_routes import Hot, hot_router
from support.services import client_of

pytestmark = pytest.mark.anyio


class Thing(BaseModel):
    model_config = ConfigDict(extra="forbid")

    size: int


router = Router(prefix="/v1/things", tags=["things"])


@router.put("/{name}", operation_id="putThing", responses=problems(ConflictError), needs=PUBLIC)
async def put_thing(
    name: Annotated[str, Path(max_length=8)],
    thing: Thing,
    *,
    limit: Annotated[int, Query(ge=1, le=10)] = 1,
    mark: Annotated[list[str], Query(default_factory=list)],
) -> Thing:
    """Put a thing."""
    return thing


@router.get("/{name}", operation_id="getThing", needs=PUBLIC)
async def get_thing(name: str) -> Thing:
    """Get a thing."""
    if name == "gone":
        raise ClientGoneError
    if name == "told":
        structlog.get_logger().info("told")
        return Thing(size=1)
    if name == "taken":
        raise ConflictError("somebody else has it", fix="take another")
    raise ZeroDivisionError(name)


PARTS_LIMIT = BodyLimit(ManualBudget(1_000), 100, "parts_size_max")


def admit_parts(exchange: Exchange) -> None:
    exchange.expect_body(PARTS_LIMIT)


def post_parts(exchange: Exchange) -> None:
    match exchange.body:
        case b"busy":
            raise OverloadedError("parts_max, 7, are there", retry_after_seconds=2.5)
        case b"broken":
            raise ZeroDivisionError
    exchange.answer(JSON_CREATED, b'{"size":%d}' % len(exchange.request.parameters["name"]))


PARTS = Hot("POST", "/v1/things/{name}/parts", post_parts, admit=admit_parts)


@asynccontextmanager
async def lifespan(app: ServiceApp) -> AsyncIterator[None]:
    app.open_routes()
    app.readiness.ready()
    yield


@pytest.fixture
def app() -> ServiceApp:
    return ServiceApp(
        title="Things",
        summary="Things and their parts",
        description="For tests.",
        version="1",
        routers=[router, hot_router(PARTS)],
        tags=[{"name": "things"}],
        lifespan=lifespan,
        body_bytes_max=1_000,
        bodies_bytes_max=2_100,
    )


@pytest.fixture
async def client(app: ServiceApp) -> AsyncIterator[httpx.AsyncClient]:
    async with client_of(app) as client:
        yield client


def assert_problem(answer: httpx.Response, status: int, code: str) -> dict[str, object]:
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"
    document: dict[str, object] = answer.json()
    assert document["status"] == status
    assert document["code"] == code
    assert document["type"] == f"/problems/{code}"
    assert document["request_id"] == answer.headers["x-request-id"]
    return document


async def test_an_unknown_path_is_a_problem(client: httpx.AsyncClient) -> None:
    for path in ("/", "/v1/nothing", "/v1/things/", "/v1/things/a/parts/", "/%2e%2e", "/v1//x"):
        assert_problem(await client.get(path), 404, "not-found")


async def test_a_wrong_method_is_told_all_right_ones_hot_or_not(client: httpx.AsyncClient) -> None:
    refused = await client.delete("/v1/things/a")
    assert_problem(refused, 405, "method-not-allowed")
    assert refused.headers["allow"] == "GET, HEAD, PUT"

    assert (await client.get("/v1/things/a/parts")).headers["allow"] == "POST"
    assert (await client.post("/healthz")).headers["allow"] == "GET, HEAD"


async def test_wrong_values_are_all_named(client: httpx.AsyncClient) -> None:
    refused = await client.put(
        "/v1/things/much-too-long", params={"limit": 99}, json={"size": "x", "colour": 1}
    )

    problem = assert_problem(refused, 422, "validation-failed")
    errors = problem["errors"]
    assert isinstance(errors, list)
    assert {error["pointer"] for error in errors} == {
        "/path/name",
        "/query/limit",
        "/body/size",
        "/body/colour",
    }


async def test_a_slip_in_the_name_of_a_parameter_is_refused(client: httpx.AsyncClient) -> None:
    answer = await client.put("/v1/things/a?limti=3&limit=2", json={"size": 1})

    problem = answer.json()
    assert (answer.status_code, problem["fix"]) == (422, "valid parameters: limit, mark")
    assert problem["errors"] == [
        {
            "pointer": "/query/limti",
            "detail": "unknown parameter; did you mean 'limit'?",
        }
    ]


async def test_an_operation_without_parameters_takes_none(client: httpx.AsyncClient) -> None:
    """Parameters that belong into a body, such as a dry run, are not ignored."""
    problem = assert_problem(
        await client.get("/v1/things/a?dry_run=true"), 422, "validation-failed"
    )

    assert problem["detail"] == "/query/dry_run: unknown parameter"
    assert problem["fix"] == "leave it out: this operation has no query parameters"
    assert (await client.get("/readyz?probe=1")).status_code == 200
    assert (await client.get("/openapi.json?probe=1")).status_code == 200


async def test_a_body_that_is_compressed_as_a_whole_is_named_so(client: httpx.AsyncClient) -> None:
    compressed = {"content-encoding": "gzip", "content-type": "application/json"}
    plain = {"content-encoding": "identity", "content-type": "application/json"}

    refused = await client.put(
        "/v1/things/a", content=gzip.compress(b'{"size":1}'), headers=compressed
    )
    taken = await client.put("/v1/things/a", content=b'{"size":1}', headers=plain)

    problem = assert_problem(refused, 415, "unsupported-media-type")
    assert problem["detail"] == "unsupported Content-Encoding gzip"
    assert taken.status_code == 200


async def test_a_parameter_is_given_once_unless_it_is_a_list(client: httpx.AsyncClient) -> None:
    listed = await client.put("/v1/things/a?mark=x&mark=x&limit=2", json={"size": 1})
    refused = await client.put("/v1/things/a?limit=2&limit=2", json={"size": 1})

    assert listed.status_code == 200
    problem = assert_problem(refused, 422, "validation-failed")
    assert problem["errors"] == [{"pointer": "/query/limit", "detail": "it is given twice"}]


async def test_a_query_of_thousands_of_slips_is_answered_in_brief(
    client: httpx.AsyncClient,
) -> None:
    many = await client.put("/v1/things/a?" + "&".join(f"limit/{n}" for n in range(5_000)))
    long = await client.put("/v1/things/a?" + "limit" * 10_000)

    errors = many.json()["errors"]
    assert len(errors) == ERROR_COUNT_MAX
    assert errors[7] == {
        "pointer": "/query/limit~17",
        "detail": "unknown parameter; did you mean 'limit'?",
    }
    assert many.json()["detail"].endswith("(and 4999 more)")
    assert len(long.content) < 1_000


@pytest.mark.parametrize(
    ("content", "content_type", "status", "code"),
    [
        (b'{"size"', "application/json", 400, "malformed-body"),
        (b"\xff\xfe", "application/json", 400, "malformed-body"),
        (b"[" * 900, "application/json", 400, "malformed-body"),
        (b"9" * 900, "application/json", 422, "validation-failed"),
        (b'{"size":1}', "text/plain", 415, "unsupported-media-type"),
        (b"size=1", "application/x-www-form-urlencoded", 415, "unsupported-media-type"),
        (b"", "application/json", 422, "validation-failed"),
        (b"null", "application/json", 422, "validation-failed"),
        (b'{"size":"\\ud800"}', "application/json", 422, "validation-failed"),
        (b'{"size":1e999}', "application/json", 422, "validation-failed"),
        (b'{"\\ud800":1}', "application/json", 422, "validation-failed"),
    ],
)
async def test_a_body_that_cannot_be_used_says_why(
    client: httpx.AsyncClient, content: bytes, content_type: str, status: int, code: str
) -> None:
    refused = await client.put(
        "/v1/things/a", content=content, headers={"content-type": content_type}
    )

    assert_problem(refused, status, code)


async def test_a_body_without_a_type_is_taken_for_json(client: httpx.AsyncClient) -> None:
    answer = await client.put("/v1/things/a", content=b'{"size":1}')

    assert (answer.status_code, answer.json()) == (200, {"size": 1})


async def test_a_body_that_is_too_large_is_refused_declared_or_not(
    client: httpx.AsyncClient,
) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        for _ in range(11):
            yield b" " * 100

    for content in (b" " * 1_001, chunks()):
        refused = await client.put("/v1/things/a", content=content)
        problem = assert_problem(refused, 413, "too-large")
        assert "body_bytes_max, 1000 bytes" in str(problem["detail"])


async def test_bodies_under_way_are_capped_together_and_given_back(app: ServiceApp) -> None:
    may_go_on = asyncio.Event()

    async def half_a_body() -> AsyncIterator[bytes]:
        yield b" " * 900
        await may_go_on.wait()
        yield b'{"size":1}'

    async with client_of(app) as client:
        uploads = [
            asyncio.create_task(client.put("/v1/things/a", content=half_a_body())) for _ in range(2)
        ]
        while (refused := await client.put("/v1/things/a", content=b" " * 900)).is_client_error:
            if refused.status_code == 429:
                break
            await checkpoint()
        assert "bodies_bytes_max: 1928 of 2100 are in use" in refused.json()["detail"]
        assert refused.headers["retry-after"] == "1"
        may_go_on.set()
        assert {answer.status_code for answer in await asyncio.gather(*uploads)} == {200}
        assert (await client.put("/v1/things/a", json={"size": 1})).status_code == 200


async def test_an_error_of_the_contract_is_sent_as_it_is(client: httpx.AsyncClient) -> None:
    problem = assert_problem(await client.get("/v1/things/taken"), 409, "conflict")

    assert (problem["detail"], problem["fix"]) == ("somebody else has it", "take another")


@pytest.mark.parametrize("is_hot", [False, True])
async def test_a_defect_is_logged_under_its_request_id_and_tells_nothing(
    client: httpx.AsyncClient, *, is_hot: bool
) -> None:
    headers = {"x-request-id": "find-me", "traceparent": f"00-{'a' * 32}-{'b' * 16}-01"}
    with capture_logs() as logs:
        if is_hot:
            answer = await client.post("/v1/things/a/parts", content=b"broken", headers=headers)
        else:
            answer = await client.get("/v1/things/a", headers=headers)

    problem = assert_problem(answer, 500, "internal")
    assert problem["request_id"] == "find-me"
    assert "ZeroDivision" not in answer.text
    [entry] = logs
    assert (entry["request_id"], entry["trace_id"]) == ("find-me", "a" * 32)
    assert entry["exc_info"]


async def test_what_is_logged_on_a_request_s_behalf_names_it_and_its_trace(
    client: httpx.AsyncClient,
) -> None:
    headers = {"x-request-id": "find-me"}
    traced = headers | {"traceparent": f"00-{'a' * 32}-{'b' * 16}-01"}
    with capture_logs([structlog.contextvars.merge_contextvars]) as logs:
        for each in (traced, headers, headers | {"traceparent": "00-nonsense"}):
            await client.get("/v1/things/told", headers=each)

    told = {"event": "told", "log_level": "info", "request_id": "find-me"}
    assert logs == [told | {"trace_id": "a" * 32}, told, told]


async def test_a_client_that_left_is_counted_and_no_defect(
    app: ServiceApp, client: httpx.AsyncClient
) -> None:
    with capture_logs() as logs:
        await client.get("/v1/things/gone")

    assert logs == []
    labels = {"method": "GET", "route": "/v1/things/{name}", "status": "499"}
    assert app.registry.get_sample_value("eruca_http_requests_total", labels) == 1


async def test_a_hot_route_answers_for_itself_and_its_errors_are_problems(
    client: httpx.AsyncClient,
) -> None:
    answer = await client.post("/v1/things/a%20b/parts", content=b"x")
    assert (answer.status_code, answer.json()) == (201, {"size": 3})

    refused = await client.post("/v1/things/a/parts", content=b"busy")
    assert_problem(refused, 429, "overloaded")
    assert refused.headers["retry-after"] == "3"

    refused = await client.post("/v1/things/a/parts", content=b"x" * 101)
    problem = assert_problem(refused, 413, "too-large")
    assert "parts_size_max" in str(problem["detail"])


async def test_a_request_id_is_echoed_if_sane_and_made_if_not(client: httpx.AsyncClient) -> None:
    for sent, kept in (("abc-1", True), ("a b", False)):
        answer = await client.get("/healthz", headers={"x-request-id": sent})
        assert (answer.headers["x-request-id"] == sent) is kept
        assert len(answer.headers.get_list("x-request-id")) == 1


async def test_head_answers_as_get_does_without_the_body(client: httpx.AsyncClient) -> None:
    answer = await client.head("/healthz")

    assert answer.status_code == 200
    assert answer.headers["content-length"] == str(len((await client.get("/healthz")).content))


async def test_nothing_is_served_before_and_after_being_ready(
    app: ServiceApp, client: httpx.AsyncClient
) -> None:
    assert (await client.get("/readyz")).json() == {"status": "ready"}

    app.begin_stop()

    for path in ("/readyz", "/v1/things/taken", "/v1/nothing"):
        refused = await client.get(path)
        assert_problem(refused, 503, "not-ready")
        assert refused.headers["retry-after"] == "1"
    assert_problem(await client.post("/v1/things/a/parts"), 503, "not-ready")
    assert (await client.get("/healthz")).status_code == 200


async def test_what_needs_less_than_the_service_waits_only_for_the_start() -> None:
    app = ServiceApp(
        title="T", summary="", description="", version="1", routers=[router], ungated=["/v1/things"]
    )
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        assert_problem(await client.get("/v1/things/taken"), 503, "not-ready")

        app.readiness.not_ready("there is no database")

        assert_problem(await client.get("/v1/things/taken"), 409, "conflict")


async def test_stop_hooks_run_once_readiness_is_off(app: ServiceApp) -> None:
    seen = []
    app.stop_hooks.append(lambda: seen.append(app.readiness.is_stopping))

    app.begin_stop()

    assert seen == [True]


async def test_metrics_are_by_template_whatever_paths_are_asked_for(
    client: httpx.AsyncClient,
) -> None:
    for name in ("a", "b", "c"):
        await client.put(f"/v1/things/{name}", json={"size": 1})
        await client.post(f"/v1/things/{name}/parts", content=b"x")
        await client.get(f"/{name}")

    lines = (await client.get("/metrics")).text.splitlines()

    counts = [line for line in lines if line.startswith("eruca_http_requests_total")]
    assert set(counts) == {
        'eruca_http_requests_total{method="POST",route="/v1/things/{name}/parts",status="201"} 3.0',
        'eruca_http_requests_total{method="PUT",route="/v1/things/{name}",status="200"} 3.0',
        'eruca_http_requests_total{method="GET",route="(none)",status="404"} 3.0',
    }
    assert any(line.startswith("process_resident_memory_bytes") for line in lines)


async def test_every_problem_type_is_described_where_it_points(client: httpx.AsyncClient) -> None:
    refused = await client.get("/v1/things/taken")

    described = await client.get(refused.json()["type"])

    assert described.json()["code"] == "conflict"
    assert described.json()["status"] == 409
    assert_problem(await client.get("/problems/made-up"), 404, "not-found")


async def test_the_openapi_document_declares_what_the_chassis_refuses(
    client: httpx.AsyncClient,
) -> None:
    document = (await client.get("/openapi.json")).json()

    put = document["paths"]["/v1/things/{name}"]["put"]
    refusals = ["400", "403", "409", "413", "415", "421", "422", "429", "503"]
    assert list(put["responses"]) == ["200", *refusals]
    assert put["operationId"] == "putThing"
    assert put["responses"]["422"]["content"].keys() == {"application/problem+json"}
    assert "HTTPValidationError" not in document["components"]["schemas"]
    assert document["components"]["schemas"]["Problem"]["required"]
    assert document["servers"] == [{"url": "/", "description": "this service"}]
    assert "503" not in document["paths"]["/healthz"]["get"]["responses"]
