"""OpenTelemetry traces: the sender and the handlers of a message are in one trace.

``instrument(client)`` adds spans to everything that the client makes from then on. Other clients do
not change. It requires the extra ``otel``, which is opentelemetry-api. The program configures with
OpenTelemetry's SDK where spans are exported::

    from eruca import otel

    client = otel.instrument(eruca.Client())

* A send is a PRODUCER span. The message carries its W3C context in the properties ``traceparent``
  and ``tracestate``: up to 600 bytes, which count towards the limit of properties. A message that
  already has a ``traceparent`` keeps it. The messages of one ``send_many`` share one span. The span
  of a transaction's message begins before the half message is stored.
* The request that carries the message has the context as headers. So a broker that exports spans
  (``ERUCA_TRACES``) continues the trace. If a request carries messages of several traces, it
  belongs to that of the first one.
* A handler of a push consumer, and a ``handling`` block of a simple consumer, runs in a CONSUMER
  span that continues its message's trace. Retries, delayed and redriven messages have the
  properties of the original message, and so its trace. A half message has them when it is
  committed.
* A handler of batches runs in one span with a link to each message.
* Polled messages are handled by the program's own code: put it into ``with processing(message):``.

If a handler raises, exceeds its time limit or returns a verdict other than success, its span has
the status error. Its attribute ``eruca.handle.outcome`` has RocketMQ's name of the outcome.

The spans are made by an :class:`eruca.Interceptor`. ``instrument`` adds it after those that the
client already has, so that it is the innermost one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, TypeVar
from weakref import WeakKeyDictionary

try:
    from opentelemetry import trace
    from opentelemetry.context import Context
    from opentelemetry.trace import Link, Span, SpanKind, StatusCode, Tracer, TracerProvider
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "eruca.otel requires opentelemetry-api: install it, for example as the extra eruca[otel]",
        name=error.name,
    ) from None

from eruca.aio.client import AsyncClient
from eruca.contract.errors import ValidationError
from eruca.contract.properties import TRACE_PARENT
from eruca.core.interceptors import HandleCall, HandleOutcome, Interceptor, SendCall
from eruca.core.messages.message import Message
from eruca.core.messages.received_message import ReceivedMessage

if TYPE_CHECKING:
    from eruca.sync.client import Client

AnyClient = TypeVar("AnyClient", "Client", AsyncClient)

_PROPAGATOR: Final = TraceContextTextMapPropagator()
_SYSTEM: Final = "eruca"
_instrumented: Final[WeakKeyDictionary[Client | AsyncClient, TracerProvider | None]] = (
    WeakKeyDictionary()
)


def instrument(client: AnyClient, *, tracer_provider: TracerProvider | None = None) -> AnyClient:
    """Add spans to everything that *client* makes from now on; return the client.

    An instrumented client is returned unchanged.

    Args:
        client: The client.
        tracer_provider: Receives the spans; default: OpenTelemetry's global provider.

    Raises:
        ValidationError: The client already uses another provider.
    """
    from eruca.sync.client import Client  # late: async programs do not need it

    if not isinstance(client, AsyncClient | Client):
        raise ValidationError(f"client: expected a client of eruca, found {client!r:.60}")
    if client in _instrumented:
        if _meant(tracer_provider) is not _meant(_instrumented[client]):
            raise ValidationError(
                "tracer_provider: the client already uses another provider",
                fix="instrument a client once, or make a client for each provider",
            )
        return client
    _instrumented[client] = tracer_provider
    client.add_interceptor(_Tracing(trace.get_tracer(_SYSTEM, tracer_provider=tracer_provider)))
    return client


@contextmanager
def processing(
    messages: ReceivedMessage | Sequence[ReceivedMessage],
    *,
    group: str | None = None,
    tracer_provider: TracerProvider | None = None,
) -> Iterator[Span]:
    """Run a block in the CONSUMER span of the messages that it handles.

    Args:
        messages: One message, whose trace continues; or several, which the span links to.
        group: The consumer group.
        tracer_provider: Receives the spans; default: OpenTelemetry's global provider.
    """
    tracer = trace.get_tracer(_SYSTEM, tracer_provider=tracer_provider)
    with _processing(tracer, messages, group) as span:
        yield span


class _Tracing(Interceptor):
    """Makes the spans of one client."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer

    @contextmanager
    def sending(self, call: SendCall) -> Iterator[None]:
        """Make a span of a send, and put its context into the messages."""
        operation = "create" if call.is_transaction else "send"
        topics = {message.topic for message in call.messages}
        attributes = _attributes(operation, topics, operation)
        if len(call.messages) != 1:
            attributes["messaging.batch.message_count"] = len(call.messages)
        span = self._tracer.start_span(
            _name(operation, topics), kind=SpanKind.PRODUCER, attributes=attributes
        )
        # Not as the current span beyond this block: a submitted send may end in another context.
        with trace.use_span(span):
            call.messages = [_with_context(message) for message in call.messages]
        yield
        if call.error is not None:
            _fail(span, call.error)
        elif len(call.results) == 1:
            [result] = call.results
            span.set_attribute("messaging.message.id", result.message_id)
            queue = f"{result.queue.broker_name}/{result.queue.queue_id}"
            span.set_attribute("messaging.destination.partition.id", queue)
        span.end()

    @contextmanager
    def handling(self, call: HandleCall) -> Iterator[None]:
        """Run a handler in the span of its messages."""
        messages = call.messages if call.takes_list else call.messages[0]
        with _processing(self._tracer, messages, call.group) as span:
            yield
            if call.outcome is not None:
                span.set_attribute("eruca.handle.outcome", call.outcome.value)
            if call.error is not None:
                _fail(span, call.error)
            elif call.outcome is not HandleOutcome.SUCCESS:
                span.set_status(StatusCode.ERROR, call.reason or "it was cancelled")


