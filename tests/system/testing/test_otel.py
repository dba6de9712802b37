"""Traces: what is sent to a real broker is handled in the trace of its sender."""

from __future__ import annotations

import asyncio
import importlib
import queue
import sys
from collections.abc import Iterator

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

import eruca
from eruca import otel
from eruca_testing import InMemoryBroker
from support.patience import PATIENCE_SECONDS

TOPIC = "orders"


class Spans:
    """The spans that have ended."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))

    def of(self, kind: SpanKind) -> list[ReadableSpan]:
        return [span for span in self.exporter.get_finished_spans() if span.kind is kind]


@pytest.fixture
def spans() -> Spans:
    return Spans()


@pytest.fixture
def broker() -> Iterator[InMemoryBroker]:
    with InMemoryBroker() as broker:
        yield broker


@pytest.fixture
def client(broker: InMemoryBroker, spans: Spans) -> Iterator[eruca.Client]:
    with otel.instrument(
        eruca.Client(broker.namesrv_urls), tracer_provider=spans.provider
    ) as client:
        client.admin.create_topic(TOPIC, queue_count=1)
        yield client


def identity(span: ReadableSpan) -> tuple[int, int]:
    assert span.context is not None
    return span.context.trace_id, span.context.span_id


def parent(span: ReadableSpan) -> tuple[int, int]:
    assert span.parent is not None
    return span.parent.trace_id, span.parent.span_id


def test_each_attempt_goes_on_with_the_trace_of_the_send(
    broker: InMemoryBroker, client: eruca.Client, spans: Spans
) -> None:
    handled: queue.Queue[int] = queue.Queue()
    consumer = client.push_consumer("billing", start="earliest")

    @consumer.on(TOPIC)
    def handle(message: eruca.ReceivedMessage) -> None:
        handled.put(trace.get_current_span().get_span_context().span_id)
        if message.attempt == 1:
            raise ValueError("declined")

    with client.producer() as producer, consumer:
        sent = producer.send(eruca.Message(TOPIC, "order 17", properties={"city": "Rome"}))
        inside = [handled.get(timeout=PATIENCE_SECONDS)]
        broker.wait_delayed()
        broker.advance(10)
        inside.append(handled.get(timeout=PATIENCE_SECONDS))

    [send] = spans.of(SpanKind.PRODUCER)
    attempts = spans.of(SpanKind.CONSUMER)
    assert [identity(span)[1] for span in attempts] == inside
    assert {parent(span) for span in attempts} == {identity(send)}
    assert [span.status.status_code for span in attempts] == [StatusCode.ERROR, StatusCode.UNSET]
    assert (send.name, {span.name for span in attempts}) == ("send orders", {"process orders"})
    assert send.attributes == {
        "messaging.system": "eruca",
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.destination.name": TOPIC,
        "messaging.message.id": sent.message_id,
        "messaging.destination.partition.id": f"{sent.queue.broker_name}/0",
    }
    assert attempts[1].attributes is not None
    assert attempts[1].attributes["messaging.consumer.group.name"] == "billing"
    assert attempts[1].attributes["messaging.message.id"] == sent.message_id
    assert broker.messages(TOPIC)[0].properties.keys() == {"city", "traceparent"}


def test_a_batch_is_linked_with_each_of_its_messages(client: eruca.Client, spans: Spans) -> None:
    batches: queue.Queue[int] = queue.Queue()
    with client.producer() as producer:
        producer.send_many([eruca.Message(TOPIC, f"{n}") for n in range(2)])
        producer.submit(eruca.Message(TOPIC, "2")).result(PATIENCE_SECONDS)
    consumer = client.push_consumer("billing", start="earliest", batch_count_max=3)

    @consumer.on(TOPIC)
    def handle(messages: list[eruca.ReceivedMessage]) -> eruca.ConsumeStatus:
        batches.put(len(messages))
        return eruca.ConsumeStatus.RECONSUME_LATER

    with consumer:
        count = 0
        while count < 3:
            count += batches.get(timeout=PATIENCE_SECONDS)

    sends = spans.of(SpanKind.PRODUCER)
    handled = spans.of(SpanKind.CONSUMER)
    linked = [(link.context.trace_id, link.context.span_id) for s in handled for link in s.links]
    many, one = map(identity, sends)
    assert sorted(linked) == sorted([many, many, one])
    assert {span.parent for span in handled} == {None}
    assert {span.status.status_code for span in handled} == {StatusCode.ERROR}


def test_what_is_begun_again_in_another_trace_is_the_same_transaction(
    client: eruca.Client, broker: InMemoryBroker, spans: Spans
) -> None:
    message = eruca.Message(TOPIC, "paid", message_id="order-17")
    with client.transaction_producer("shop") as producer:
        producer.send_in_transaction(message, lambda _half: "unknown")  # and the program ends
        with producer.transaction(message):
            pass

    [stored] = broker.messages(TOPIC)
    first, again = spans.of(SpanKind.PRODUCER)
    assert identity(first)[0] != identity(again)[0]
    assert f"-{identity(first)[0]:032x}-" in stored.properties["traceparent"]


def test_a_half_message_and_a_polled_one_keep_the_trace(client: eruca.Client, spans: Spans) -> None:
    with client.transaction_producer("shop") as producer:
        with producer.transaction(eruca.Message(TOPIC, "block")):
            pass
        producer.send_in_transaction(eruca.Message(TOPIC, "function"), lambda half: "commit")
    with client.pull_consumer(topics=TOPIC, start="earliest") as consumer:
        for message in consumer.poll(wait_seconds=PATIENCE_SECONDS):
            with otel.processing(message, tracer_provider=spans.provider):
                pass

    sends, handled = spans.of(SpanKind.PRODUCER), spans.of(SpanKind.CONSUMER)
    assert [span.name for span in sends] == ["create orders", "create orders"]
    assert list(map(parent, handled)) == list(map(identity, sends))


def test_a_handling_block_that_raises_is_an_error(client: eruca.Client, spans: Spans) -> None:
    with (
        client.producer() as producer,
        client.simple_consumer("billing", TOPIC, start="earliest") as consumer,
    ):
        producer.send(eruca.Message(TOPIC, "order 17"))
        [delivery] = consumer.receive(wait_seconds=PATIENCE_SECONDS)
        with pytest.raises(ValueError, match="declined"):  # noqa: PT012, SIM117
            with consumer.handling(delivery) as handling:
                assert handling.message == delivery.message
                raise ValueError("declined")

    [send], [handled] = spans.of(SpanKind.PRODUCER), spans.of(SpanKind.CONSUMER)
    assert parent(handled) == identity(send)
    assert handled.status.status_code is StatusCode.ERROR


def test_a_send_that_fails_is_an_error(spans: Spans) -> None:
    lost = eruca.Message("nowhere", "x")
    with (
        InMemoryBroker({"auto_create_topics": False}) as broker,
        otel.instrument(
            eruca.Client(broker.namesrv_urls), tracer_provider=spans.provider
        ) as client,
        client.producer() as producer,
    ):
        with pytest.raises(eruca.TopicNotFoundError):
            producer.send(lost)
        with pytest.raises(eruca.TopicNotFoundError):
            producer.submit(lost).result(PATIENCE_SECONDS)

    assert [span.status.status_code for span in spans.of(SpanKind.PRODUCER)] == [
        StatusCode.ERROR,
        StatusCode.ERROR,
    ]


@pytest.mark.anyio
async def test_the_same_with_async(broker: InMemoryBroker, spans: Spans) -> None:
    async with otel.instrument(
        eruca.AsyncClient(broker.namesrv_urls), tracer_provider=spans.provider
    ) as client:
        await client.admin.create_topic(TOPIC, queue_count=1)
        tracer = spans.provider.get_tracer("test")
        async with client.producer() as producer:
            with tracer.start_as_current_span("request"):
                await producer.send(eruca.Message(TOPIC, "0"))
                await producer.send_many([eruca.Message(TOPIC, "1")])
                await (await producer.submit(eruca.Message(TOPIC, "2")))
                await producer.send_oneway(eruca.Message(TOPIC, "3"))
        async with client.simple_consumer("billing", TOPIC, start="earliest") as consumer:
            for delivery in await consumer.receive(4, wait_seconds=PATIENCE_SECONDS):
                async with consumer.handling(delivery):
                    assert trace.get_current_span().is_recording()
        ended = asyncio.Event()
        for number, register in enumerate(("on", "subscribe")):
            ended.clear()
            pushed = client.push_consumer(f"pushed-{number}", start="earliest")

            async def handle(message: eruca.ReceivedMessage) -> None:
                if message.text() == "3":
                    ended.set()

            if register == "on":
                pushed.on(TOPIC)(handle)
            else:
                pushed.subscribe(TOPIC, "*", handle)
            async with pushed:
                await asyncio.wait_for(ended.wait(), PATIENCE_SECONDS)

    sends, handled = spans.of(SpanKind.PRODUCER), spans.of(SpanKind.CONSUMER)
    assert len(sends) == 4
    assert sorted(map(parent, handled)) == sorted(list(map(identity, sends)) * 3)
    [request] = spans.of(SpanKind.INTERNAL)
    assert {parent(send) for send in sends} == {identity(request)}


def test_a_message_that_has_a_context_keeps_it(
    broker: InMemoryBroker, client: eruca.Client
) -> None:
    context = f"00-{'1' * 32}-{'2' * 16}-01"
    with client.producer() as producer:
        producer.send(eruca.Message(TOPIC, "x", properties={"traceparent": context}))

    assert broker.messages(TOPIC)[0].properties == {"traceparent": context}


def test_without_an_sdk_messages_are_as_they_were(broker: InMemoryBroker) -> None:
    with (
        otel.instrument(eruca.Client(broker.namesrv_urls)) as client,
        client.producer() as producer,
    ):
        producer.send(eruca.Message(TOPIC, "x"))

    assert broker.messages(TOPIC)[0].properties == {}


def test_a_client_that_is_instrumented_again_tells_each_span_once(
    broker: InMemoryBroker, client: eruca.Client, spans: Spans
) -> None:
    assert otel.instrument(client, tracer_provider=spans.provider) is client

    with client.producer() as producer:
        producer.send(eruca.Message(TOPIC, "x"))

    assert [span.name for span in spans.of(SpanKind.PRODUCER)] == ["send orders"]


def test_the_global_provider_is_the_same_whether_it_is_named_or_not() -> None:
    with eruca.Client() as client:
        otel.instrument(client)
        otel.instrument(client, tracer_provider=trace.get_tracer_provider())


def test_a_client_cannot_tell_its_spans_to_two_providers(
    broker: InMemoryBroker, client: eruca.Client, spans: Spans
) -> None:
    with pytest.raises(eruca.ValidationError, match="already uses another provider"):
        otel.instrument(client, tracer_provider=TracerProvider())
    with pytest.raises(eruca.ValidationError, match="already uses another provider"):
        otel.instrument(client)

    with client.producer() as producer:
        producer.send(eruca.Message(TOPIC, "x"))
    assert len(spans.of(SpanKind.PRODUCER)) == 1


def test_where_opentelemetry_is_missing_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "eruca.otel")
    monkeypatch.setitem(sys.modules, "opentelemetry", None)

    with pytest.raises(ModuleNotFoundError, match=r"the extra eruca\[otel\]"):
        importlib.import_module("eruca.otel")
