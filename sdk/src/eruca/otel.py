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
* A handler of a push consumer, and a ``handling`` block of a simple consumer, runs in a CONSUMER
  span that continues its message's trace. Retries, delayed and redriven messages have the
  properties of the original message, and so its trace. A half message has them when it is
  committed.
* A handler of batches runs in one span with a link to each message.
* Polled messages are handled by the program's own code: put it into ``with processing(message):``.

If a handler raises or returns a verdict other than success, its span has the status error.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import wraps
from typing import TYPE_CHECKING, Any, Final, TypeVar
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
from eruca.aio.push_consumer import AsyncPushConsumer
from eruca.contract.errors import ValidationError
from eruca.core.consuming.consume_status import ConsumeStatus
from eruca.core.consuming.handler_shape import handler_shape
from eruca.core.filters.tag_expression import SUBSCRIBE_ALL
from eruca.core.messages.message import Message
from eruca.core.messages.received_message import ReceivedMessage
from eruca.core.producing.send_result import SendResult

if TYPE_CHECKING:
    from eruca.core.consuming.delivery import Delivery
    from eruca.core.filters.subscription_filter import Filter
    from eruca.sync.client import Client

AnyClient = TypeVar("AnyClient", "Client", AsyncClient)

_PROPAGATOR: Final = TraceContextTextMapPropagator()
_PARENT: Final = "traceparent"
_SYSTEM: Final = "eruca"
_SUCCESSES: Final = (None, ConsumeStatus.SUCCESS, ConsumeStatus.COMMIT)
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
    tracing = _Tracing(trace.get_tracer(_SYSTEM, tracer_provider=tracer_provider))
    for name, dress in (
        ("producer", tracing.dress_producer),
        ("transaction_producer", tracing.dress_transactions),
        ("push_consumer", tracing.dress_push_consumer),
        ("simple_consumer", tracing.dress_simple_consumer),
    ):
        setattr(client, name, _dressing(getattr(client, name), dress))
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