def _meant(tracer_provider: TracerProvider | None) -> TracerProvider:
    return trace.get_tracer_provider() if tracer_provider is None else tracer_provider


@contextmanager
def _processing(
    tracer: Tracer, given: ReceivedMessage | Sequence[ReceivedMessage], group: str | None
) -> Iterator[Span]:
    messages = [given] if isinstance(given, ReceivedMessage) else list(given)
    topics = {message.topic for message in messages}
    attributes = _attributes("process", topics, "process")
    if group is not None:
        attributes["messaging.consumer.group.name"] = group
    if messages:
        attributes["messaging.destination.partition.id"] = (
            f"{messages[0].broker_name}/{messages[0].queue_id}"
        )
    contexts = [_PROPAGATOR.extract(message.properties, Context()) for message in messages]
    parent, links = None, None
    if isinstance(given, ReceivedMessage):
        attributes["messaging.message.id"] = given.message_id or given.offset_message_id
        if trace.get_current_span(contexts[0]).get_span_context().is_valid:
            parent = contexts[0]
    else:
        attributes["messaging.batch.message_count"] = len(messages)
        origins = [trace.get_current_span(context).get_span_context() for context in contexts]
        links = [Link(origin) for origin in origins if origin.is_valid]
    with tracer.start_as_current_span(
        _name("process", topics),
        context=parent,
        kind=SpanKind.CONSUMER,
        attributes=attributes,
        links=links,
    ) as span:
        yield span


def _name(operation: str, topics: set[str]) -> str:
    return " ".join((operation, *topics)) if len(topics) == 1 else operation


def _attributes(operation: str, topics: set[str], kind: str) -> dict[str, str | int]:
    attributes: dict[str, str | int] = {
        "messaging.system": _SYSTEM,
        "messaging.operation.name": operation,
        "messaging.operation.type": kind,
    }
    if len(topics) == 1:
        [attributes["messaging.destination.name"]] = topics
    return attributes


def _with_context(message: Message) -> Message:
    """Return *message* with the context of the current span, unless it has one."""
    properties = message.properties
    carrier: dict[str, str] = {}
    _PROPAGATOR.inject(carrier)
    added = {name: value for name, value in carrier.items() if value}
    if TRACE_PARENT in properties or not added:
        return message
    return _copy(message, {**properties, **added})


def _copy(message: Message, properties: Mapping[str, str]) -> Message:
    return Message(
        message.topic,
        message.body,
        keys=message.keys,
        tag=message.tag,
        properties=properties,
        sharding_key=message.sharding_key,
        message_id=message.message_id,
        flag=message.flag,
        deliver_at=message.deliver_at,
        delay_seconds=message.delay_seconds,
        delay_level=message.delay_level,
    )


def _fail(span: Span, error: BaseException) -> None:
    span.record_exception(error)
    span.set_status(StatusCode.ERROR, f"{type(error).__name__}: {error}")
