"""A client's statistics, and what its members tell their group of themselves."""

from __future__ import annotations

import queue
from collections.abc import Iterator

import pytest
from prometheus_client import CollectorRegistry, generate_latest

import eruca
from eruca.prometheus import ClientCollector
from eruca_testing import InMemoryBroker
from support.patience import PATIENCE_SECONDS
from support.waiting import wait_until

TOPIC = "orders"


@pytest.fixture
def broker() -> Iterator[InMemoryBroker]:
    with InMemoryBroker() as broker:
        yield broker


@pytest.fixture
def client(broker: InMemoryBroker) -> Iterator[eruca.Client]:
    with eruca.Client(broker.namesrv_urls) as client:
        client.admin.create_topic(TOPIC, queue_count=1)
        yield client


def counts(client: eruca.Client) -> dict[tuple[str, str, str | None], tuple[int, int]]:
    return {
        (one.operation, one.topic, one.group): (
            one.last_minute.message_count,
            one.last_minute.failed_count,
        )
        for one in client.stats()
    }


def handle_three(client: eruca.Client) -> None:
    """Send three messages, and handle them: one of them fails."""
    handled: queue.Queue[str] = queue.Queue()
    client.producer("shop").send_many([eruca.Message(TOPIC, str(n)) for n in range(3)])
    consumer = client.push_consumer("billing", start="earliest")

    @consumer.on(TOPIC)
    def handle(message: eruca.ReceivedMessage) -> None:
        handled.put(message.text())
        if message.text() == "1":
            raise ValueError("declined")

    with consumer:
        for _ in range(3):
            handled.get(timeout=PATIENCE_SECONDS)


def test_sends_pulls_and_handlers_are_counted(client: eruca.Client) -> None:
    handle_three(client)

    assert counts(client) == {
        ("handle", TOPIC, "billing"): (3, 1),
        ("pull", TOPIC, "billing"): (3, 0),
        ("send", TOPIC, "shop"): (3, 0),
    }
    [send] = [one for one in client.stats() if one.operation == "send"]
    assert send.since_start.call_count == 1


def test_a_simple_consumer_counts_as_well(client: eruca.Client) -> None:
    client.producer().send(eruca.Message(TOPIC, "0"))
    with client.simple_consumer("billing", TOPIC, start="earliest") as consumer:
        [delivery] = consumer.receive(wait_seconds=PATIENCE_SECONDS)
        with consumer.handling(delivery) as handling:
            handling.nack()

    assert counts(client) == {
        ("handle", TOPIC, "billing"): (1, 1),
        ("pull", TOPIC, "billing"): (1, 0),
        ("send", TOPIC, None): (1, 0),
    }


def test_a_half_message_is_a_send(client: eruca.Client) -> None:
    with (
        client.transaction_producer("shop") as producer,
        producer.transaction(eruca.Message(TOPIC, "0")),
    ):
        pass

    assert counts(client) == {("send", TOPIC, "shop"): (1, 0)}


def test_failures_are_counted() -> None:
    with (
        InMemoryBroker({"auto_create_topics": False}) as broker,
        eruca.Client(broker.namesrv_urls) as client,
    ):
        producer = client.producer()
        with pytest.raises(eruca.TopicNotFoundError):
            producer.send_many([eruca.Message("nowhere", "x")] * 2)

        assert counts(client) == {("send", "nowhere", None): (2, 2)}


def test_prometheus_gets_them(client: eruca.Client) -> None:
    registry = CollectorRegistry()
    registry.register(ClientCollector(client))
    client.producer("shop").send(eruca.Message(TOPIC, "0"))

    text = generate_latest(registry).decode()

    labels = '{group="shop",operation="send",topic="orders"}'
    assert f"eruca_client_messages_total{labels} 1.0" in text
    assert f"eruca_client_failed_messages_total{labels} 0.0" in text
    assert f"eruca_client_call_seconds_count{labels} 1.0" in text


@pytest.mark.parametrize("nonsense", [None, "client", eruca.Client])
def test_only_a_client_has_metrics(nonsense: object) -> None:
    with pytest.raises(eruca.ValidationError, match="client"):
        ClientCollector(nonsense)  # type: ignore[arg-type]


def test_a_member_tells_its_group_of_its_handlers(client: eruca.Client) -> None:
    """With a heartbeat, of which a short session has many."""
    handled: queue.Queue[str] = queue.Queue()
    client.producer().send_many([eruca.Message(TOPIC, str(n)) for n in range(3)])
    consumer = client.push_consumer(
        "billing", start="earliest", membership=eruca.Membership(session_seconds=3)
    )

    @consumer.on(TOPIC)
    def handle(message: eruca.ReceivedMessage) -> None:
        handled.put(message.text())
        if message.text() == "1":
            raise ValueError("declined")

    def told() -> tuple[int, int] | None:
        [found] = client.admin.groups.members("billing").values()
        [member] = found.members
        handling = member.handling
        return None if handling is None else (handling.message_count, handling.failed_count)

    with consumer:
        for _ in range(3):
            handled.get(timeout=PATIENCE_SECONDS)
        wait_until(lambda: told() == (3, 1))
