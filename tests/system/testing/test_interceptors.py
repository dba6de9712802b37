"""Interceptors: what a program's own code sees around sends, receives and handlers."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import queue
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest

import eruca
from eruca import HandleOutcome
from eruca_testing import InMemoryBroker
from support.patience import PATIENCE_SECONDS

TOPIC = "orders"
tenant: contextvars.ContextVar[str] = contextvars.ContextVar("tenant", default="nobody")


class Notes(eruca.Interceptor):
    """Writes down each call when it ends."""

    def __init__(self, name: str = "") -> None:
        self.name = name
        self.sends: queue.Queue[eruca.SendCall] = queue.Queue()
        self.receives: queue.Queue[eruca.ReceiveCall] = queue.Queue()
        self.handles: queue.Queue[eruca.HandleCall] = queue.Queue()

    @contextmanager
    def sending(self, call: eruca.SendCall) -> Iterator[None]:
        yield
        self.sends.put(call)

    @contextmanager
    def receiving(self, call: eruca.ReceiveCall) -> Iterator[None]:
        yield
        self.receives.put(call)

    @contextmanager
    def handling(self, call: eruca.HandleCall) -> Iterator[None]:
        token = tenant.set(f"{tenant.get()}/{self.name}")
        yield
        tenant.reset(token)
        self.handles.put(call)

    def handled(self) -> eruca.HandleCall:
        return self.handles.get(timeout=PATIENCE_SECONDS)


class Stamping(eruca.Interceptor):
    """Adds a property to every message."""

    @contextmanager
    def sending(self, call: eruca.SendCall) -> Iterator[None]:
        call.messages = [
            eruca.Message(one.topic, one.body, properties={"by": "stamp"}) for one in call.messages
        ]
        yield


class Broken(eruca.Interceptor):
    """Fails before some calls, and after the others."""

    @contextmanager
    def sending(self, call: eruca.SendCall) -> Iterator[None]:
        call.messages = ()
        yield
        raise RuntimeError("broken after")

    def handling(self, call: eruca.HandleCall) -> AbstractContextManager[None]:
        raise RuntimeError("broken before")


@pytest.fixture
def broker() -> Iterator[InMemoryBroker]:
    with InMemoryBroker() as broker:
        with eruca.Client(broker.namesrv_urls) as client:
            client.admin.create_topic(TOPIC, queue_count=1)
        yield broker


def handled_by(
    broker: InMemoryBroker, handler: eruca.Handler, *, text: str = "order 17", **options: object
) -> eruca.HandleCall:
    """Return the call in which *handler* got a message of this text."""
    notes = Notes()
    with eruca.Client(broker.namesrv_urls, interceptors=[notes]) as client:
        client.producer().send(eruca.Message(TOPIC, text))
        consumer = client.push_consumer("billing", start="earliest", **options)  # type: ignore[arg-type]
        consumer.subscribe(TOPIC, "*", handler)
        with consumer:
            return notes.handled()


def test_a_send_tells_its_messages_and_their_places(broker: InMemoryBroker) -> None:
    notes = Notes()
    with eruca.Client(broker.namesrv_urls, interceptors=[notes]) as client:
        producer = client.producer("shop")
        one = producer.send(eruca.Message(TOPIC, "0"))
        many = producer.send_many([eruca.Message(TOPIC, "1"), eruca.Message(TOPIC, "2")])
        later = producer.submit(eruca.Message(TOPIC, "3")).result(PATIENCE_SECONDS)
        producer.send_oneway(eruca.Message(TOPIC, "4"))
        calls = [notes.sends.get(timeout=PATIENCE_SECONDS) for _ in range(4)]

    assert [[m.body.decode() for m in call.messages] for call in calls] == [
        ["0"],
        ["1", "2"],
        ["3"],
        ["4"],
    ]
    assert [list(call.results) for call in calls[:3]] == [[one], list(many), [later]]
    assert {(call.group, call.is_transaction, call.error) for call in calls} == {
        ("shop", False, None)
    }


def test_a_failed_send_tells_its_error() -> None:
    notes = Notes()
    lost = eruca.Message("nowhere", "x")
    with (
        InMemoryBroker({"auto_create_topics": False}) as broker,
        eruca.Client(broker.namesrv_urls, interceptors=[notes]) as client,
    ):
        producer = client.producer()
        with pytest.raises(eruca.TopicNotFoundError):
            producer.send(lost)
        with pytest.raises(eruca.TopicNotFoundError):
            producer.send_many([lost])
        with pytest.raises(eruca.TopicNotFoundError):
            producer.submit(lost).result(PATIENCE_SECONDS)

        errors = [notes.sends.get(timeout=PATIENCE_SECONDS).error for _ in range(3)]

    assert [type(error) for error in errors] == [eruca.TopicNotFoundError] * 3


def test_a_transaction_tells_the_sending_of_its_half_message(broker: InMemoryBroker) -> None:
    notes = Notes()
    with (
        eruca.Client(broker.namesrv_urls, interceptors=[notes, Stamping()]) as client,
        client.transaction_producer("shop") as producer,
        producer.transaction(eruca.Message(TOPIC, "order 17")),
    ):
        call = notes.sends.get(timeout=PATIENCE_SECONDS)

    assert (call.is_transaction, call.group, call.error) == (True, "shop", None)
    assert broker.messages(TOPIC)[0].properties["by"] == "stamp"


def test_interceptors_replace_messages(broker: InMemoryBroker) -> None:
    with eruca.Client(broker.namesrv_urls, interceptors=[Stamping()]) as client:
        producer = client.producer()
        producer.send(eruca.Message(TOPIC, "0"))
        producer.send_many([eruca.Message(TOPIC, "1")])
        producer.submit(eruca.Message(TOPIC, "2")).result(PATIENCE_SECONDS)

    stored = broker.messages(TOPIC)
    assert [(m.text(), m.properties["by"]) for m in stored] == [
        ("0", "stamp"),
        ("1", "stamp"),
        ("2", "stamp"),
    ]


def test_the_first_interceptor_is_the_outermost(broker: InMemoryBroker) -> None:
    seen: queue.Queue[str] = queue.Queue()
    with eruca.Client(broker.namesrv_urls, interceptors=[Notes("a")]) as client:
        client.add_interceptor(Notes("b"))
        client.producer().send(eruca.Message(TOPIC, "0"))
        consumer = client.push_consumer("billing", start="earliest")
        consumer.subscribe(TOPIC, "*", lambda message: seen.put(tenant.get()))
        with consumer:
            assert seen.get(timeout=PATIENCE_SECONDS) == "nobody/a/b"


def test_what_a_broken_interceptor_raises_costs_no_message(
    broker: InMemoryBroker, caplog: pytest.LogCaptureFixture
) -> None:
    handled: queue.Queue[str] = queue.Queue()
    with (
        caplog.at_level(logging.ERROR, "eruca"),
        eruca.Client(broker.namesrv_urls, interceptors=[Broken()]) as client,
    ):
        client.producer().send(eruca.Message(TOPIC, "order 17"))
        consumer = client.push_consumer("billing", start="earliest")
        consumer.subscribe(TOPIC, "*", lambda message: handled.put(message.text()))
        with consumer:
            assert handled.get(timeout=PATIENCE_SECONDS) == "order 17"

    logged = " ".join(record.message for record in caplog.records)
    assert "interceptors replaced 1 messages by 0" in logged
    assert "an interceptor failed after its call" in logged
    assert "an interceptor failed before its call" in logged


# --- outcomes of handlers -------------------------------------------------------------------------


def test_a_handler_that_returns_has_succeeded(broker: InMemoryBroker) -> None:
    call = handled_by(broker, lambda message: None)

    assert (call.outcome, call.error, call.reason) == (HandleOutcome.SUCCESS, None, None)
    assert (call.group, call.takes_list) == ("billing", False)
    assert [message.text() for message in call.messages] == ["order 17"]


def test_a_handler_that_raises_is_an_exception(broker: InMemoryBroker) -> None:
    async def handle(message: eruca.ReceivedMessage) -> None:
        raise ValueError("declined")

    call = handled_by(broker, handle)

    assert call.outcome is HandleOutcome.EXCEPTION
    assert isinstance(call.error, ValueError)
    assert call.reason is not None
    assert "declined" in call.reason


@pytest.mark.parametrize("is_ordered", [False, True])
def test_a_handler_that_returns_a_failure_has_failed(
    broker: InMemoryBroker, is_ordered: bool
) -> None:
    call = handled_by(
        broker, lambda message: eruca.ConsumeStatus.RECONSUME_LATER, ordered=is_ordered
    )

    assert (call.outcome, call.error) == (HandleOutcome.FAILED, None)


def test_a_handler_that_commits_has_succeeded(broker: InMemoryBroker) -> None:
    call = handled_by(
        broker,
        lambda message: eruca.ConsumeStatus.COMMIT,
        ordered=True,
        offsets=eruca.Offsets(auto_commit=False),
    )

    assert call.outcome is HandleOutcome.SUCCESS


def test_none_is_a_failure_of_its_own_kind_if_the_consumer_says_so(broker: InMemoryBroker) -> None:
    call = handled_by(broker, lambda message: None, retries=eruca.Retries(none_is_failure=True))

    assert call.outcome is HandleOutcome.RETURNNULL


def test_an_async_handler_that_is_cancelled_for_its_time_has_timed_out(
    broker: InMemoryBroker,
) -> None:
    async def handle(message: eruca.ReceivedMessage) -> None:
        await asyncio.Event().wait()

    call = handled_by(broker, handle, consume_timeout_seconds=0.05)

    assert (call.outcome, call.error) == (HandleOutcome.TIME_OUT, None)


def test_a_thread_that_returns_too_late_has_timed_out(broker: InMemoryBroker) -> None:
    too_late = threading.Event()

    def handle(message: eruca.ReceivedMessage) -> None:
        if message.attempt == 1:
            assert not too_late.wait(0.1)  # nobody sets it: this is the handler's long work

    call = handled_by(broker, handle, consume_timeout_seconds=0.05)

    assert call.outcome is HandleOutcome.TIME_OUT


def test_a_block_of_a_simple_consumer_has_outcomes_too(broker: InMemoryBroker) -> None:
    notes = Notes("block")
    with eruca.Client(broker.namesrv_urls, interceptors=[notes]) as client:
        client.producer().send_many([eruca.Message(TOPIC, str(n)) for n in range(3)])
        with client.simple_consumer("billing", TOPIC, start="earliest") as consumer:
            first, second, third = consumer.receive(3, wait_seconds=PATIENCE_SECONDS)
            with consumer.handling(first):
                assert tenant.get() == "nobody/block"
            assert tenant.get() == "nobody"
            with consumer.handling(second) as handling:
                handling.nack()
            with pytest.raises(ValueError, match="declined"), consumer.handling(third):
                raise ValueError("declined")
        calls = [notes.handled() for _ in range(3)]

    assert [call.outcome for call in calls] == [
        HandleOutcome.SUCCESS,
        HandleOutcome.FAILED,
        HandleOutcome.EXCEPTION,
    ]
    assert [m.text() for m in notes.receives.get(timeout=PATIENCE_SECONDS).messages] == [
        "0",
        "1",
        "2",
    ]


def test_a_poll_tells_its_messages(broker: InMemoryBroker) -> None:
    notes = Notes()
    with eruca.Client(broker.namesrv_urls, interceptors=[notes]) as client:
        client.producer().send(eruca.Message(TOPIC, "0"))
        consumer = client.pull_consumer("billing", topics=TOPIC, start="earliest")
        polled = consumer.poll(wait_seconds=PATIENCE_SECONDS)
        call = notes.receives.get(timeout=PATIENCE_SECONDS)

    assert [m.text() for m in call.messages] == [m.text() for m in polled] == ["0"]
    assert (call.group, call.error) == ("billing", None)


@pytest.mark.anyio
async def test_the_same_with_async(broker: InMemoryBroker) -> None:
    notes = Notes("block")
    async with eruca.AsyncClient(broker.namesrv_urls, interceptors=[notes]) as client:
        await client.producer().send(eruca.Message(TOPIC, "0"))
        async with client.simple_consumer("billing", TOPIC, start="earliest") as consumer:
            [delivery] = await consumer.receive(wait_seconds=PATIENCE_SECONDS)
            async with consumer.handling(delivery):
                assert tenant.get() == "nobody/block"

    assert notes.handles.get_nowait().outcome is HandleOutcome.SUCCESS
    assert notes.sends.get_nowait().error is None


def test_an_interceptor_costs_only_the_calls_that_it_surrounds(broker: InMemoryBroker) -> None:
    with eruca.Client(broker.namesrv_urls, interceptors=[Stamping()]) as client:
        plain = client.pull_consumer(topics=TOPIC)

        assert type(plain._twin) is eruca.AsyncPullConsumer


@pytest.mark.parametrize("nonsense", [None, Stamping, "x"])
def test_what_is_no_interceptor_is_refused(nonsense: object) -> None:
    with pytest.raises(eruca.ValidationError, match="interceptor"):
        eruca.Client(interceptors=[nonsense])  # type: ignore[list-item]
