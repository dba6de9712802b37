"""Requests with spans: the classes of a service whose traces are exported (:mod:`..spans.otel`).

A service without traces uses the plain classes, and passes nothing of this module.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from eruca_chassis.asgi import Message, Receive, Scope, Send, joined_headers, request_id
from eruca_chassis.connections.answer_queue import AnswerQueue
from eruca_chassis.connections.exchange import Carrier, Exchange, RequestHead
from eruca_chassis.metrics import CLIENT_GONE_STATUS

if TYPE_CHECKING:
    from eruca_chassis.spans.otel import OtelTracing


class TracedExchange(Exchange):
    """An exchange with a span, if it is sampled."""

    tracing: OtelTracing  # set on the subclass that :func:`traced_exchange` makes

    def __init__(
        self, carrier: Carrier, request: RequestHead, client: tuple[str, int] | None
    ) -> None:
        super().__init__(carrier, request, client)
        self._span = self.tracing.begin(request.method, request.headers)

    def complete(self) -> None:
        """Let the handler answer, for this request."""
        with self.tracing.running(self._span):
            super().complete()

    def resume(self, step: Callable[..., object], *arguments: object) -> None:
        """Continue with *step*, for this request."""
        with self.tracing.running(self._span):
            super().resume(step, *arguments)

    def end_span(self) -> None:
        """End the span: the exchange has ended."""
        if self._span is not None:
            status = self.status or CLIENT_GONE_STATUS
            self._span.end(status, self.request.route.template, self.request_id)


class TracedAnswerQueue(AnswerQueue):
    """An answer queue that ends the spans of its exchanges."""

    def end(self, exchange: Exchange) -> None:
        """End an exchange and its span."""
        super().end(exchange)
        assert isinstance(exchange, TracedExchange), "a connection has exchanges of one class"
        exchange.end_span()


class TracedApp:
    """An application that answers each request in a span, if it is sampled.

    Args:
        app: Answers.
        template_of: Returns the path's template of a request that was answered.
        tracing: Makes the spans.
    """

    def __init__(
        self,
        app: Callable[[Scope, Receive, Send], Awaitable[None]],
        template_of: Callable[[Scope], str],
        tracing: OtelTracing,
    ) -> None:
        self._app = app
        self._template_of = template_of
        self._tracing = tracing

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        is_request = scope["type"] == "http"
        headers = joined_headers(scope["headers"]) if is_request else {}
        span = self._tracing.begin(scope["method"], headers) if is_request else None
        if span is None:
            await self._app(scope, receive, send)
            return
        status = CLIENT_GONE_STATUS

        async def send_and_note(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            with self._tracing.running(span):
                await self._app(scope, receive, send_and_note)
        finally:
            span.end(status, self._template_of(scope), request_id(scope))


def traced_exchange(tracing: OtelTracing) -> type[Exchange]:
    """Return the class of exchanges whose spans *tracing* makes."""
    return type("ServedExchange", (TracedExchange,), {"tracing": tracing})
