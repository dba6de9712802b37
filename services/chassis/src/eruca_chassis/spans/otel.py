"""Spans of requests and of shared work, exported by OpenTelemetry over OTLP/HTTP.

A request's span is a child of the caller's ``traceparent``. By default only requests with a sampled
``traceparent`` have one: most of a busy service's requests belong to no trace.
``OTEL_TRACES_SAMPLER`` changes that. Spans of shared work (:mod:`.tracing`) are roots with links,
made for sampled requests only, so no sampler decides about them.

Spans wait in a queue of limited size (``OTEL_BSP_MAX_QUEUE_SIZE``) for a thread that sends them. If
the collector is slow or away, the oldest ones are dropped, and no request waits.

If OpenTelemetry raises an error, there is no span, and the request or the write goes on. The first
error of a service is logged.

A context variable has the span of the request for which code runs. A callback that the event loop
runs later inherits it from the code that scheduled it, which may be another request's. So each step
of an exchange sets its own (:mod:`eruca_chassis.connections.traced`), and a span that has ended is
no origin.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from itertools import islice
from time import time_ns
from typing import Final

import structlog
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ALWAYS_ON, ParentBased
from opentelemetry.trace import Link, Span, SpanContext, SpanKind, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from eruca_chassis.asgi import trace_context_said
from eruca_chassis.metrics import CLIENT_GONE_STATUS
from eruca_chassis.spans.tracing import LINKS_MAX, Linked
from eruca_chassis.versions import version_of

CLOSE_SECONDS: Final = 3.0  # for the last spans; then they are lost
_log = structlog.get_logger()
_PROPAGATOR: Final = TraceContextTextMapPropagator()
_WITHOUT_ROOTS: Final = frozenset({"", "always_off", "parentbased_always_off"})  # "": the default
_SERVER_ERROR_STATUS: Final = 500


class SpanLink(Linked):
    """A span that others may link to, and its context."""

    __slots__ = ("context", "span")

    def __init__(self, span: Span) -> None:
        self.span = span
        self.context: SpanContext = span.get_span_context()


class RequestSpan(SpanLink):
    """The span of a request in progress."""

    __slots__ = ("_tracing", "method")

    def __init__(self, span: Span, method: str, tracing: OtelTracing) -> None:
        super().__init__(span)
        self.method = method
        self._tracing = tracing

    def end(self, status: int, template: str, request_id: str) -> None:
        """End the span.

        Args:
            status: Of the answer; 499: the client was gone.
            template: The route's path.
            request_id: The request's id, by which the log knows it.
        """
        span = self.span
        with self._tracing.guarded():
            span.update_name(f"{self.method} {template}")
            span.set_attributes(
                {
                    "http.route": template,
                    "http.response.status_code": status,
                    "eruca.request_id": request_id,
                }
            )
            if status >= _SERVER_ERROR_STATUS or status == CLIENT_GONE_STATUS:
                span.set_attribute("error.type", str(status))
                span.set_status(StatusCode.ERROR)
            span.end()


def _is_sampled(traceparent: str) -> bool:
    """Tell whether the caller's span is sampled: the lowest bit of the flags, the fourth field."""
    return bool(int(traceparent.split("-", 4)[3], 16) & 1)


_current: Final[ContextVar[RequestSpan | None]] = ContextVar("eruca request span", default=None)


