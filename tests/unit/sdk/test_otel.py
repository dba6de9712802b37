"""Traces with OpenTelemetry's API alone, which is all that the extra ``otel`` installs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from opentelemetry import trace
from opentelemetry.context import Context

import eruca
from eruca import otel
from support.inboxes import received

TRACE_ID = "0af7651916cd43dd8448eb211c80319c"


class Tracer(trace.NoOpTracer):
    """Starts spans that are their parents: that it does so is up to OpenTelemetry's version."""

    def start_span(self, name: str, context: Context | None = None, **_: Any) -> trace.Span:  # type: ignore[override]  # noqa: ANN401
        parent = trace.get_current_span(context)
        return trace.NonRecordingSpan(parent.get_span_context())

    @contextmanager
    def start_as_current_span(self, name: str, **given: Any) -> Iterator[trace.Span]:  # type: ignore[override]  # noqa: ANN401
        with trace.use_span(self.start_span(name, given.get("context"))) as span:
            yield span


class Provider(trace.NoOpTracerProvider):
    def get_tracer(self, *_: Any, **__: Any) -> Tracer:  # noqa: ANN401
        return Tracer()


def test_what_is_handled_goes_on_with_the_trace_of_its_message() -> None:
    message = received(traceparent=f"00-{TRACE_ID}-b7ad6b7169203331-01")

    with otel.processing(message, group="billing", tracer_provider=Provider()):
        inside = trace.get_current_span().get_span_context()

    assert trace.format_trace_id(inside.trace_id) == TRACE_ID
    assert not trace.get_current_span().get_span_context().is_valid


def test_a_client_can_be_instrumented_before_it_is_open() -> None:
    client = eruca.AsyncClient("http://127.0.0.1:9")

    assert otel.instrument(client) is client
    assert client.producer() is not None
