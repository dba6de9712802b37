"""The broker in memory: what it has, what the clock does, and that it leaves nothing behind."""

from __future__ import annotations

import queue
import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
import structlog
from pydantic import ValidationError

import eruca
from eruca_testing import InMemoryBroker
from eruca_testing import broker as module
from support.rules import key_of

WAIT_SECONDS = 30
DAY = 24 * 3_600


@pytest.fixture
def broker() -> Iterator[InMemoryBroker]:
    with InMemoryBroker() as broker:
        yield broker


@pytest.fixture
def client(broker: InMemoryBroker) -> Iterator[eruca.Client]:
    with eruca.Client(broker.namesrv_urls) as client:
        yield client


def send(client: eruca.Client, *messages: eruca.Message) -> None:
    with client.producer(send_timeout_seconds=WAIT_SECONDS) as producer:
        producer.send_many(messages)


def texts(messages: list[eruca.ReceivedMessage]) -> list[str]:
    return [message.text() for message in messages]


def test_what_is_stored_comes_in_the_order_of_storing(
    broker: InMemoryBroker, client: eruca.Client
) -> None:
    with client.producer() as producer:
        sent = [producer.send(eruca.Message("t", f"{n}", tag="red")) for n in range(9)]

    found = broker.messages("t")

    assert texts(found) == [f"{n}" for n in range(9)]
    assert [message.message_id for message in found] == [one.message_id for one in sent]
    assert [message.queue for message in found] == [one.queue for one in sent]
    assert len({message.queue for message in found}) > 1
    assert {message.tag for message in found} == {"red"}


def test_more_than_one_read_takes_is_all_there(
    broker: InMemoryBroker, client: eruca.Client
) -> None:
    client.admin.create_topic("t", queue_count=1)
    send(client, *(eruca.Message("t", bytes(3_000_000)) for _ in range(8)))
    send(client, *(eruca.Message("t", f"{n}") for n in range(3_000)))

    found = broker.messages("t")

    assert [message.queue_offset for message in found] == list(range(3_008))
    assert {message.text() for message in found[8:]} == {str(n) for n in range(3_000)}


def test_a_topic_that_is_not_there_has_no_messages(broker: InMemoryBroker) -> None:
    assert broker.messages("nowhere") == []


def test_a_topic_that_was_just_made_or_deleted_has_a_route_or_none(
    broker: InMemoryBroker, client: eruca.Client
) -> None:
    [namesrv] = broker.namesrv_urls
    with httpx.Client(base_url=f"{namesrv}/v1/topics", trust_env=False) as asking:
        for n in range(20):
            client.admin.create_topic(f"t-{n}", queue_count=1)
            assert asking.get(f"/t-{n}/route").status_code == 200
            client.admin.delete_topic(f"t-{n}")
            assert asking.get(f"/t-{n}/route").status_code == 404


def test_it_speaks_http_as_any_broker(broker: InMemoryBroker) -> None:
    sent = httpx.post(
        f"{broker.url}/v1/topics/t/messages", json={"body": {"text": "hello"}}, trust_env=False
    )

    assert sent.is_success
    assert texts(broker.messages("t")) == ["hello"]


@pytest.mark.anyio
async def test_it_goes_on_while_an_event_loop_of_the_test_waits_for_it(
    broker: InMemoryBroker,
) -> None:
    async with eruca.AsyncClient(broker.namesrv_urls) as client, client.producer() as producer:
        await producer.send(eruca.Message("t", "later", delay_seconds=DAY))
        broker.advance(DAY)

    assert texts(broker.messages("t")) == ["later"]


def test_a_delay_ends_when_the_clock_is_set_forward(
    broker: InMemoryBroker, client: eruca.Client
) -> None:
    later = [eruca.Message("t", f"{n}", delay_seconds=n * DAY) for n in (3, 1, 2)]
    send(client, *later)
    assert broker.messages("t") == []

    broker.advance(DAY)
    assert texts(broker.messages("t")) == ["1"]

    broker.advance(DAY)
    send(client, eruca.Message("t", "counts from now", delay_seconds=DAY))
    broker.advance(DAY)
    assert texts(broker.messages("t")) == ["1", "2", "3", "counts from now"]


def test_many_delays_end_at_once(broker: InMemoryBroker, client: eruca.Client) -> None:
    send(client, *(eruca.Message("t", "x", delay_seconds=DAY) for _ in range(700)))

    broker.advance(DAY)

    assert len(broker.messages("t")) == 700


def test_the_clock_is_not_set_back(broker: InMemoryBroker) -> None:
    with pytest.raises(ValueError, match="at least 0"):
        broker.advance(-1)


def test_a_failed_message_is_redelivered_to_a_member_that_is_still_there(
    broker: InMemoryBroker, client: eruca.Client
) -> None:
    attempts = queue.Queue[int]()
    client.admin.create_topic("t", queue_count=4)
    consumer = client.push_consumer("g", start="earliest")

    @consumer.on("t")
    def fail(message: eruca.ReceivedMessage) -> None:
        attempts.put(message.attempt)
        raise ValueError("not yet")

    with consumer:
        send(client, eruca.Message("t", "x"))
        for attempt in (1, 2, 3):
            assert attempts.get(timeout=WAIT_SECONDS) == attempt
            broker.wait_delayed()
            broker.advance(DAY)
        assert attempts.get(timeout=WAIT_SECONDS) == 4

    assert [message.attempt for message in broker.messages("%RETRY%g")] == [2, 3, 4]