class OtelTracing:
    """Makes and exports the spans of one service.

    Args:
        distribution: The service's; the default of its name.
    """

    def __init__(self, distribution: str) -> None:
        sampler = os.environ.get("OTEL_TRACES_SAMPLER", "")
        self._begins_traces = sampler not in _WITHOUT_ROOTS
        self._has_failed = False
        # Else a caller's invalid tracestate is a warning for each of its requests.
        logging.getLogger("opentelemetry.trace.span").setLevel(logging.ERROR)
        defaults = {"service.name": distribution, "service.version": version_of(distribution)}
        said = OTELResourceDetector().detect().attributes
        resource = Resource.create({**defaults, **said})
        self._exporter = OTLPSpanExporter()
        self._processor = BatchSpanProcessor(self._exporter)
        # With None, OpenTelemetry reads the variable.
        chosen = None if sampler else ParentBased(ALWAYS_OFF)
        requests = TracerProvider(sampler=chosen, resource=resource, shutdown_on_exit=False)
        work = TracerProvider(sampler=ALWAYS_ON, resource=resource, shutdown_on_exit=False)
        for provider in (requests, work):
            provider.add_span_processor(self._processor)
        self._requests = requests.get_tracer(distribution)
        self._work = work.get_tracer(distribution)

    def begin(self, method: str, headers: Mapping[bytes, bytes]) -> RequestSpan | None:
        """Begin the span of a request; None if it is not sampled.

        Args:
            method: GET, POST ….
            headers: Names in lower case.
        """
        said = trace_context_said(headers)
        if not self._begins_traces and not (said and _is_sampled(said["traceparent"])):
            return None  # no sampler would decide otherwise, and asking one takes ten times as long
        with self.guarded():
            span = self._requests.start_span(
                method,
                context=_PROPAGATOR.extract(said, Context()),
                kind=SpanKind.SERVER,
                attributes={"http.request.method": method},
            )
            return RequestSpan(span, method, self) if span.is_recording() else None
        return None

    @contextmanager
    def guarded(self) -> Iterator[None]:
        """Run the block, which makes a span; if OpenTelemetry fails, log its first error."""
        try:
            yield
        except Exception as error:
            if not self._has_failed:
                self._has_failed = True
                _log.warning("a span could not be made", error=repr(error), exc_info=True)

    @contextmanager
    def running(self, span: RequestSpan | None) -> Iterator[None]:
        """Run the block for the request of *span*, or for none that is sampled."""
        token = _current.set(span)
        try:
            yield
        finally:
            _current.reset(token)

    def current(self) -> RequestSpan | None:
        """Return the span of the request for which the caller works; None: no sampled one."""
        span = _current.get()
        return span if span is not None and span.span.is_recording() else None

    def worked(
        self,
        name: str,
        started_ns: int,
        links: Iterable[Linked],
        attributes: Mapping[str, int],
        error: BaseException | None = None,
    ) -> SpanLink | None:
        """Record work that has just ended, as :meth:`.tracing.Tracing.worked` says.

        The spans that still last link to it, too, so that it is found from either side.
        """
        with self.guarded():
            return self._worked(name, started_ns, links, attributes, error)
        return None

    def _worked(
        self,
        name: str,
        started_ns: int,
        links: Iterable[Linked],
        attributes: Mapping[str, int],
        error: BaseException | None,
    ) -> SpanLink:
        origins = [one for one in islice(links, LINKS_MAX) if isinstance(one, SpanLink)]
        span = self._work.start_span(
            name,
            context=Context(),
            kind=SpanKind.INTERNAL,
            links=[Link(origin.context) for origin in origins],
            attributes=dict(attributes),
            start_time=started_ns,
        )
        if error is not None:
            span.record_exception(error)
            span.set_status(StatusCode.ERROR, f"{type(error).__name__}: {error}")
        span.end(time_ns())
        worked = SpanLink(span)
        for origin in origins:
            if origin.span.is_recording():
                origin.span.add_link(worked.context)
        return worked

    async def close(self) -> None:
        """Send the spans that wait; those that the collector does not take soon are lost.

        This takes at most :data:`CLOSE_SECONDS`. An attempt that then still waits for an answer is
        left to its thread, which does not outlive the process.
        """
        loop = asyncio.get_running_loop()
        closed = asyncio.Event()

        def shut_down() -> None:
            try:
                self._processor.shutdown()  # type: ignore[no-untyped-call]
            finally:
                with suppress(RuntimeError):  # the loop is closed: nobody waits any more
                    loop.call_soon_threadsafe(closed.set)

        threading.Thread(target=shut_down, name="traces-close", daemon=True).start()
        try:
            async with asyncio.timeout(CLOSE_SECONDS):
                await closed.wait()
        except TimeoutError:
            # No further attempt is made.
            self._exporter.shutdown()  # type: ignore[no-untyped-call]
            _log.warning("the last spans are lost", waited_seconds=CLOSE_SECONDS)
