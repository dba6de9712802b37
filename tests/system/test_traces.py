"""Spans of services, as a collector receives them: from a send to the queue that shows it."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn

import httpx
import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import format_span_id, format_trace_id

import eruca
from eruca import otel
from eruca_broker.app import create_app
from eruca_broker.settings import BrokerSettings
from eruca_chassis.spans.otel import OtelTracing
from eruca_deploy.cluster import LocalCluster
from eruca_testing import SMALL_STORE
from support.otlp_collector import CollectedSpan, Collector, collecting
from support.patience import PATIENCE_SECONDS
from support.services import serving

pytestmark = pytest.mark.anyio

BIN = Path(sys.executable).parent
TRACE = "0af7651916cd43dd8448eb211c80319c"
CALLER = "b7ad6b7169203331"
SAMPLED = f"00-{TRACE}-{CALLER}-01"
SERVER_KIND = 2
ENVIRONMENT = {"ERUCA_TRACES": "otlp", "OTEL_BSP_SCHEDULE_DELAY": "50"}


@pytest.fixture
def collector() -> Iterator[Collector]:
    with collecting() as collector:
        yield collector


def named(name: str, service: str = "eruca-broker") -> Callable[[CollectedSpan], bool]:
    return lambda span: (span.name, span.service) == (name, service)


def settings_for(collector: Collector) -> dict[str, str]:
    return {**ENVIRONMENT, "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url}


async def test_a_send_is_followed_from_its_caller_to_the_queue(collector: Collector) -> None:
    """Each service exports its own spans; those of the write are linked, and no child of one."""
    sync = {"ERUCA_BROKER_FLUSH_MODE": "sync"}
    async with LocalCluster(queries=1, settings=SMALL_STORE | settings_for(collector) | sync) as up:
        provider = TracerProvider()
        client = eruca.AsyncClient(up.namesrv_urls)
        async with otel.instrument(client, tracer_provider=provider):
            await client.admin.create_topic("orders", queue_count=1)
            with provider.get_tracer("test").start_as_current_span("order") as order:
                await client.producer().send(eruca.Message("orders", "x"))
            trace_id = format_trace_id(order.get_span_context().trace_id)
        urls = {service.name.partition("-")[0]: service.url for service in up.plan.services}
        async with httpx.AsyncClient(headers={"traceparent": SAMPLED}) as http:
            for url in (urls["query"] + "/v1/messages", up.namesrv_urls[0] + "/v1/brokers"):
                await http.get(url)
        request, append, flush, project = await asyncio.to_thread(
            collector.wait,
            named("POST /v1/topics/{topic}/queues/{queue_id}/records"),
            lambda span: span.name == "append" and span.links[0][0] == trace_id,
            named("flush"),
            named("project"),
        )
        others = await asyncio.to_thread(
            collector.wait,
            *(
                lambda span, service=service: (span.trace_id, span.service) == (TRACE, service)
                for service in ("eruca-query", "eruca-namesrv")
            ),
        )

    assert request.trace_id == trace_id
    assert request.parent_id not in ("", format_span_id(order.get_span_context().span_id))
    assert request.kind == SERVER_KIND
    assert request.attributes["http.response.status_code"] == 201
    assert append.links == (request.identity,)
    assert request.links == (append.identity,)
    assert append.identity in flush.links
    assert append.identity in project.links
    assert {span.parent_id for span in (append, flush, project)} == {""}
    assert append.attributes["eruca.bytes"] > 0
    assert request.seconds >= append.seconds > 0
    assert [span.parent_id for span in others] == [CALLER, CALLER]


@pytest.fixture
def exporting(collector: Collector, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in settings_for(collector).items():
        monkeypatch.setenv(name, value)


def broker_settings(directory: Path) -> BrokerSettings:
    return BrokerSettings(
        namesrv_urls="", store_dir=directory / "store", port=0, segment_bytes=1024**2
    )


@pytest.mark.usefixtures("exporting")
async def test_requests_of_one_tick_share_an_append_that_links_to_each(
    collector: Collector, tmp_path: Path
) -> None:
    settings = broker_settings(tmp_path)
    parents = [f"00-{number:032x}-{CALLER}-01" for number in range(1, 4)]
    head = "POST /v1/topics/orders/messages?queue_id=0 HTTP/1.1\r\nhost: localhost\r\n"
    body = '{"body": {"text": "x"}}'
    async with serving(create_app(settings), settings) as (_, address):
        base = f"http://{address[0]}:{address[1]}/v1"
        async with httpx.AsyncClient() as http:
            assert (await http.put(f"{base}/topics/orders", json={})).is_success
        reader, writer = await asyncio.open_connection(*address)
        for parent in (*parents, parents[0].removesuffix("01") + "00"):
            writer.write(
                f"{head}traceparent: {parent}\r\ncontent-type: application/json\r\n"
                f"content-length: {len(body)}\r\n\r\n{body}".encode()
            )
        async with asyncio.timeout(PATIENCE_SECONDS):
            for _ in range(4):
                answer = await reader.readuntil(b"\r\n\r\n")
                assert answer.startswith(b"HTTP/1.1 201 "), answer
                size = int(answer.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
                await reader.readexactly(size)
        writer.close()
        await writer.wait_closed()

    requests = [span for span in collector.spans if span.kind == SERVER_KIND]
    appends = [span for span in collector.spans if span.name == "append"]
    assert sorted(span.trace_id for span in requests) == [f"{n:032x}" for n in range(1, 4)]
    linked = [link for append in appends for link in append.links]
    assert sorted(linked) == sorted(span.identity for span in requests)
    assert len(appends) < len(requests), "requests that arrive together are written together"


@pytest.mark.usefixtures("exporting")
async def test_a_request_of_no_trace_or_of_one_that_is_not_sampled_has_no_span(
    collector: Collector, tmp_path: Path
) -> None:
    settings = broker_settings(tmp_path)
    async with serving(create_app(settings), settings) as (_, address):
        base = f"http://{address[0]}:{address[1]}/v1"
        async with httpx.AsyncClient() as http:
            for parent in ("", SAMPLED.removesuffix("01") + "00", "nonsense"):
                headers = {"traceparent": parent} if parent else {}
                assert (await http.get(f"{base}/topics", headers=headers)).is_success
                made = await http.put(f"{base}/topics/t{len(parent)}", json={}, headers=headers)
                assert made.is_success
            missing = await http.get(f"{base}/nowhere", headers={"traceparent": SAMPLED})
            assert missing.status_code == 404

    [span] = collector.spans
    assert (span.name, span.parent_id, span.is_error) == ("GET (none)", CALLER, False)
    assert span.attributes["eruca.request_id"] == missing.headers["x-request-id"]


@pytest.mark.usefixtures("exporting")
async def test_a_sampler_may_begin_traces_at_the_service(
    collector: Collector, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "always_on")
    monkeypatch.setenv("OTEL_SERVICE_NAME", "shop-broker")
    settings = broker_settings(tmp_path)
    async with serving(create_app(settings), settings) as (_, address), httpx.AsyncClient() as http:
        made = await http.put(f"http://{address[0]}:{address[1]}/v1/topics/orders", json={})
        assert made.is_success

    [request] = [span for span in collector.spans if span.kind == SERVER_KIND]
    [append] = [span for span in collector.spans if span.name == "append"]
    assert (request.service, request.parent_id) == ("shop-broker", "")
    assert append.links == (request.identity,)


async def test_a_collector_that_is_away_holds_up_no_request_and_hardly_the_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
    monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "512")
    settings = broker_settings(tmp_path)
    async with asyncio.timeout(PATIENCE_SECONDS):
        async with serving(create_app(settings), settings) as (_, address):
            base = f"http://{address[0]}:{address[1]}/v1"
            async with httpx.AsyncClient(headers={"traceparent": SAMPLED}) as http:
                for _ in range(600):
                    assert (await http.get(f"{base}/topics")).is_success


async def test_a_silent_collector_holds_up_the_stop_for_a_limited_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("eruca_chassis.spans.otel.CLOSE_SECONDS", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as silent:  # it accepts, and never answers
        monkeypatch.setenv(
            "OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{silent.getsockname()[1]}"
        )
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", str(int(PATIENCE_SECONDS)))
        tracing = OtelTracing("eruca-broker")
        span = tracing.begin("GET", {b"traceparent": SAMPLED.encode()})
        assert span is not None
        span.end(200, "/", "request-1")
        async with asyncio.timeout(PATIENCE_SECONDS / 4):
            await tracing.close()


@pytest.mark.usefixtures("exporting")
@pytest.mark.parametrize(
    "broken",
    [
        "eruca_chassis.spans.otel.Link",
        "eruca_chassis.spans.otel.RequestSpan",
        "opentelemetry.sdk.trace.Span.update_name",
    ],
)
async def test_a_fault_of_opentelemetry_fails_no_request_and_is_logged_once(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    broken: str,
) -> None:
    def fail(*_: object) -> NoReturn:
        raise RuntimeError("OpenTelemetry is broken")

    monkeypatch.setattr(broken, fail)
    settings = broker_settings(tmp_path)
    async with serving(create_app(settings), settings) as (_, address):
        base = f"http://{address[0]}:{address[1]}/v1"
        async with httpx.AsyncClient(headers={"traceparent": SAMPLED}) as http:
            assert (await http.put(f"{base}/topics/orders", json={})).is_success
            for _ in range(3):
                sent = await http.post(
                    f"{base}/topics/orders/messages", json={"body": {"text": "x"}}
                )
                assert sent.status_code == 201, sent.text
    log = "".join(capsys.readouterr())

    assert log.count("a span could not be made") == 1


@pytest.mark.usefixtures("exporting")
async def test_an_invalid_tracestate_is_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    tracing = OtelTracing("eruca-broker")
    headers = {b"traceparent": SAMPLED.encode(), b"tracestate": b"x"}
    span = tracing.begin("GET", headers)
    await tracing.close()

    assert span is not None
    assert [
        record.getMessage() for record in caplog.records if "opentelemetry" in record.name
    ] == []


def check(service: str, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [BIN / f"eruca-{service}", "--check"],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )


def test_the_check_says_where_spans_go_and_what_is_wrong() -> None:
    endpoint = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://user:secret@collector:4318"}
    good = check("namesrv", {**ENVIRONMENT, **endpoint, "ERUCA_NAMESRV_PORT": "0"})
    bad = check("namesrv", {**ENVIRONMENT, "OTEL_TRACES_SAMPLER": "mostly"})
    foreign = check("namesrv", {**ENVIRONMENT, "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"})

    assert "ok     traces: exported to http://collector:4318/v1/traces" in good.stdout
    assert (good.returncode, bad.returncode, foreign.returncode) == (0, 2, 2)
    assert "OTEL_TRACES_SAMPLER=mostly: unknown sampler; valid ones: always_on" in bad.stdout
    assert "OTEL_EXPORTER_OTLP_PROTOCOL=grpc: expected http/protobuf" in foreign.stdout


def test_without_opentelemetry_no_service_starts_and_the_extra_is_named(tmp_path: Path) -> None:
    code = (
        "import sys; sys.modules['opentelemetry.exporter'] = None\n"
        "from eruca_namesrv.__main__ import main; main()"
    )
    environment = {**os.environ, **ENVIRONMENT, "ERUCA_NAMESRV_PORT": "0"}
    outcomes = [
        subprocess.run(
            [sys.executable, "-c", code, *arguments],
            env=environment,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
            check=False,
        )
        for arguments in ((), ("--check",))
    ]

    said = (
        "ERUCA_TRACES=otlp: OpenTelemetry is not installed; install the extra "
        "eruca-namesrv[otel], or unset ERUCA_TRACES"
    )
    started, checked = outcomes
    assert (started.returncode, checked.returncode) == (4, 2)
    assert said in started.stderr
    assert f"fault  traces: {said}" in checked.stdout


def test_without_the_setting_nothing_of_opentelemetrys_sdk_is_imported() -> None:
    code = (
        "import sys, eruca_broker.app, eruca_chassis.running.serving; "
        "print([name for name in sys.modules if name.startswith('opentelemetry.sdk')])"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert shown.stdout.strip() == "[]"