class _Tracing:
    """Wraps methods of the objects that a client makes: only on these objects, not on classes."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer

    def dress_producer(self, producer: Any) -> None:  # noqa: ANN401
        producer.send = self._sending(producer.send)
        producer.send_many = self._sending_many(producer.send_many)
        producer.submit = self._submitting(producer.submit)
        if not inspect.iscoroutinefunction(producer.send_oneway):  # an async one submits
            producer.send_oneway = self._sending(producer.send_oneway)

    def dress_transactions(self, producer: Any) -> None:  # noqa: ANN401
        begin = producer.transaction

        @wraps(begin)
        def transaction(message: Message, *args: Any, **options: Any) -> Any:  # noqa: ANN401
            with self._span("create", [message]):
                message = _with_context(message)
            return begin(message, *args, **options)

        producer.transaction = transaction  # methods that send in a transaction call this, too

    def dress_push_consumer(self, consumer: Any) -> None:  # noqa: ANN401
        subscribe, register = consumer.subscribe, consumer.on

        @wraps(subscribe)
        def subscribed(
            topic: str,
            filter: Filter | None = SUBSCRIBE_ALL,
            handler: Callable[..., Any] | None = None,
            **options: Any,  # noqa: ANN401
        ) -> None:
            traced = None if handler is None else self._handling(handler, consumer.group)
            subscribe(topic, filter, traced, **options)

        @wraps(register)
        def on(*args: Any, **options: Any) -> Any:  # noqa: ANN401
            decorate = register(*args, **options)

            def traced(handler: Callable[..., Any]) -> Callable[..., Any]:
                decorate(self._handling(handler, consumer.group))
                return handler

            return traced

        consumer.subscribe = subscribed
        if not isinstance(consumer, AsyncPushConsumer):  # an async one subscribes
            consumer.on = on

    def dress_simple_consumer(self, consumer: Any) -> None:  # noqa: ANN401
        handle = consumer.handling

        @wraps(handle)
        def handling(delivery: Delivery) -> _Handling:
            return _Handling(
                handle(delivery), _processing(self._tracer, delivery.message, consumer.group)
            )

        consumer.handling = handling

    def _sending(self, send: Callable[..., Any]) -> Callable[..., Any]:
        if inspect.iscoroutinefunction(send):

            @wraps(send)
            async def sent(message: Message, *args: Any, **options: Any) -> Any:  # noqa: ANN401
                with self._span("send", [message]) as span:
                    return _told(span, await send(_with_context(message), *args, **options))

            return sent

        @wraps(send)
        def sent_here(message: Message, *args: Any, **options: Any) -> Any:  # noqa: ANN401
            with self._span("send", [message]) as span:
                return _told(span, send(_with_context(message), *args, **options))

        return sent_here

    def _sending_many(self, send_many: Callable[..., Any]) -> Callable[..., Any]:
        if inspect.iscoroutinefunction(send_many):

            @wraps(send_many)
            async def sent(messages: Any, **options: Any) -> Any:  # noqa: ANN401
                messages = list(messages)
                with self._span("send", messages):
                    return await send_many(list(map(_with_context, messages)), **options)

            return sent

        @wraps(send_many)
        def sent_here(messages: Any, **options: Any) -> Any:  # noqa: ANN401
            messages = list(messages)
            with self._span("send", messages):
                return send_many(list(map(_with_context, messages)), **options)

        return sent_here

    def _submitting(self, submit: Callable[..., Any]) -> Callable[..., Any]:
        if inspect.iscoroutinefunction(submit):

            @wraps(submit)
            async def submitted(message: Message, **options: Any) -> Any:  # noqa: ANN401
                with self._span("send", [message], end_on_exit=False) as span:
                    future = await submit(_with_context(message), **options)
                    future.add_done_callback(lambda done: _end(span, done))
                return future

            return submitted

        @wraps(submit)
        def submitted_here(message: Message, **options: Any) -> Any:  # noqa: ANN401
            with self._span("send", [message], end_on_exit=False) as span:
                future = submit(_with_context(message), **options)
                future.add_done_callback(lambda done: _end(span, done))
            return future

        return submitted_here

    def _handling(self, handler: Callable[..., Any], group: str) -> Callable[..., Any]:
        if handler_shape(handler).is_async:

            @wraps(handler)
            async def handled(messages: Any, *context: Any) -> Any:  # noqa: ANN401
                with _processing(self._tracer, messages, group) as span:
                    return _judged(span, await handler(messages, *context))

            return handled

        @wraps(handler)
        def handled_here(messages: Any, *context: Any) -> Any:  # noqa: ANN401
            with _processing(self._tracer, messages, group) as span:
                return _judged(span, handler(messages, *context))

        return handled_here

    @contextmanager
    def _span(
        self, operation: str, messages: Sequence[Message], *, end_on_exit: bool = True
    ) -> Iterator[Span]:
        topics = {message.topic for message in messages}
        attributes = _attributes(operation, topics, operation)
        if len(messages) != 1:
            attributes["messaging.batch.message_count"] = len(messages)
        span = self._tracer.start_span(
            _name(operation, topics), kind=SpanKind.PRODUCER, attributes=attributes
        )
        try:
            with trace.use_span(span, end_on_exit=False):
                yield span
        except BaseException:
            span.end()
            raise
        if end_on_exit:
            span.end()


class _Handling:
    """A delivery being handled, in its span; sync or async, like the wrapped one."""

    def __init__(self, handling: Any, block: Any) -> None:  # noqa: ANN401
        self._handling = handling
        self._block = block

    def __enter__(self) -> Any:  # noqa: ANN401
        handling = self._handling.__enter__()
        self._block.__enter__()
        return handling

    def __exit__(self, *raised: Any) -> None:  # noqa: ANN401
        self._block.__exit__(*raised)
        self._handling.__exit__(*raised)

    async def __aenter__(self) -> Any:  # noqa: ANN401
        handling = await self._handling.__aenter__()
        self._block.__enter__()
        return handling

    async def __aexit__(self, *raised: Any) -> None:  # noqa: ANN401
        self._block.__exit__(*raised)
        await self._handling.__aexit__(*raised)


def _meant(tracer_provider: TracerProvider | None) -> TracerProvider:
    return trace.get_tracer_provider() if tracer_provider is None else tracer_provider


def _dressing(make: Callable[..., Any], dress: Callable[[Any], None]) -> Callable[..., Any]:
    @wraps(make)
    def made(*args: Any, **options: Any) -> Any:  # noqa: ANN401
        thing = make(*args, **options)
        dress(thing)
        return thing

    return made


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
    if _PARENT in properties or not added:
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


def _told(span: Span, result: Any) -> Any:  # noqa: ANN401
    """Record in *span* where a message was stored; return the result."""
    if isinstance(result, SendResult):
        span.set_attribute("messaging.message.id", result.message_id)
        queue = f"{result.queue.broker_name}/{result.queue.queue_id}"
        span.set_attribute("messaging.destination.partition.id", queue)
    return result


def _end(span: Span, done: Any) -> None:  # noqa: ANN401 - a future of either kind
    if done.cancelled():
        span.set_status(StatusCode.ERROR, "cancelled")
    elif (error := done.exception()) is not None:
        span.record_exception(error)
        span.set_status(StatusCode.ERROR, str(error))
    else:
        _told(span, done.result())
    span.end()


def _judged(span: Span, verdict: Any) -> Any:  # noqa: ANN401
    """Give *span* the status error if a handler's verdict is a failure; return the verdict."""
    if verdict not in _SUCCESSES:
        span.set_status(StatusCode.ERROR, f"the handler returned {verdict}")
    return verdict