def test_waiting_for_what_does_not_come_says_what_there_is(
    broker: InMemoryBroker, client: eruca.Client
) -> None:
    send(client, eruca.Message("t", "x", delay_seconds=DAY))
    broker.wait_delayed(1, timeout=WAIT_SECONDS)

    with pytest.raises(TimeoutError, match="expected 2 delayed messages, found 1"):
        broker.wait_delayed(2, timeout=0.01)


def test_a_delivery_that_nobody_acknowledged_is_redelivered(
    broker: InMemoryBroker, client: eruca.Client
) -> None:
    send(client, eruca.Message("t", "x"))
    with client.simple_consumer("g", "t", start="earliest") as consumer:
        [first] = consumer.receive(wait_seconds=WAIT_SECONDS)
        assert consumer.receive(wait_seconds=0) == []

        broker.advance(DAY)

        [second] = consumer.receive(wait_seconds=0)
        assert (first.attempt, second.attempt) == (1, 2)


def test_who_waits_for_a_delivery_has_it_when_the_clock_is_set_forward(
    broker: InMemoryBroker, client: eruca.Client
) -> None:
    send(client, eruca.Message("t", "x"))
    with (
        client.simple_consumer("g", "t", start="earliest") as consumer,
        ThreadPoolExecutor() as threads,
    ):
        consumer.receive(wait_seconds=WAIT_SECONDS, invisible_seconds=DAY / 2)
        waiting = threads.submit(consumer.receive, wait_seconds=WAIT_SECONDS)
        while not waiting.done():  # it may not have begun to wait at the first time
            broker.advance(DAY)

        [again] = waiting.result()
        assert again.attempt > 1


def test_away_it_is_out_of_reach_and_keeps_what_it_has(
    broker: InMemoryBroker, client: eruca.Client
) -> None:
    with client.producer(retries_max=0) as producer:
        producer.send(eruca.Message("t", "before"))
        with broker.away():
            with pytest.raises(eruca.ErucaError) as refused:
                producer.send(eruca.Message("t", "meanwhile"))
            assert refused.value.retryable
            assert texts(broker.messages("t")) == ["before"]
        producer.send(eruca.Message("t", "after"))

    assert texts(broker.messages("t")) == ["before", "after"]


def test_it_may_end_while_it_is_away() -> None:
    with InMemoryBroker() as broker, broker.away():
        pass


def test_a_consumer_goes_on_when_it_is_back(broker: InMemoryBroker, client: eruca.Client) -> None:
    handled = queue.Queue[str]()
    client.admin.create_topic("t", queue_count=4)
    consumer = client.push_consumer("g", start="earliest")
    consumer.on("t")(lambda message: handled.put(message.text()))

    with consumer:
        send(client, eruca.Message("t", "before"))
        assert handled.get(timeout=WAIT_SECONDS) == "before"
        with broker.away():
            pass
        send(client, eruca.Message("t", "after"))
        assert handled.get(timeout=WAIT_SECONDS) == "after"


def test_a_setting_is_the_tests_to_choose() -> None:
    with (
        InMemoryBroker({"auto_create_topics": False}) as broker,
        eruca.Client(broker.namesrv_urls) as client,
        client.producer() as producer,
        pytest.raises(eruca.TopicNotFoundError),
    ):
        producer.send(eruca.Message("t", "x"))


def test_a_setting_that_there_is_not_is_named() -> None:
    with (
        pytest.raises(ValidationError, match="auto_create_topic\n"),
        InMemoryBroker({"auto_create_topic": False}),
    ):
        pass


def test_the_environment_has_no_say(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ERUCA_BROKER_NAME", "another")
    monkeypatch.setenv("ERUCA_BROKER_AUTO_CREATE_TOPICS", "perhaps")
    monkeypatch.setenv("ERUCA_NAMESRV_KV_FILE", "/nowhere/kv.json")

    with InMemoryBroker() as broker, eruca.Client(broker.namesrv_urls) as client:
        send(client, eruca.Message("t", "x"))
        [message] = broker.messages("t")

    assert message.broker_name == "broker-a"


def test_two_of_them_know_nothing_of_each_other() -> None:
    with (
        InMemoryBroker() as one,
        InMemoryBroker() as other,
        eruca.Client(one.namesrv_urls) as client,
    ):
        send(client, eruca.Message("t", "x"))

        assert texts(one.messages("t")) == ["x"]
        assert other.messages("t") == []


@pytest.mark.parametrize("is_in_memory", [True, False])
def test_it_says_nothing_and_leaves_nothing(
    is_in_memory: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(module, "_MEMORY", tmp_path / "memory" if is_in_memory else tmp_path / "no")
    monkeypatch.setattr(module, "_ROOM", 0)
    structlog.reset_defaults()  # another test may have set it up
    (tmp_path / "memory").mkdir()
    threads = threading.active_count()

    with InMemoryBroker() as broker, eruca.Client(broker.namesrv_urls) as client:
        send(client, eruca.Message("t", "x"))
        [store] = tmp_path.glob("**/commitlog")
        assert (store.parents[1] == tmp_path / "memory") is is_in_memory

    assert capfd.readouterr() == ("", "")
    assert [*tmp_path.rglob("*")] == [tmp_path / "memory"]
    assert threading.active_count() == threads


def test_it_admits_everybody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ERUCA_API_KEY", key_of("user:nobody"))
    monkeypatch.setenv("ERUCA_AUTH_FILE", "/nowhere/rules.toml")
    with InMemoryBroker() as broker:
        with eruca.Client(broker.namesrv_urls) as client:
            send(client, eruca.Message("orders", "order 17"))

        assert [message.text() for message in broker.messages("orders")] == ["order 17"]
