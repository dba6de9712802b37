"""The inbox on the ways by which a message is redelivered: each time from a real broker."""

from __future__ import annotations

import queue
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

import eruca
from eruca.inbox import Inbox
from eruca_testing import InMemoryBroker
from support.patience import PATIENCE_SECONDS
from support.waiting import wait_until

GROUP = "billing"
TOPIC = "orders"


class Books:
    """A database with an inbox, and a handler that writes there and reports what became of it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.inbox = Inbox(GROUP)
        self.failures = 0  # how many runs are to fail after their work
        self.ran: list[str] = []
        self.ended: queue.Queue[str] = queue.Queue()
        self._handle = self.inbox.once(self.transaction)(self._work)
        with closing(self.connect()) as connection, connection:
            self.inbox.create_table(connection)
            connection.execute("CREATE TABLE invoices (what text)")

    def connect(self) -> sqlite3.Connection:
        return sqlite3.connect(self.path, timeout=PATIENCE_SECONDS)

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        with closing(self.connect()) as connection, connection:
            yield connection

    def handle(self, message: eruca.ReceivedMessage) -> eruca.ConsumeStatus | None:
        try:
            status: eruca.ConsumeStatus | None = self._handle(message)
            return status
        finally:
            self.ended.put(message.text())

    def invoices(self) -> list[str]:
        with closing(self.connect()) as connection:
            return [row[0] for row in connection.execute("SELECT what FROM invoices")]

    def wait_ended(self, count: int) -> None:
        for _ in range(count):
            self.ended.get(timeout=PATIENCE_SECONDS)

    def _work(self, message: eruca.ReceivedMessage, connection: sqlite3.Connection) -> None:
        self.ran.append(message.text())
        connection.execute("INSERT INTO invoices VALUES (?)", (message.text(),))
        if self.failures:
            self.failures -= 1
            raise ValueError("after the work")


@pytest.fixture
def books(tmp_path: Path) -> Books:
    return Books(tmp_path / "books.db")


@pytest.fixture
def client() -> Iterator[tuple[InMemoryBroker, eruca.Client]]:
    with InMemoryBroker() as broker, eruca.Client(broker.namesrv_urls) as client:
        client.admin.create_topic(TOPIC, queue_count=1)
        yield broker, client


World = tuple[InMemoryBroker, eruca.Client]


def wait_for_dead_letters(broker: InMemoryBroker, count: int) -> None:
    wait_until(lambda: len(broker.messages(f"%DLQ%{GROUP}")) >= count)


@pytest.mark.parametrize("ordered", [False, True], ids=["concurrent", "ordered"])
def test_a_retry_runs_and_what_is_sent_again_does_not(
    client: World, books: Books, ordered: bool
) -> None:
    broker, sdk = client
    books.failures = 1
    consumer = sdk.push_consumer(
        GROUP, start="earliest", ordered=ordered, retries=eruca.Retries(suspend_seconds=0.01)
    )
    consumer.on(TOPIC)(books.handle)
    message = eruca.Message(TOPIC, "order 17", message_id="7F000001" * 4)

    with sdk.producer() as producer, consumer:
        producer.send(message)
        books.wait_ended(1)
        if not ordered:
            broker.wait_delayed()
            broker.advance(10)
        books.wait_ended(1)
        producer.send(message)
        books.wait_ended(1)

    assert books.ran == ["order 17"] * 2
    assert books.invoices() == ["order 17"]
    assert broker.messages(f"%DLQ%{GROUP}") == []


def test_a_dead_letter_that_is_redriven_runs_unless_it_was_done(
    client: World, books: Books
) -> None:
    broker, sdk = client
    books.failures = 1
    consumer = sdk.push_consumer(GROUP, start="earliest", retries=eruca.Retries(retries_max=0))

    @consumer.on(TOPIC)
    def handle(message: eruca.ReceivedMessage) -> None:
        books.handle(message)
        raise ValueError("after the transaction")

    with sdk.producer() as producer, consumer:
        producer.send(eruca.Message(TOPIC, "order 17"))
        for count in range(1, 4):
            wait_for_dead_letters(broker, count)
            if count < 3:
                assert sdk.admin.groups.redrive(GROUP).redriven == 1

    assert books.ended.qsize() == 3
    assert books.ran == ["order 17"] * 2  # rolled back; done; and then skipped
    assert books.invoices() == ["order 17"]


def test_a_delivery_that_was_not_acknowledged_is_skipped(client: World, books: Books) -> None:
    broker, sdk = client
    with sdk.producer() as producer, sdk.simple_consumer(GROUP, TOPIC, start="earliest") as jobs:
        producer.send(eruca.Message(TOPIC, "order 17"))
        [lost] = jobs.receive(wait_seconds=PATIENCE_SECONDS)
        books.handle(lost.message)
        broker.advance(lost.invisible_seconds)
        [again] = jobs.receive(wait_seconds=PATIENCE_SECONDS)
        with jobs.handling(again) as handling:
            books.handle(handling.message)

    assert again.attempt == 2
    assert books.ran == books.invoices() == ["order 17"]


def test_a_queue_that_is_read_again_runs_what_was_forgotten(client: World, books: Books) -> None:
    _, sdk = client
    with sdk.producer() as producer:
        producer.send_many([eruca.Message(TOPIC, f"order {number}") for number in range(3)])
    for _ in range(2):
        with sdk.pull_consumer(topics=TOPIC, start="earliest") as consumer:
            for message in consumer.poll(wait_seconds=PATIENCE_SECONDS):
                books.handle(message)
                last = message
        with closing(books.connect()) as connection, connection:
            books.inbox.forget(connection, last)

    assert books.ran == ["order 0", "order 1", "order 2", "order 2"]
