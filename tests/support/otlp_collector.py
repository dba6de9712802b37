"""A collector of OpenTelemetry spans, over OTLP/HTTP, on this machine."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

from support.patience import PATIENCE_SECONDS


@dataclass(frozen=True)
class CollectedSpan:
    """A span that a service has exported."""

    service: str
    name: str
    trace_id: str
    span_id: str
    parent_id: str  # empty: none
    kind: int
    links: tuple[tuple[str, str], ...]  # trace id, span id
    attributes: dict[str, Any] = field(hash=False)
    seconds: float
    is_error: bool

    @property
    def identity(self) -> tuple[str, str]:
        """The ids by which links name it."""
        return self.trace_id, self.span_id


class Collector:
    """The spans exported so far; from :func:`collecting`."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._spans: list[CollectedSpan] = []
        self._come = threading.Condition()

    @property
    def spans(self) -> list[CollectedSpan]:
        """All spans."""
        with self._come:
            return list(self._spans)

    def add(self, request: ExportTraceServiceRequest) -> None:
        """Keep the spans of an export."""
        found = [
            _collected(_attributes(of_resource.resource.attributes)["service.name"], span)
            for of_resource in request.resource_spans
            for of_scope in of_resource.scope_spans
            for span in of_scope.spans
        ]
        with self._come:
            self._spans += found
            self._come.notify_all()

    def wait(self, *wanted: Callable[[CollectedSpan], bool]) -> list[CollectedSpan]:
        """Return the first span of each kind, once there is one."""

        def firsts() -> list[CollectedSpan | None]:
            return [next((s for s in self._spans if is_it(s)), None) for is_it in wanted]

        with self._come:
            assert self._come.wait_for(lambda: None not in firsts(), PATIENCE_SECONDS), [
                (span.service, span.name) for span in self._spans
            ]
            return [span for span in firsts() if span is not None]


@contextmanager
def collecting() -> Iterator[Collector]:
    """Run a collector for the block."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            assert self.path == "/v1/traces", self.path
            assert self.headers["content-type"] == "application/x-protobuf"
            body = self.rfile.read(int(self.headers["content-length"]))
            if self.headers.get("content-encoding") == "gzip":
                body = gzip.decompress(body)
            collector.add(ExportTraceServiceRequest.FromString(body))
            answer = ExportTraceServiceResponse().SerializeToString()
            self.send_response(200)
            self.send_header("content-type", "application/x-protobuf")
            self.send_header("content-length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        collector = Collector(f"http://127.0.0.1:{server.server_port}")
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield collector
        finally:
            server.shutdown()
            thread.join()


def _collected(service: str, span: Any) -> CollectedSpan:  # noqa: ANN401  (protobuf's)
    return CollectedSpan(
        service,
        span.name,
        span.trace_id.hex(),
        span.span_id.hex(),
        span.parent_span_id.hex(),
        span.kind,
        tuple((link.trace_id.hex(), link.span_id.hex()) for link in span.links),
        _attributes(span.attributes),
        (span.end_time_unix_nano - span.start_time_unix_nano) / 1e9,
        span.status.code == 2,
    )


def _attributes(pairs: Any) -> dict[str, Any]:  # noqa: ANN401  (protobuf's)
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in pairs}
